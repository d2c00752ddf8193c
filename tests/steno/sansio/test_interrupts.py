"""Subscriptions and mirrors interrupted anywhere, without loss or duplicate."""

from collections.abc import Iterator
from itertools import count

import pytest

from steno._sansio.event_merge import Following
from steno._sansio.follower import Follower
from steno._sansio.mirror import Mirror
from steno.values import RecordsEvent
from steno_protocol import events
from steno_protocol.positions import Position
from steno_protocol.replies import Subscribed
from support.interrupts import Interrupts

# Python itself drops an interrupt that comes in a finaliser, as that of a generator, and says so.
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")

BEFORE = [b'{"role":"user","content":"%d"}\n' % number for number in range(3)]
AFTER = [BEFORE[0], b'{"role":"user","content":"new"}\n', b'{"role":"_usage","token_count":7}\n']
REWRITE = events.Reset(generation=1, kept=1, why="reverted", incarnation="first", head="1:3")


def records(generation: int, lines: list[bytes], first: int) -> tuple[events.AnyEvent, bytes]:
    """The lines of a generation from `first` on."""
    event = events.Records(first=f"{generation}:{first}", next=f"{generation}:{len(lines)}")
    return event, b"".join(lines[first:])


def events_after(after: str) -> Iterator[tuple[events.AnyEvent, bytes]]:
    """The events for a follower that begins here; a rewrite follows the third line."""
    at = Position(0, 0) if after == "start" else Position.parse(after)
    if at.generation == 0:
        if at.line < len(BEFORE):
            yield records(0, BEFORE, at.line)
            at = Position(0, len(BEFORE))
        yield REWRITE, b""
        at = Position(1, min(at.line, REWRITE.kept))
    if at.line < len(AFTER):
        yield records(1, AFTER, at.line)
    yield events.Live(head="1:3"), b""


def receive(follower: Follower) -> None:
    """Take in all that is event from where the follower is."""
    follower.begin(Subscribed(head="0:0", incarnation="first"))
    for event, block in events_after(follower.resume_after):
        assert follower.take(event, block)
        follower.wake()


def test_a_mirror_that_is_interrupted_anywhere_has_every_record_once() -> None:
    interrupts = Interrupts()
    for place in count():
        mirror = Mirror("demo")
        interrupts.run(lambda mirror=mirror: receive(mirror.follower), place)
        seen = [message["content"] for message in mirror.history]
        # Never the half of an event, and never the half of a rewrite.
        assert seen in ([], ["0", "1", "2"], ["0", "new"])
        mirror.take_in()
        receive(mirror.follower)
        assert [message["content"] for message in mirror.history] == ["0", "new"]
        assert mirror.state.token_count_with_pending == 7
        assert mirror.state.damaged == 0
        assert mirror.follower.is_live
        if not interrupts.has_come:
            assert place > 50
            return


def test_a_subscription_that_is_interrupted_anywhere_gives_every_record_once() -> None:
    interrupts = Interrupts()
    for place in count():
        following = Following("demo", [("context", "start")], lambda: None)
        [follower] = following.followers
        blocks: list[bytes] = []

        def pop(following: Following = following, blocks: list[bytes] = blocks) -> None:
            while following.has_events:
                event, _ = following.pop()
                if isinstance(event, RecordsEvent):
                    blocks += (event.block,)

        def work(follower: Follower = follower, pop: object = pop) -> None:
            receive(follower)
            assert callable(pop)
            pop()

        interrupts.run(work, place)
        receive(follower)
        pop()
        assert b"".join(blocks).splitlines(keepends=True) == BEFORE + AFTER[1:]
        if not interrupts.has_come:
            assert place > 50
            return
