"""The turns of the present state, and the undo that can be redone."""

from typing import Any

import pytest

from steno.values import Turn
from steno_cli.going_back import present_turns, undone
from steno_protocol.positions import Position
from steno_protocol.timeline_entries import TimelineEntry


def turn(at: str | None) -> Turn:
    return Turn(Position(0, 0), 0.0, None if at is None else Position.parse(at), "hi")


def rewrite(kind: str, generation: int, source: int, lines: int, **more: Any) -> TimelineEntry:
    kept = lines if source == generation - 1 and kind == "reverted" else 0
    details = {"from": source, "lines": lines, **more}
    return TimelineEntry(kind=kind, generation=generation, kept=kept, details=details)


def undo(generation: int, lines: int) -> TimelineEntry:
    return rewrite("reverted", generation, generation - 1, lines, position="0:0")


def redo(generation: int, source: int, lines: int) -> TimelineEntry:
    return rewrite("restored", generation, source, lines)


TURNS = [turn("0:0"), turn("0:2"), turn(None), turn("0:4")]
CREATED = TimelineEntry(kind="created", generation=0)


@pytest.mark.parametrize(
    ("timeline", "head", "lines"),
    [
        ([], "0:6", [0, 2, 4]),
        # Nothing was written in the last turn yet.
        ([], "0:4", [0, 2]),
        ([undo(1, 4)], "1:4", [0, 2]),
        ([undo(1, 4), undo(2, 2)], "2:2", [0]),
        ([undo(1, 4), redo(2, 0, 6)], "2:6", [0, 2, 4]),
        ([undo(1, 2), undo(2, 0), redo(3, 1, 2)], "3:2", [0]),
        # A turn that began after an undo, at the line of one that is gone.
        ([undo(1, 2)], "1:5", [0]),
        ([rewrite("reverted", 1, 0, 4), rewrite("reverted", 2, 0, 3)], "2:3", [0, 2]),
        # What other rewrites keep has other numbers.
        ([rewrite("compacted", 1, 0, 6)], "1:6", []),
        ([TimelineEntry(kind="cleared", generation=1, details={"lines": 0})], "1:4", []),
    ],
)
def test_a_turn_is_present_while_its_first_line_is(
    timeline: list[TimelineEntry], head: str, lines: list[int]
) -> None:
    now = Position.parse(head)
    found = present_turns(TURNS, [CREATED, *timeline], now)
    assert found == [Position(now.generation, line) for line in lines]


def test_a_turn_that_began_after_a_rewrite_is_at_its_own_line() -> None:
    turns = [turn("0:0"), turn("0:2"), turn("1:2")]
    found = present_turns(turns, [CREATED, undo(1, 2)], Position(1, 5))
    assert found == [Position(1, 0), Position(1, 2)]


@pytest.mark.parametrize(
    ("timeline", "head", "generation"),
    [
        ([], "0:6", None),
        ([undo(1, 4)], "1:4", 0),
        ([undo(1, 4)], "1:5", None),
        ([undo(1, 4), undo(2, 2)], "2:2", 1),
        ([undo(1, 4), undo(2, 2), redo(3, 1, 4)], "3:4", 0),
        ([undo(1, 4), undo(2, 2), redo(3, 1, 4), redo(4, 0, 6)], "4:6", None),
        # Another record was written between the two.
        ([undo(1, 4), undo(2, 2), redo(3, 1, 5)], "3:5", None),
        ([rewrite("reverted", 1, 0, 4)], "1:4", None),
        ([undo(1, 4), rewrite("compacted", 2, 1, 4)], "2:4", None),
    ],
)
def test_the_last_undo_can_be_brought_back_while_nothing_was_written(
    timeline: list[TimelineEntry], head: str, generation: int | None
) -> None:
    assert undone([CREATED, *timeline], Position.parse(head)) == generation
