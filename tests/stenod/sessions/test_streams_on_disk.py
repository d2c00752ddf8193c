"""Deletions of streams over the simulated disk, interrupted at every call.

A world with a successor has the stream that takes the deleted one's name.
"""

import contextlib
import errno
import itertools
from collections.abc import Callable, Iterator

import pytest

from steno_protocol import paths
from steno_protocol.commands import DeleteStream
from steno_protocol.errors import OutcomeUnknown
from steno_protocol.replies import Deleted
from stenod.sessions import streams
from stenod.sessions.file_reads import Readable
from stenod.sessions.streams import StreamPart
from stenod.store.failed_syncs import FailedSyncs
from support.lines import SESSION
from support.simulated_disk import Death, Effect, SimulatedDisk, Survival
from support.stored_session import NOW_S
from support.whole_sessions import PATH, World, deaths, failures

NAME = paths.stream_file("notes")
LINES = b'{"n":0,"_id":"k0"}\n{"n":1,"_id":"k1"}\n'
KEPT = b'{"n":1,"_id":"k1"}\n'
NEXT = paths.stream_file("next")
DELETED = f"stream-notes~1~{int(NOW_S)}~d.jsonl"

each_way = pytest.mark.parametrize("successor", [None, "next"])


def prepared(successor: str | None) -> World:
    # Of the names of a folder each may survive a power cut by itself.
    world = World(SimulatedDisk(names_in_order=False))
    world.disk.foreign.make_folder(PATH)
    world.stored().open().log.close()
    world.disk.plant(f"{PATH}/{NAME}", LINES)
    if successor is not None:
        world.disk.plant(f"{PATH}/{NEXT}", KEPT)
    world.disk.sync_all()
    return world


def delete(world: World, successor: str | None) -> Deleted:
    """Delete the stream as the daemon does: with an earlier answer, if there is one."""
    command = DeleteStream(
        session=SESSION, stream="notes", key="d", expect="0:2", successor=successor
    )
    place = world.trees.place(SESSION)
    with world.trees.opened(place) as folder:
        found = streams.find_deleted(world.disk, folder, place, command, 10)
        if found is not None:
            return found
        return streams.discard(world.disk, folder, place, command, NOW_S, 10, FailedSyncs())


def is_deleted(world: World) -> bool:
    return contents(world).generation == 1


def contents(world: World) -> Readable:
    """The stream as readers get it."""
    found = world.trees.readable_stream(world.trees.place(SESSION), NAME, with_head=True)
    found.view.release()
    return found


def check(world: World, successor: str | None) -> None:
    """The stream is whole in one of its lives, and the repeat deletes it once."""
    kept = None if successor is None else KEPT
    files = world.files(PATH)
    if is_deleted(world):
        found = files.get(f"/{NAME}"), files.get(f"/{NEXT}"), files.get(f"/{DELETED}")
        assert found == (kept, None, LINES)
    else:
        assert (files.get(f"/{NAME}"), files.get(f"/{NEXT}")) == (LINES, kept)
        assert str(contents(world).head) == "0:2"
    assert delete(world, successor) == delete(world, successor)
    assert is_deleted(world)
    files = world.files(PATH)
    assert {name for name in files if name.startswith("/stream-") and "mark" not in name} == (
        {f"/{DELETED}", f"/{NAME}"} if successor else {f"/{DELETED}"}
    )
    assert (files[f"/{DELETED}"], files.get(f"/{NAME}")) == (LINES, kept)
    assert str(contents(world).head) == ("1:1" if successor else "1:0")


@each_way
def test_a_deletion_that_dies_at_any_call_is_applied_once(successor: str | None) -> None:
    outcomes = set[bool]()
    for dying in deaths(prepared(successor), lambda world: delete(world, successor)):
        with contextlib.suppress(Death):
            delete(dying.world, successor)
        dying.restart()
        outcomes.add(is_deleted(dying.world))
        check(dying.world, successor)
    assert outcomes == {True, False}


@each_way
@pytest.mark.parametrize("effect", Effect, ids=lambda effect: effect.value)
def test_a_deletion_that_fails_at_any_call_is_applied_once(
    effect: Effect, successor: str | None
) -> None:
    for copy, _, raised in failures(
        prepared(successor), lambda world: delete(world, successor), effect
    ):
        if isinstance(raised, OSError):
            assert not is_deleted(copy), "it was refused, and happened"
        check(copy, successor)


@each_way
def test_a_deletion_that_was_answered_survives_a_power_cut(successor: str | None) -> None:
    for seed in range(20):
        world = prepared(successor)
        delete(world, successor)
        world.disk.reseed(seed)
        world.disk.crash()
        assert is_deleted(world)
        check(world, successor)


def test_a_reader_gets_the_records_and_the_number_of_one_life() -> None:
    outcomes = set[str]()
    for number in range(30):
        world, folder_calls = prepared("next"), itertools.count()
        with pytest.MonkeyPatch.context() as patched:
            for method in ("names", "stat_name", "open_read"):
                patched.setattr(world.disk, method, deleting(world, method, folder_calls, number))
            found = contents(world)
            listed = parts(world)
        assert (str(found.head), found.view.size) in {("0:2", len(LINES)), ("1:1", len(KEPT))}
        assert str(listed.head) in {"0:2", "1:1"}
        outcomes.add(str(found.head))
    assert outcomes == {"0:2", "1:1"}


def deleting(world: World, method: str, calls: Iterator[int], number: int) -> Callable[..., object]:
    """The method of the disk, with a deletion after one of the calls."""
    real = getattr(world.disk, method)

    def call(*arguments: object) -> object:
        found = real(*arguments)
        if next(calls) == number:
            delete(world, "next")
        return found

    return call


def parts(world: World) -> StreamPart:
    """The stream as lists show it."""
    with world.trees.opened(world.trees.place(SESSION)) as folder:
        return streams.closed_parts(world.disk, folder, "notes", FailedSyncs(), set())[0]


def test_a_successor_whose_own_deletion_was_interrupted_keeps_its_records() -> None:
    world = prepared("next")
    with world.trees.opened(world.trees.place(SESSION)) as folder:
        world.disk.link(folder, NEXT, f"stream-next~1~{int(NOW_S)}~interrupted.jsonl")
    delete(world, "next")
    with world.trees.opened(world.trees.place(SESSION)) as folder:
        expired = streams.expired(world.disk, folder, NOW_S + 100, 10)
        streams.expire(world.disk, folder, expired)
    assert world.files(PATH)[f"/{NAME}"] == KEPT
    assert [each.file for each in expired] == [DELETED]


@each_way
def test_only_what_is_durably_deleted_is_emptied_when_it_expires(successor: str | None) -> None:
    world = prepared(successor)
    # The sync behind the rename; with a successor one comes before it.
    world.disk.fail_next("fsync", errno.EIO, skip=1 if successor else 0)
    with pytest.raises(OutcomeUnknown):
        delete(world, successor)
    world.disk.fail_next("fsync", errno.EIO, name=SESSION)
    with world.trees.opened(world.trees.place(SESSION)) as folder:
        expired = streams.expired(world.disk, folder, NOW_S + 100, 10)
        with pytest.raises(OSError, match="demo"):
            streams.expire(world.disk, folder, expired)
    world.disk.crash(Survival.LOST)
    assert not is_deleted(world)
    check(world, successor)


@each_way
def test_a_deletion_that_cannot_look_for_its_outcome_does_not_know_it(
    successor: str | None,
) -> None:
    world = prepared(successor)
    real = world.disk.rename

    def rename(folder: int, name: str, new: str) -> None:
        real(folder, name, new)
        world.disk.fail_next("stat_name", errno.EIO)
        raise OSError(errno.EIO, "rename")

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(world.disk, "rename", rename)
        with pytest.raises(OutcomeUnknown):
            delete(world, successor)
    assert is_deleted(world)


def test_a_deleted_generation_is_durable_to_its_last_record() -> None:
    world = prepared(None)
    world.disk.foreign.append(f"{PATH}/{NAME}", KEPT)
    with world.trees.opened(world.trees.place(SESSION)) as folder:
        command = DeleteStream(session=SESSION, stream="notes", key="d")
        place = world.trees.place(SESSION)
        streams.discard(world.disk, folder, place, command, NOW_S, 10, FailedSyncs())
    world.disk.crash(Survival.LOST)
    assert world.files(PATH)[f"/{DELETED}"] == LINES + KEPT
