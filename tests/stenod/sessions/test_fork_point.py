"""The point of a fork: context and wire file at one instant."""

from typing import Any

import pytest

from steno_protocol.errors import BadRequest, NotFound
from support.lines import append, checkpoint, clear, compact, foreign, line, revert, user
from support.simulated_disk import SimulatedDisk
from support.stored_session import NOW_S, apply
from support.whole_sessions import HEADER, PATH, World, part, turn

NOTICE = foreign("<system>CHECKPOINT 0</system>")
PARTS_NOTICE = (
    b'{"role":"user","content":[{"type":"text","text":" <system>CHECKPOINT 12</system> "}]}\n'
)
ANSWER = b'{"role":"assistant","content":"yes"}\n'


def with_files(context: bytes, *wire: bytes) -> World:
    """Put the files of a session as another program would."""
    world = World(SimulatedDisk())
    world.disk.plant(f"{PATH}/context.jsonl", context)
    if wire:
        world.disk.plant(f"{PATH}/wire.jsonl", b"".join(wire))
    return world


def joined() -> World:
    """Two turns, a revert to before the second, a third turn; every event knows its instant."""
    world = World(SimulatedDisk())
    world.disk.foreign.make_folder(PATH)
    opened = world.stored().open()
    apply(opened, append("k0"), user("zero"))
    apply(opened, checkpoint("c0"))
    apply(opened, append("k1"), user("one"), user("more"))
    apply(opened, revert("r", 0))
    apply(opened, append("k2"), user("two"))
    apply(opened, append("k3"), user("three"))
    opened.log.close()
    wire = [
        HEADER,
        turn("0:0", 0),
        part("0:1", 0),
        turn("0:2", 1),
        part("0:4", 1),
        turn("1:1", 2),
        b"not JSON\n",
        part("1:2", 2),
        turn("1:2", 3),
        part("1:3", 3),
    ]
    world.disk.plant(f"{PATH}/wire.jsonl", b"".join(wire))
    return world


def places(world: World, **fields: Any) -> tuple[str, int]:
    """The context's position and the lines of the wire file; the bytes are checked here."""
    found = world.cut(**fields)
    wire = world.stored().file("wire.jsonl").splitlines(keepends=True)
    assert found.wire_size == sum(map(len, wire[: found.wire_lines]))
    is_past = found.at.generation < 1 and "context_1.jsonl" in world.stored().names()
    lines = world.stored().file("context_1.jsonl" if is_past else "context.jsonl").splitlines(True)
    assert found.size == sum(map(len, lines[: found.at.line]))
    return str(found.at), found.wire_lines


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({}, ("1:3", 10)),
        ({"at": "1:3"}, ("1:3", 10)),
        ({"at": "1:2"}, ("1:2", 9)),
        ({"at": "1:1"}, ("1:1", 7)),
        ({"at": "1:0"}, ("1:0", 5)),
        ({"at": "0:4"}, ("0:4", 5)),
        ({"at": "0:2"}, ("0:2", 4)),
        ({"at": "0:1"}, ("0:1", 3)),
        ({"at": "0:0"}, ("0:0", 2)),
        ({"turn": 3}, ("1:3", 10)),
        ({"turn": 2}, ("1:2", 8)),
        ({"turn": 1}, ("1:1", 5)),
        ({"turn": 0}, ("0:2", 3)),
        ({"turn": -1}, ("0:0", 1)),
        ({"undo": 1}, ("1:2", 8)),
        ({"undo": 4}, ("0:0", 1)),
    ],
    ids=str,
)
def test_both_files_are_cut_at_one_instant(
    fields: dict[str, Any], expected: tuple[str, int]
) -> None:
    assert places(joined(), **fields) == expected


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({"at": "0:5"}, "generation 0 has the positions 0:0 to 0:4"),
        ({"at": "1:4"}, "generation 1 has the positions 1:0 to 1:3"),
        ({"at": "2:0"}, "the present one is 1"),
        ({"turn": 4}, "0 to 3 do, and -1 is before them"),
        ({"undo": 5}, "the session has 4"),
        ({"checkpoint_id": 1}, "the ids 0 to 0 were assigned so far"),
    ],
    ids=str,
)
def test_error_names_the_missing_point_and_the_existing_ones(
    fields: dict[str, Any], named: str
) -> None:
    with pytest.raises(NotFound, match=named):
        joined().cut(**fields)


def test_a_session_without_turns_says_so() -> None:
    with pytest.raises(NotFound, match="no turns yet"):
        with_files(foreign("a")).cut(undo=1)
    assert str(with_files(foreign("a")).cut(turn=-1).at) == "0:1"


def test_an_instant_is_named_once() -> None:
    with pytest.raises(BadRequest, match="give one of"):
        joined().cut(at="0:0", turn=0)


def test_a_context_is_never_cut_inside_a_batch() -> None:
    with pytest.raises(BadRequest, match="the nearest positions are 0:2 and 0:4"):
        joined().cut(at="0:3")


def test_a_wire_file_is_never_cut_inside_a_batch() -> None:
    world = with_files(
        foreign("a"),
        HEADER,
        turn("0:0", 0),
        part("0:1", 0, _id="b.0/2"),
        turn("0:1", 1, _id="b.1/2"),
    )
    with pytest.raises(BadRequest, match="the nearest positions there are 0:2 and 0:4"):
        world.cut(turn=0)
    assert places(world, turn=1) == ("0:1", 4)
    assert places(world, at="0:0") == ("0:0", 2)


def test_a_checkpoint_is_cut_before_its_line() -> None:
    world = World(SimulatedDisk())
    world.disk.foreign.make_folder(PATH)
    opened = world.stored().open()
    for number in range(2):
        apply(opened, append(f"k{number}"), user("x"))
        apply(opened, checkpoint(f"c{number}", add_user_message=True))
    opened.log.close()
    world.disk.plant(
        f"{PATH}/wire.jsonl", HEADER + turn("0:0", 0) + turn("0:3", 1) + part("0:6", 1)
    )
    assert places(world, checkpoint_id=1) == ("0:4", 3)
    assert places(world, checkpoint_id=0) == ("0:1", 2)
    for missing in (-1, 2):
        with pytest.raises(NotFound, match="0 to 1 were assigned"):
            world.cut(checkpoint_id=missing)


# --- files that others wrote ---------------------------------------------------------------------


def unjoined() -> World:
    context = [
        foreign("zero"), NOTICE, ANSWER, PARTS_NOTICE, b"\n", foreign("one"), ANSWER, foreign("two")
    ]  # fmt: skip
    wire = [HEADER, turn(None, 0), part(None, 0), b"damaged\n", turn(None, 1), turn(None, 2)]
    return with_files(b"".join(context), *wire)


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"turn": -1}, ("0:0", 1)),
        ({"turn": 0}, ("0:5", 4)),
        ({"turn": 1}, ("0:7", 5)),
        ({"turn": 2}, ("0:8", 6)),
        ({"undo": 1}, ("0:7", 5)),
        ({"at": "0:8"}, ("0:8", 6)),
        ({"at": "0:6"}, ("0:6", 5)),
        ({"at": "0:5"}, ("0:5", 4)),
        ({"at": "0:0"}, ("0:0", 1)),
    ],
    ids=str,
)
def test_files_without_instants_are_cut_by_their_turns(
    fields: dict[str, Any], expected: tuple[str, int]
) -> None:
    assert places(unjoined(), **fields) == expected


def test_early_turns_are_counted_in_the_generation_of_their_time() -> None:
    world = joined()
    wire = [HEADER, turn(None, 0), turn(None, 1), part("0:4", 1), turn("1:1", 2)]
    world.disk.plant(f"{PATH}/wire.jsonl", b"".join(wire))
    # The present generation has other messages: no later message leaks into the fork.
    assert places(world, turn=0) == ("0:2", 2)
    assert places(world, turn=-1) == ("0:0", 1)


def test_events_of_others_behind_the_last_known_instant_are_cut_by_their_turns() -> None:
    context = foreign("zero") + foreign("one") + foreign("two")
    wire = [HEADER, turn("0:0", 0), part("0:1", 0), turn(None, 1), turn(None, 2)]
    world = with_files(context, *wire)
    assert places(world, at="0:2") == ("0:2", 4)
    assert places(world, at="0:1") == ("0:1", 3)
    assert places(world, at="0:3") == ("0:3", 5)


# --- sessions of others that were rewritten ------------------------------------------------------


def compacted_by_appends(
    *later: bytes, wire: tuple[bytes, ...] = (), preserved: str = "one"
) -> World:
    """Two turns, a compaction as kimi-cli writes it (clear, then append), and later messages."""
    world = World(SimulatedDisk())
    world.disk.foreign.make_folder(PATH)
    opened = world.stored().open()
    apply(opened, append("k0"), user("zero"))
    apply(opened, append("k1"), user("one"))
    apply(opened, clear("c"))
    apply(opened, append("k2"), user("a summary"), user(preserved))
    for number, text in enumerate(later):
        apply(opened, append(f"l{number}"), text)
    opened.log.close()
    world.disk.plant(f"{PATH}/wire.jsonl", b"".join([HEADER, *wire]))
    return world


def begun(text: Any, after_s: float | None) -> bytes:
    """A turn without `_at`, so many seconds after the session was rewritten."""
    message = {"type": "TurnBegin", "payload": {"user_input": text}}
    time = {} if after_s is None else {"timestamp": NOW_S + after_s}
    return line({**time, "message": message})


THREE = (begun("zero", -3), begun("one", -2), begun([{"type": "text", "text": "two"}], 1))


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"undo": 1}, ("1:2", 3)),
        ({"undo": 2}, ("0:1", 2)),
        ({"undo": 3}, ("0:0", 1)),
        ({"turn": 0}, ("0:1", 2)),
        ({"turn": 1}, ("1:2", 3)),
        ({"turn": 2}, ("1:3", 4)),
        ({"at": "0:1"}, ("0:1", 2)),
        ({"at": "0:2"}, ("0:2", 3)),
        ({"at": "1:0"}, ("1:0", 3)),
        ({"at": "1:2"}, ("1:2", 3)),
        ({"at": "1:3"}, ("1:3", 4)),
    ],
    ids=str,
)
def test_turns_around_a_compaction_of_others_are_placed_by_time_and_text(
    fields: dict[str, Any], expected: tuple[str, int]
) -> None:
    assert places(compacted_by_appends(user("two"), wire=THREE), **fields) == expected


def test_a_position_behind_which_turns_are_unknown_keeps_the_events_that_are_known() -> None:
    world = compacted_by_appends(user("two"), user("three"), wire=(*THREE[:2], begun("two", None)))
    assert places(world, at="1:3") == ("1:3", 3)


@pytest.mark.parametrize(
    ("wire", "why"),
    [
        ((begun("two", None),), "neither the time of its event nor the timeline"),
        ((begun("zero", -2), begun("else", -1)), "generation 0 holds no message of the user"),
        ((begun("else", 1),), "generation 1 holds no message of the user with its text"),
        ((begun("one", 1),), "generation 1 does not hold its text as often"),
    ],
    ids=["no time", "another generation", "another text", "a text that is there twice"],
)
def test_a_turn_that_nothing_places_is_refused_with_positions(
    wire: tuple[bytes, ...], why: str
) -> None:
    world = compacted_by_appends(user("one"), wire=wire)
    with pytest.raises(BadRequest, match=why) as caught:
        world.cut(undo=1)
    assert "fork at a position instead" in str(caught.value)
    # 1:1 is inside a batch.
    named = "0:0, 0:1 or 0:2" if "generation 0" in why else "1:0, 1:2 or 1:3"
    assert named in str(caught.value)


def test_a_turn_that_left_nothing_begins_where_the_next_one_does() -> None:
    later = (user("two"), user("three"))
    wire = (begun("two", 1), begun("/help", 2), begun("three", 3), begun("/exit", 4))
    world = compacted_by_appends(*later, wire=wire)
    assert places(world, turn=0) == ("1:3", 2)
    assert places(world, turn=1) == ("1:3", 3)
    assert places(world, undo=1) == ("1:4", 4)


def test_turn_in_a_foreign_rewrite_is_placed_by_its_text() -> None:
    # The time of such a rewrite is a file's, and a copy of the session has the time of the copy.
    world = with_files(foreign("a summary") + foreign("two"), HEADER, begun("two", 0))
    world.disk.plant(f"{PATH}/context_1.jsonl", foreign("zero"))
    assert world.stored().names()
    with pytest.raises(BadRequest, match="is unknown, because"):
        world.cut(turn=-1)


def test_message_of_a_rewrite_belongs_to_no_turn() -> None:
    world = World(SimulatedDisk())
    world.disk.foreign.make_folder(PATH)
    opened = world.stored().open()
    for number, text in enumerate(("zero", "one", "one")):
        apply(opened, append(f"k{number}"), user(text))
    apply(opened, compact("c", "0:2", "0:3", 0), user("summary"))
    apply(opened, append("k4"), user("one"))
    opened.log.close()
    wire = [begun("zero", -3), begun("one", -2), begun("one", -1), begun("one", 1)]
    world.disk.plant(f"{PATH}/wire.jsonl", b"".join([HEADER, *wire]))
    assert places(world, undo=1) == ("1:4", 4)
    assert places(world, undo=2) == ("0:2", 3)
