"""Deleted sessions over the simulated disk: moved whole, found by key, expired."""

import contextlib
import errno

import pytest

from steno_protocol import limits
from steno_protocol.errors import BadRequest, Held, StorageFailed
from steno_protocol.replies import Deleted
from stenod.sessions import trash
from support.simulated_disk import Death, Effect
from support.stored_session import NOW_S
from support.whole_sessions import PATH, TREE, World, deaths, failures, prepared

TRASH = f"{TREE}/.trash"
MONTH_S = limits.TRASH_EXPIRY_S


ALL = ["demo", "demo/subagents/a1", "neighbour"]


def delete(world: World) -> Deleted:
    return world.delete("d")


def check(world: World, source: dict[str, bytes]) -> None:
    """The session is there or in the trash, as a whole; the same key leads to one deletion."""
    was_gone = world.ids() == ["neighbour"]
    assert was_gone or world.ids() == ALL
    deleted = delete(world)
    assert world.ids() == ["neighbour"]
    assert world.files(deleted.trash) == source
    assert delete(world) == deleted
    assert len(world.disk.names(world.disk.open_root(TRASH))) == 1


def test_a_deletion_that_dies_at_any_call_took_place_or_did_not() -> None:
    world = prepared()
    source = world.files(PATH)
    outcomes = set[bool]()
    for dying in deaths(world, delete):
        with contextlib.suppress(Death):
            delete(dying.world)
        dying.restart()
        outcomes.add("demo" in dying.world.ids())
        check(dying.world, source)
    assert outcomes == {True, False}


@pytest.mark.parametrize("effect", Effect, ids=lambda effect: effect.value)
def test_a_deletion_that_fails_at_any_call_took_place_or_did_not(effect: Effect) -> None:
    world = prepared()
    source = world.files(PATH)
    for copy, _, raised in failures(world, delete, effect):
        if isinstance(raised, OSError):
            assert copy.files(PATH) == source, "it was refused, and happened"
        check(copy, source)


def test_a_deletion_that_was_answered_survives_a_power_cut() -> None:
    world = prepared()
    source = world.files(PATH)
    for seed in range(20):
        copy = world.clone()
        deleted = delete(copy)
        copy.disk.reseed(seed)
        copy.disk.crash()
        assert copy.ids() == ["neighbour"]
        assert copy.files(deleted.trash) == source


def test_a_folder_that_the_kernel_does_not_move_is_no_doubt() -> None:
    world = prepared()
    source = world.files(PATH)
    world.disk.fail_next("move", errno.EXDEV)
    with pytest.raises(StorageFailed, match=r"it was not deleted.* instead of an overlay"):
        delete(world)
    assert world.files(PATH) == source


def test_a_key_deletes_one_session_for_ever() -> None:
    world = prepared()
    delete(world)
    with pytest.raises(BadRequest, match="use a new one"):
        world.delete("d", "neighbour")
    assert world.ids() == ["neighbour"]


@pytest.mark.parametrize("held", [PATH, f"{PATH}/subagents/a1"])
def test_session_open_in_another_daemon_is_not_deleted(held: str) -> None:
    world = prepared()
    handle = world.disk.open_root(held)
    assert world.disk.lock(handle)
    with pytest.raises(Held):
        delete(world)
    assert world.ids() == ALL


# --- expiry ------------------------------------------------------------------------------------


def test_only_expired_trash_is_removed() -> None:
    world = prepared()
    world.delete("d", "demo", now=NOW_S)
    world.delete("e", "neighbour", now=NOW_S + 10)
    for name in ("not ours", "1x.k.id", ".k.id", "1.k"):
        world.disk.plant(f"{TRASH}/{name}/file", b"")
    world.disk.plant(f"{TRASH}/1.file.id", b"")
    world.disk.foreign.put_symlink(f"{TRASH}/1.link.id")

    assert world.sweep(now=NOW_S + MONTH_S) == (0, 0)
    assert world.sweep(now=NOW_S + MONTH_S + 5) == (0, 1)

    left = set(world.disk.names(world.disk.open_root(TRASH)))
    assert f"{NOW_S:.0f}.d.demo" not in left
    assert len(left) == 7
    assert world.sweep(now=NOW_S + MONTH_S + 20) == (0, 1)


def test_one_sweep_removes_no_more_than_it_may() -> None:
    world = prepared()
    for number in range(limits.TRASH_SWEEP_ENTRIES_MAX + 3):
        world.disk.foreign.make_folder(f"{TRASH}/{number + 1}.k{number}.id")

    assert world.sweep() == (0, limits.TRASH_SWEEP_ENTRIES_MAX)
    assert world.sweep() == (0, 3)


def test_undeletable_trash_does_not_keep_other_trash() -> None:
    world = prepared()
    for number in range(limits.TRASH_SWEEP_ENTRIES_MAX):
        world.disk.foreign.put_symlink(f"{TRASH}/{number + 1}.k{number}.id")
    world.delete("d", "demo", now=NOW_S)

    assert world.sweep(now=NOW_S + 2 * MONTH_S) == (0, 1)


def test_requested_removal_survives_a_power_cut() -> None:
    world = prepared()
    name = delete(world).trash.rpartition("/")[2]
    world.disk.sync_all()
    for seed in range(20):
        copy = world.clone()
        trash.remove(copy.disk, copy.disk.open_root(TREE), name)
        copy.disk.reseed(seed)
        copy.disk.crash()
        assert copy.disk.names(copy.disk.open_root(TRASH)) == []
