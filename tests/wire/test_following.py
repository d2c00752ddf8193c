"""A subscription to both files: each in its order, neither behind the other, ended by either."""

import pytest

from steno._following import Following
from steno._verbs import starts_of
from steno.values import File, RecordsEvent
from steno_protocol.errors import BadRequest
from steno_protocol.events import Gone, Records, Reset
from steno_protocol.positions import Position
from steno_protocol.replies import Subscribed

BOTH: list[tuple[File, str]] = [("context", "start"), ("wire", "start")]


def following(starts: list[tuple[File, str]]) -> Following:
    made = Following("demo", starts, lambda: None)
    for follower in made.followers:
        follower.begin(Subscribed(head="0:0", incarnation="first"))
    return made


def receive(made: Following, file: File, count: int) -> None:
    """Let lines of one file come, one event a line."""
    [follower] = [each for each in made.followers if each.file == file]
    for _ in range(count):
        assert follower.position is not None
        first = follower.position
        after = Position(0, first.line + 1)
        assert follower.take(Records(first=str(first), next=str(after)), b"{}\n")


def popped(made: Following) -> list[tuple[File, int]]:
    """File and line of everything that has come."""
    found: list[tuple[File, int]] = []
    while made.has_events:
        event, follower = made.pop()
        assert isinstance(event, RecordsEvent)
        assert follower.file == event.file
        found.append((event.file, event.first.line))
    return found


def test_a_long_backlog_of_one_file_does_not_hide_the_other() -> None:
    made = following(BOTH)
    receive(made, "context", 4)
    receive(made, "wire", 2)
    told = popped(made)
    assert told[:4] == [("context", 0), ("wire", 0), ("context", 1), ("wire", 1)]
    assert told[4:] == [("context", 2), ("context", 3)]


def test_what_was_received_before_the_end_is_still_there() -> None:
    made = following(BOTH)
    receive(made, "wire", 1)
    [context] = [each for each in made.followers if each.file == "context"]
    context.take(Gone(why="its files cannot be read"), b"")
    assert made.error is context.error is not None
    assert popped(made) == [("wire", 0)]
    made.clear()
    assert not made.has_events


@pytest.mark.parametrize(
    ("records", "after", "wire_after", "starts"),
    [
        ("context", "start", None, [("context", "start")]),
        ("context", Position(2, 7), None, [("context", "2:7")]),
        ("wire", "now", None, [("wire", "now")]),
        ("wire", "start", "0:7", [("wire", "0:7")]),
        ("both", "start", None, BOTH),
        ("both", "now", None, [("context", "now"), ("wire", "now")]),
        ("both", "2:7", Position(0, 3), [("context", "2:7"), ("wire", "0:3")]),
        ("both", "2:7", "start", [("context", "2:7"), ("wire", "start")]),
    ],
)
def test_a_subscription_begins_in_each_file_where_it_was_told(
    records: str, after: str, wire_after: str | None, starts: list[tuple[str, str]]
) -> None:
    assert starts_of(records, after, wire_after) == starts  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("records", "after", "wire_after"),
    [
        ("both", "2:7", None),
        ("all", "start", None),
        ("wire", "later", None),
        ("both", "start", "x"),
        ("context", "", None),
    ],
)
def test_what_is_no_start_is_refused(records: str, after: str, wire_after: str | None) -> None:
    with pytest.raises(BadRequest):
        starts_of(records, after, wire_after)  # type: ignore[arg-type]


def test_an_incarnation_is_that_of_what_was_popped_in_both_files() -> None:
    made = Following("demo", BOTH, lambda: None)
    context, wire = made.followers
    assert made.incarnation is None
    for follower in (context, wire):
        follower.begin(Subscribed(head="0:0", incarnation="first"))
        follower.wake()
    assert made.incarnation == "first"
    again = Reset(generation=0, kept=0, why="made again", incarnation="second", head="0:0")
    for follower in (context, wire):
        follower.take(again, b"")
        follower.wake()
    assert made.incarnation == "first"
    made.pop()
    assert made.incarnation == "first"
    made.pop()
    assert made.incarnation == "second"


def test_a_saved_incarnation_stays_until_the_reset_was_popped() -> None:
    made = Following("demo", [("context", "0:2")], lambda: None, "first")
    [follower] = made.followers
    assert follower.incarnation == "first"
    follower.begin(Subscribed(head="0:0", incarnation="second"))
    follower.wake()
    assert made.incarnation == "first"
    again = Reset(generation=0, kept=0, why="made again", incarnation="second", head="0:0")
    follower.take(again, b"")
    made.pop()
    assert made.incarnation == "second"
