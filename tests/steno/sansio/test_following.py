"""Subscriptions to both files: each in its order, ended by either."""

import random
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from steno._sansio.event_merge import Following, starts_of
from steno._sansio.mirror import Mirror
from steno.values import File, RecordsEvent
from steno_protocol.errors import BadRequest, NotFound
from steno_protocol.events import Gone, Live, Records, Reset
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
    seen = popped(made)
    assert seen[:4] == [("context", 0), ("wire", 0), ("context", 1), ("wire", 1)]
    assert seen[4:] == [("context", 2), ("context", 3)]


def test_events_received_before_the_end_remain() -> None:
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
def test_subscription_begins_at_the_given_position_of_each_file(
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
def test_invalid_start_is_refused(records: str, after: str, wire_after: str | None) -> None:
    with pytest.raises(BadRequest):
        starts_of(records, after, wire_after)  # type: ignore[arg-type]


def test_incarnation_belongs_to_the_last_event_of_both_files() -> None:
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


# --- beside a mirror -----------------------------------------------------------------------------

USER = b'{"role":"user","content":"%d"}\n'


@dataclass
class History:
    """A session's events in their order, each with the contents that are the history behind it."""

    generation: int = 0
    making: int = 0
    contents: list[str] = field(default_factory=list[str])
    events: list[tuple[Records | Reset, bytes]] = field(default_factory=list)
    behind: list[list[str]] = field(default_factory=list)

    def append(self, number: int) -> None:
        first = f"{self.generation}:{len(self.contents)}"
        self.contents = [*self.contents, str(number)]
        self._tell(
            Records(first=first, next=f"{self.generation}:{len(self.contents)}"), USER % number
        )

    def rewrite(self, kept: int, number: int) -> None:
        self.generation += 1
        self.contents = self.contents[:kept]
        kept = len(self.contents)
        head = f"{self.generation}:{kept + 1}"
        self._tell(self._reset("compacted", kept, head), b"")
        self.append(number)

    def make_again(self) -> None:
        self.generation, self.contents = 0, []
        self.making += 1
        self._tell(self._reset("made again", 0, "0:0"), b"")

    def _reset(self, why: str, kept: int, head: str) -> Reset:
        incarnation = f"making-{self.making}"
        return Reset(
            generation=self.generation, kept=kept, why=why, incarnation=incarnation, head=head
        )

    def _tell(self, event: Records | Reset, block: bytes) -> None:
        self.events.append((event, block))
        self.behind.append(self.contents)


STEPS = st.lists(
    st.one_of(
        st.just("append"), st.integers(0, 3).map(lambda kept: ("rewrite", kept)), st.just("make")
    ),
    max_size=12,
)


@given(STEPS, st.randoms(use_true_random=False))
def test_history_contains_an_event_once_it_is_returned(
    steps: list[object], chance: random.Random
) -> None:
    past = History()
    for number, step in enumerate(steps):
        match step:
            case ("rewrite", int(kept)):
                past.rewrite(kept, number)
            case "make":
                past.make_again()
            case _:
                past.append(number)
    woken: list[int] = []
    mirror = Mirror("demo")
    made = Following("demo", [("context", "start")], lambda: woken.append(1), None, lambda: mirror)
    (follower,) = made.followers
    for each in (follower, mirror.follower):
        each.begin(Subscribed(head="0:0", incarnation="making-0"))
        each.take(Live(head="0:0"), b"")
        each.wake()
    made.pop()
    came, taken, handed = 0, 0, 0
    while handed < len(past.events):
        if chance.random() < 0.5 and came < len(past.events):
            assert follower.take(*past.events[came])
            follower.wake()
            came += 1
        elif taken < len(past.events):
            woken.clear()
            was_ready = made.has_events
            assert mirror.follower.take(*past.events[taken])
            mirror.follower.wake()
            taken += 1
            assert woken or was_ready or not made.has_events
        elif came == len(past.events):
            assert made.has_events, "both have come to the end, and an event is held back"
        while made.has_events and chance.random() < 0.7:
            made.pop()
            contents = [str(message["content"]) for message in mirror.history]
            # The mirror may be further, but is never behind.
            assert contents in past.behind[handed:]
            handed += 1


def test_an_event_of_a_making_that_the_mirror_never_saw_is_handed_out() -> None:
    past = History()
    past.make_again()
    past.append(1)
    past.make_again()
    mirror = Mirror("demo")
    made = Following("demo", [("context", "start")], lambda: None, None, lambda: mirror)
    (follower,) = made.followers
    for each in (follower, mirror.follower):
        each.begin(Subscribed(head="0:0", incarnation="making-0"))
        each.take(Live(head="0:0"), b"")
        each.wake()
    made.pop()
    mirror.follower.take(*past.events[-1])
    mirror.follower.wake()
    for event in past.events:
        follower.take(*event)

    assert [made.pop()[0] for _ in past.events]


def test_an_event_is_handed_out_when_the_mirror_has_ended_or_is_gone() -> None:
    past = History()
    past.append(1)
    mirror = Mirror("demo")
    mirrors: list[Mirror | None] = [mirror]
    made = Following("demo", [("context", "start")], lambda: None, None, lambda: mirrors[-1])
    (follower,) = made.followers
    follower.begin(Subscribed(head="0:0", incarnation="making-0"))
    follower.take(*past.events[0])
    assert not made.has_events
    mirrors.append(None)
    assert made.has_events
    mirrors.append(mirror)
    assert not made.has_events
    mirror.follower.error = NotFound("gone")
    assert made.has_events
