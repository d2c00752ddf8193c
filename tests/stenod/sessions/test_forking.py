"""Forks over the simulated disk, interrupted at every call."""

import contextlib
import errno
from collections.abc import Callable

import pytest

from steno_protocol import paths
from steno_protocol.commands import Fork
from steno_protocol.errors import BadRequest, Busy, Exists, NotFound
from steno_protocol.replies import SessionStat
from steno_protocol.timeline_entries import TimelineEntry
from stenod.core import timeline
from stenod.sessions.fork import Wanted, make
from support.lines import append, checkpoint, clear, line, prompt, revert, usage, user
from support.simulated_disk import Death, Effect, SimulatedDisk
from support.stored_session import NOW_S, StoredSession, apply
from support.whole_sessions import HEADER, PATH, TREE, World, deaths, failures, part, turn

OTHER = f"{TREE}/team/other"
NEW = "team/other"


def prepared() -> World:
    """A session that was reverted once, with two turns that are known, and two uploads."""
    world = World(SimulatedDisk())
    world.disk.foreign.make_folder(PATH)
    opened = world.stored().open()
    apply(opened, prompt("p", "be kind"))
    apply(opened, append("k0"), user("one"))
    apply(opened, checkpoint("c0", add_user_message=True))
    apply(opened, append("k1"), user("two"), user("three"))
    apply(opened, revert("r", 0))
    apply(opened, usage("u", 7))
    apply(opened, append("k2"), user("four"))
    opened.log.close()
    wire = [HEADER, turn("0:1", 0), part("0:2", 0), turn("1:2", 1), part("1:4", 1)]
    world.disk.plant(f"{PATH}/wire.jsonl", b"".join(wire))
    for name in ("0.mp4", "1.mp4", "unsaid.mp4"):
        world.disk.plant(f"{PATH}/uploads/{name}", name.encode())
    world.disk.plant(f"{PATH}/state.json", b'{"custom_title":"the first","todos":[1.50]}')
    world.disk.sync_all()
    return world


def fork(world: World, incarnation: str = "forked") -> SessionStat:
    return world.fork("f", NEW, incarnation=incarnation)


# --- deaths and errors ---------------------------------------------------------------------------


def check(world: World, after: dict[str, bytes], source: dict[str, bytes]) -> None:
    """Check that the fork is whole or absent, and that its key has one fork and one entry."""
    assert world.ids() in (["demo"], ["demo", NEW])
    was_there = NEW in world.ids()
    if was_there:
        assert world.files(OTHER) == after
    made = fork(world, incarnation="again")
    assert made.incarnation == ("forked" if was_there else "again")
    assert world.ids() == ["demo", NEW]
    assert {**world.files(OTHER), "/timeline.jsonl": b""} == {**after, "/timeline.jsonl": b""}
    assert fork(world, incarnation="third") == made
    forks = [entry for entry in world.stored().timeline() if entry.kind == "fork"]
    assert [entry.details for entry in forks] == [{"to": NEW, "at": "1:4"}]
    assert [entry.session for entry in world.listed() if entry.forked_from == "demo"] == [NEW]
    now = world.files(PATH)
    assert all(now[name] == data for name, data in source.items() if "timeline" not in name)
    world.sweep()
    assert world.files(f"{TREE}/.forks") == {}
    world.stored(NEW).open(create=False).log.close()


def scene() -> tuple[World, dict[str, bytes], dict[str, bytes]]:
    world = prepared()
    rehearsal = world.clone()
    fork(rehearsal)
    return world, rehearsal.files(OTHER), world.files(PATH)


@pytest.mark.slow
def test_a_fork_that_dies_at_any_call_is_there_or_is_not() -> None:
    world, after, source = scene()
    outcomes = set[bool]()
    for dying in deaths(world, fork):
        with contextlib.suppress(Death):
            fork(dying.world)
        dying.restart()
        outcomes.add(NEW in dying.world.ids())
        check(dying.world, after, source)
    assert outcomes == {True, False}


@pytest.mark.parametrize("effect", Effect, ids=lambda effect: effect.value)
def test_a_fork_that_fails_at_any_call_is_there_or_is_not(effect: Effect) -> None:
    world, after, source = scene()
    for copy, call, raised in failures(world, fork, effect):
        # The entry of the source is written last, and its failure is the caller's decision.
        if isinstance(raised, OSError) and call.name != paths.TIMELINE:
            assert NEW not in copy.ids(), "it was refused, and happened"
        check(copy, after, source)


# --- contents of a fork --------------------------------------------------------------------------


def test_fork_has_the_generations_and_uploads_that_it_refers_to() -> None:
    world = prepared()
    source = world.files(PATH)

    made = world.fork("f", NEW, turn=0)

    assert (made.head, made.generation, made.created) == ("1:2", 1, True)
    found = world.files(OTHER)
    lines = source["/context.jsonl"].splitlines(keepends=True)
    assert found["/context.jsonl"] == b"".join(lines[:2])
    assert found["/context_1.jsonl"] == source["/context_1.jsonl"]
    assert found["/wire.jsonl"] == HEADER + turn("0:1", 0) + part("0:2", 0)
    assert found["/uploads/0.mp4"] == b"0.mp4"
    assert found["/uploads/.sent"] == b'["0.mp4"]'
    assert {name for name in found if name.startswith("/uploads")} == {
        "/uploads/0.mp4", "/uploads/.sent"
    }  # fmt: skip
    assert (made.title, made.forked_from) == ("Fork: the first", "demo")


def test_a_fork_begins_with_an_incarnation_of_its_own_and_knows_its_parent() -> None:
    world = prepared()

    world.fork("f", NEW, title="mine", by="planner")

    rewritten, forked = world.stored(NEW).timeline()
    assert rewritten.kind == "reverted"
    assert (forked.kind, forked.key, forked.by) == ("forked", "f", "planner")
    details = forked.details
    assert (details["from"], details["at"], details["wire_at"]) == ("demo", "1:4", "0:5")
    opened = world.stored(NEW).open(create=False)
    assert (opened.incarnation, opened.machine.head) == ("forked", (1, 4))
    assert b'"custom_title":"mine"' in world.stored(NEW).file("state.json")


def test_fork_before_the_first_checkpoint_of_a_compaction_does_not_assign_it_again() -> None:
    world = World(SimulatedDisk())
    old = b"".join(line({"role": "_checkpoint", "id": number}) for number in range(3))
    new = line({"role": "_checkpoint", "id": 3}) + user("a summary") + b"\n"
    compacted = TimelineEntry(
        kind="compacted",
        generation=1,
        key="c",
        details={
            "checkpoint_id": 3,
            "lines": 2,
            "old": timeline.fingerprint(len(old), old),
            "new": timeline.fingerprint(len(new), new),
        },
    )
    world.disk.plant(f"{PATH}/context_1.jsonl", old)
    world.disk.plant(f"{PATH}/context.jsonl", new)
    world.disk.plant(f"{PATH}/timeline.jsonl", timeline.encode(compacted))

    made = world.fork("f", checkpoint_id=3)

    assert (made.head, made.n_checkpoints) == ("1:0", 4)
    opened = world.stored("other").open(create=False)
    assert apply(opened, checkpoint("c4")).checkpoint_id == 4
    assert world.fork("g", "older", checkpoint_id=1).head == "0:1"


def test_a_file_that_can_have_no_second_name_is_copied() -> None:
    world = prepared()
    world.disk.fail_next("link", errno.EXDEV)

    fork(world)

    assert world.files(OTHER)["/context_1.jsonl"] == world.files(PATH)["/context_1.jsonl"]
    links = world.disk.file_at(f"{PATH}/context_1.jsonl").links
    assert links == 1


def test_foreign_file_does_not_count_as_an_upload() -> None:
    world = prepared()
    world.disk.foreign.delete(f"{PATH}/uploads/0.mp4")
    world.disk.foreign.put_symlink(f"{PATH}/uploads/0.mp4")

    fork(world)

    assert world.files(OTHER)["/uploads/.sent"] == b'["1.mp4"]'


# --- refusals ------------------------------------------------------------------------------------


def _occupied(world: World) -> None:
    world.disk.plant(f"{OTHER}/context.jsonl", b"")


def _parent_of_others(world: World) -> None:
    world.disk.plant(f"{OTHER}/below/context.jsonl", b"")


def _another_fork(world: World) -> None:
    world.fork("g", NEW)


@pytest.mark.parametrize("occupy", [_occupied, _parent_of_others, _another_fork])
def test_a_place_that_is_taken_is_refused_and_left_alone(occupy: Callable[[World], None]) -> None:
    world = prepared()
    occupy(world)
    before = world.files(OTHER)
    with pytest.raises(Exists, match="choose another id"):
        fork(world)
    assert world.files(OTHER) == before
    assert world.files(f"{TREE}/.forks") == {}


def test_a_key_makes_one_fork_for_ever() -> None:
    world = prepared()
    fork(world)
    with pytest.raises(BadRequest, match="belongs to the fork 'team/other'"):
        world.fork("f", "another")
    world.delete("d", NEW)
    with pytest.raises(NotFound, match="was deleted"):
        fork(world)


def test_nothing_is_forked_of_a_session_that_was_deleted_and_made_again_meanwhile() -> None:
    world = prepared()
    trees, command = world.trees, Fork(session="demo", new_session=NEW, key="f")
    wanted = Wanted(command, trees.place("demo"), trees.place(NEW), "forked", stamp=True, now=NOW_S)
    opened = world.stored().open(create=False)
    with world.captured(opened) as captured:
        opened.log.close()
        world.delete("d")
        world.disk.foreign.make_folder(PATH)
        again = StoredSession(world.disk, PATH).open(incarnation="another")
        apply(again, append("other"), user("another"))
        apply(again, clear("gone"))
        with pytest.raises(Busy, match="created again"):
            make(world.disk, trees, captured, wanted)
    assert world.ids() == ["demo"]
    world.sweep()
    assert world.files(f"{TREE}/.forks") == {}


def test_a_fork_that_is_being_made_is_left_to_its_maker() -> None:
    world = prepared()
    world.disk.foreign.make_folder(f"{TREE}/.forks/f")
    nest = world.disk.open_root(f"{TREE}/.forks/f")
    assert world.disk.lock(nest)
    with pytest.raises(Busy):
        fork(world)
    assert world.sweep() == (0, 0)
    world.disk.close(nest)
    assert fork(world).created


def test_a_fork_that_was_answered_survives_a_power_cut() -> None:
    world, after, source = scene()
    for seed in range(20):
        copy = world.clone()
        fork(copy)
        copy.disk.reseed(seed)
        copy.disk.crash()
        assert NEW in copy.ids()
        check(copy, after, source)
