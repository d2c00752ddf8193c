"""Renamed, restored and taken in sessions on a simulated disk: moved whole, once, found by key."""

import contextlib
import errno
from collections.abc import Callable

import pytest

from steno_protocol import limits
from steno_protocol.errors import (
    BadRequest,
    Busy,
    Exists,
    Held,
    NotFound,
    OutcomeUnknown,
    StorageFailed,
)
from steno_protocol.replies import Moved
from stenod.sessions import rename
from support.simulated_disk import Death, Effect, SimulatedDisk
from support.stored_session import NOW_S
from support.whole_sessions import EXPIRY_S, PATH, TREE, World, deaths, failures, prepared

MOVES = f"{TREE}/.moves"
TRASH = f"{TREE}/.trash"
PREPARED = f"{TREE}/.imports/t/session"
ALL = ["demo", "demo/subagents/a1", "neighbour"]
RENAMED = ["neighbour", "team/other", "team/other/subagents/a1"]


def deleted() -> World:
    """The same, with the session in the trash."""
    world = prepared()
    world.delete("d")
    world.disk.sync_all()
    return world


def copied() -> World:
    """A neighbour, and a session with another one below it that a client prepared."""
    world = World(SimulatedDisk())
    world.disk.plant(f"{TREE}/neighbour/context.jsonl", b"")
    world.disk.plant(f"{PREPARED}/context.jsonl", b'{"role":"user","content":"one"}\n')
    world.disk.plant(f"{PREPARED}/subagents/a1/context.jsonl", b"")
    return world


def rename_it(world: World) -> Moved:
    return world.rename("r", "team/other")


def restore_it(world: World) -> Moved:
    return world.undelete("u")


def take_it_in(world: World) -> Moved:
    return world.take_in("t")


CASES = {
    "rename": (prepared, rename_it, ALL, RENAMED, "team/other"),
    "undelete": (deleted, restore_it, ["neighbour"], ALL, "demo"),
    "take in": (copied, take_it_in, ["neighbour"], ALL, "demo"),
}
"""Each command: the world before it, the command, the sessions before and after, the new id."""

Case = tuple[Callable[[], World], Callable[[World], Moved], list[str], list[str], str]

every_command = pytest.mark.parametrize("case", CASES.values(), ids=CASES)


def contents(world: World) -> dict[str, bytes]:
    """The files of the session, wherever it is, without the records of its commands."""
    places = [*(f"{TREE}/{session}" for session in ("demo", "team/other")), PREPARED]
    trash = [name for name in world.disk.tree() if name.startswith(f"{TRASH}/")]
    places += {"/".join(name.split("/")[:5]) for name in trash}
    return next(found for place in places if (found := world.files(f"{place}/")))


def check(world: World, case: Case, source: dict[str, bytes]) -> None:
    """The session is before or after the move, as a whole; a repeat completes it once."""
    _, command, before, after, session = case
    assert world.ids() in (before, after)
    assert contents(world) == source
    moved = command(world)
    assert moved.session == session
    assert world.ids() == after
    assert contents(world) == source
    assert command(world) == moved
    assert len(world.disk.names(world.disk.open_root(MOVES))) == 1


@every_command
def test_move_that_dies_at_any_call_took_place_or_did_not(case: Case) -> None:
    world = case[0]()
    source = contents(world)
    outcomes = set[bool]()
    for dying in deaths(world, case[1]):
        with contextlib.suppress(Death):
            case[1](dying.world)
        dying.restart()
        outcomes.add(dying.world.ids() == case[3])
        check(dying.world, case, source)
    assert outcomes == {True, False}


@every_command
@pytest.mark.parametrize("effect", Effect, ids=lambda effect: effect.value)
def test_move_that_fails_at_any_call_took_place_or_did_not(case: Case, effect: Effect) -> None:
    world = case[0]()
    source = contents(world)
    for copy, _, raised in list(failures(world, case[1], effect))[:-2]:
        # The daemon reports a failure of the last two calls, which follow the move, as unknown.
        if isinstance(raised, OSError):
            assert copy.ids() == case[2], "it was refused, and happened"
        check(copy, case, source)


@every_command
def test_folder_that_the_kernel_does_not_move_stays(case: Case) -> None:
    world = case[0]()
    world.disk.fail_next("move", errno.EXDEV)
    with pytest.raises(StorageFailed, match=r"it was not (re|taken in).* instead of an overlay"):
        case[1](world)
    assert world.ids() == case[2]
    case[1](world)
    assert world.ids() == case[3]


# --- renames -------------------------------------------------------------------------------------


def make_again(world: World, incarnation: str) -> None:
    world.disk.foreign.make_folder(PATH)
    world.stored().open(incarnation=incarnation).log.close()


@pytest.mark.parametrize("next_command", ["rename", "delete and undelete"])
def test_rename_without_its_completion_is_known_after_further_moves(next_command: str) -> None:
    """The daemon died between the move and the end of the command."""
    world = prepared()
    wanted_by = world.clone()
    rehearsal = world.clone()
    rename_it(rehearsal)
    [last] = [each for each, call in enumerate(rehearsal.disk.calls) if call.method == "rename"]
    world = wanted_by
    world.disk.kill_at(last, "before")
    with pytest.raises(Death):
        rename_it(world)
    world.disk.restart(None)
    assert world.ids() == RENAMED
    if next_command == "rename":
        world.rename("back", "demo", session="team/other")
        after = ALL
    else:
        world.delete("d", "team/other")
        world.undelete("u", "team/other")
        world.rename("on", "third", session="team/other")
        after = ["neighbour", "third", "third/subagents/a1"]
    assert world.ids() == after
    assert rename_it(world).session == "team/other"
    assert world.ids() == after


def test_rename_that_never_took_place_is_forgotten_by_the_next_one() -> None:
    world = prepared()
    world.disk.fail_next("move", errno.EIO)
    with pytest.raises(OutcomeUnknown):
        rename_it(world)
    world.disk.heal()
    world.rename("s", "third")
    with pytest.raises(NotFound):
        rename_it(world)
    assert world.ids() == ["neighbour", "third", "third/subagents/a1"]


def test_rename_whose_session_is_at_neither_place_is_unknown() -> None:
    world = prepared()
    world.disk.fail_next("move", errno.EIO)
    with pytest.raises(OutcomeUnknown):
        rename_it(world)
    world.disk.heal()
    world.delete("d")
    make_again(world, "second")
    with pytest.raises(OutcomeUnknown, match="at neither of them"):
        rename_it(world)
    assert world.ids() == ["demo", "neighbour"]


def test_id_that_is_taken_between_check_and_move_is_refused() -> None:
    world = prepared()
    world.disk.fail_next("move", errno.ENOTEMPTY)
    with pytest.raises(Exists):
        rename_it(world)
    assert world.ids() == ALL
    assert world.disk.names(world.disk.open_root(MOVES)) == []


def test_missing_session_cannot_be_renamed() -> None:
    world = prepared()
    for session in ("missing", "demo/subagents"):
        with pytest.raises(NotFound):
            world.rename("r", "new", session=session)


@pytest.mark.parametrize("held", [PATH, f"{PATH}/subagents/a1"])
def test_session_open_in_another_daemon_is_not_renamed(held: str) -> None:
    world = prepared()
    handle = world.disk.open_root(held)
    assert world.disk.lock(handle)
    with pytest.raises(Held):
        rename_it(world)
    assert world.ids() == ALL


@pytest.mark.parametrize(
    "other",
    [
        lambda world: world.rename("r", "third"),
        lambda world: world.rename("r", "third", session="neighbour"),
        lambda world: world.undelete("r"),
    ],
    ids=["another new id", "another session", "a restoration"],
)
def test_key_of_a_rename_is_refused_for_another_command(other: Callable[[World], Moved]) -> None:
    world = prepared()
    rename_it(world)
    with pytest.raises(BadRequest, match="use a new one"):
        other(world)
    assert world.ids() == RENAMED


def test_new_id_of_a_session_is_known_by_its_old_one() -> None:
    world = prepared()
    rename_it(world)

    def new_id(session: str) -> str | None:
        return rename.new_id(world.trees, world.trees.place(session))

    assert new_id("demo") == "team/other"
    assert new_id("demo/subagents/a1") == "team/other/subagents/a1"
    assert new_id("demo2") is None
    assert new_id("neighbour") is None


def test_records_of_moves_expire_with_the_trash() -> None:
    world = prepared()
    rename_it(world)
    assert world.forget_moves(NOW_S + EXPIRY_S) == 0
    assert world.forget_moves(NOW_S + EXPIRY_S + 1) == 1
    assert world.disk.names(world.disk.open_root(MOVES)) == []


# --- restorations --------------------------------------------------------------------------------


def test_repeated_deletion_leaves_a_restored_session() -> None:
    world = prepared()
    first = world.delete("d")
    restore_it(world)
    assert world.delete("d") == first
    assert world.ids() == ALL
    assert world.delete("e", now=NOW_S + 5) != first
    assert world.ids() == ["neighbour"]


def test_restoration_of_a_missing_deletion_names_what_to_do() -> None:
    world = prepared()
    with pytest.raises(NotFound, match="steno sessions --trash"):
        restore_it(world)
    world.delete("d")
    with pytest.raises(NotFound, match="steno sessions --trash"):
        world.undelete("v", "neighbour")
    with pytest.raises(NotFound, match="`steno undelete demo` restores both"):
        world.undelete("v", "demo/subagents/a1")
    with pytest.raises(NotFound, match="steno sessions --trash"):
        world.undelete("v", trash="1.k.demo")


def test_named_folder_of_another_session_is_refused() -> None:
    world = deleted()
    name = world.delete("e", "neighbour").trash.rpartition("/")[2]
    with pytest.raises(BadRequest, match="another session"):
        world.undelete("u", trash=name)


def test_long_id_is_restored_only_by_its_folder() -> None:
    world = prepared()
    session = f"{'a' * 100}/{'b' * 100}"
    world.disk.plant(f"{TREE}/{session}/context.jsonl", b"")
    name = world.delete("d", session).trash.rpartition("/")[2]
    with pytest.raises(BadRequest, match="name the folder"):
        world.undelete("u", session)
    assert world.undelete("u", session, trash=name).session == session
    assert session in world.ids()


def test_expired_session_is_not_restored() -> None:
    world = deleted()
    with pytest.raises(NotFound, match="has expired"):
        world.undelete("u", now=NOW_S + limits.TRASH_EXPIRY_S + 1)
    assert world.ids() == ["neighbour"]


def test_removal_and_restoration_of_a_folder_exclude_each_other() -> None:
    world = deleted()
    [name] = world.disk.names(world.disk.open_root(TRASH))
    folder = world.disk.open_root(f"{TRASH}/{name}")
    assert world.disk.lock(folder)
    with pytest.raises(Busy, match="try again"):
        restore_it(world)
    assert world.sweep(now=NOW_S + 2 * EXPIRY_S) == (0, 0)
    world.disk.close(folder)
    restore_it(world)
    assert world.ids() == ALL


def test_rename_before_the_next_one_is_reported_as_incomplete() -> None:
    world = prepared()
    rehearsal = world.clone()
    rename_it(rehearsal)
    [last] = [each for each, call in enumerate(rehearsal.disk.calls) if call.method == "rename"]
    world.disk.kill_at(last, "before")
    with pytest.raises(Death):
        rename_it(world)
    world.disk.restart(None)
    place = world.trees.place("team/other")
    [(key, move)] = rename.incomplete(world.trees, place)
    assert (key, move.source, move.target) == ("r", "demo", "team/other")
    assert rename.incomplete(world.trees, world.trees.place("neighbour")) == []
    rename_it(world)
    assert rename.incomplete(world.trees, place) == []


def test_present_id_is_found_through_several_renames() -> None:
    world = prepared()
    rename_it(world)
    world.rename("s", "third", session="team/other", now=NOW_S + 5)
    assert rename.new_id(world.trees, world.trees.place("demo")) == "third"
    world.rename("t", "demo", session="third", now=NOW_S + 9)
    # It leads in circles now, and the search ends all the same.
    assert rename.new_id(world.trees, world.trees.place("third")) is not None


@every_command
def test_acknowledged_move_survives_a_power_cut(case: Case) -> None:
    world = case[0]()
    source = contents(world)
    for seed in range(20):
        copy = world.clone()
        case[1](copy)
        copy.disk.reseed(seed)
        copy.disk.crash()
        assert copy.ids() == case[3]
        assert contents(copy) == source
        check(copy, case, source)
