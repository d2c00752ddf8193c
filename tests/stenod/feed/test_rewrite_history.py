"""The rewrite history that a feed sends to followers."""

from collections.abc import Iterator
from unittest.mock import patch

import pytest

from steno_protocol import limits
from steno_protocol.events import Reset
from steno_protocol.timeline_entries import TimelineEntry
from stenod.core import timeline
from support.lines import append, clear, user
from support.writing import Desk, Reader

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("commit_mode")]

REWRITES = 40


class Entries(list[TimelineEntry]):
    """Entries of a timeline that count how often all of them are visited."""

    passes = 0

    def __iter__(self) -> Iterator[TimelineEntry]:
        Entries.passes += 1
        return super().__iter__()


async def rewritten(desk: Desk, times: int = REWRITES) -> None:
    """Clear the session so many times."""
    for number in range(times):
        await desk.do(append(f"k{number}"), user(f"text {number}"))
        await desk.do(clear(f"c{number}"))


async def told_all(desk: Desk, reader: Reader) -> list[int]:
    """The generations in the resets of a follower until it is live."""
    await desk.wait_for(lambda: "Live" in reader.kinds)
    return [event.generation for event, _ in reader.events if isinstance(event, Reset)]


async def test_a_follower_of_many_rewrites_costs_a_few_looks_through_the_timeline() -> None:
    decode = timeline.decode
    async with Desk().open() as before:
        await rewritten(before)
    async with Desk(before.disk).open() as desk:
        Entries.passes = 0
        with patch.object(timeline, "decode", lambda data: Entries(decode(data))):
            _, reader = desk.subscribe("0:0")
            assert await told_all(desk, reader) == list(range(1, REWRITES + 1))
        assert 0 < Entries.passes < 5


async def test_of_many_rewrites_the_last_are_remembered_and_the_others_are_found() -> None:
    with (
        patch.object(limits, "REWRITE_HISTORY_MAX", 8),
        patch.object(limits, "REWRITES_READ_MAX", 3),
    ):
        async with Desk().open() as desk:
            await rewritten(desk)
            assert len(desk.feed._rewrites) == limits.REWRITE_HISTORY_MAX
            _, first = desk.subscribe("0:0")
            _, second = desk.subscribe("20:0")
            assert await told_all(desk, first) == list(range(1, REWRITES + 1))
            assert await told_all(desk, second) == list(range(21, REWRITES + 1))
            assert len(desk.feed._rewrites) == limits.REWRITE_HISTORY_MAX
