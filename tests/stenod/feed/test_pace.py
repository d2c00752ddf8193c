"""Paced subscribers: fewer events, the same stream."""

import random
from collections.abc import Sequence

import anyio
import anyio.lowlevel
import pytest

from steno_protocol import limits, paths
from steno_protocol.events import DmailEvent, Event, Records, Reset
from steno_protocol.positions import Position
from stenod.feed.feed import Subscriber
from support.lines import append, checkpoint, clear, deliver, mail, prompt, restore, revert, user
from support.writing import Desk, Reader

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("commit_mode")]

PACE_S = 0.125
"""Exact as a binary fraction, so that the clock meets the end of a pace."""


class Clock:
    """The desk's clock, with sleeps that end when a test moves it."""

    def __init__(self, desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
        self._desk = desk
        self._moved = anyio.Event()
        monkeypatch.setattr(anyio, "sleep", self._sleep)

    async def pass_time(self, delay_s: float) -> None:
        """Let time pass, and each task have its turn."""
        self._desk.now_s += delay_s
        self._moved.set()
        self._moved = anyio.Event()
        await self._desk.settle(60)

    async def _sleep(self, delay_s: float) -> None:
        until = self._desk.now_s + delay_s
        await anyio.lowlevel.checkpoint()
        while self._desk.now_s < until:
            await self._moved.wait()


def subscribe(
    desk: Desk, *, after: str = "now", credit: int = 1 << 24
) -> tuple[Subscriber, Reader]:
    reader = Reader(desk)
    position = desk.feed.head if after == "now" else Position.parse(after)
    subscriber = Subscriber(reader.send, position, credit, pace_s=PACE_S)
    desk.feed.add(subscriber)
    return subscriber, reader


async def add(desk: Desk, *texts: str) -> None:
    """Append a record for each text, each in a commit of its own."""
    for text in texts:
        await desk.do(append(text), user(text))


def ranges(reader: Reader) -> list[str]:
    """The lines of each event, as `first-next`, and the kinds of all other events."""
    return [
        f"{event.first}-{event.next}" if isinstance(event, Records) else type(event).__name__
        for event, _ in reader.events
    ]


def stream(events: Sequence[tuple[Event, bytes | None]]) -> list[object]:
    """A subscriber's stream: the lines with their positions, rewrites and D-Mails, in order."""
    found: list[object] = []
    for event, block in events:
        match event:
            case Records():
                first = Position.parse(event.first)
                for number, line in enumerate((block or b"").splitlines(keepends=True)):
                    found.append((first.generation, first.line + number, line))
            case Reset():
                found.append(("reset", event.generation, event.kept, event.why))
            case DmailEvent():
                found.append(event)
            case _:
                pass
    return found


async def test_the_first_commit_comes_at_once_and_later_ones_together(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with Desk().open() as desk:
        clock = Clock(desk, monkeypatch)
        _, reader = subscribe(desk)
        await add(desk, "a")
        assert ranges(reader) == ["Live", "0:0-0:1"]
        await add(desk, "b", "c", "d")
        await clock.pass_time(PACE_S / 2)
        assert ranges(reader) == ["Live", "0:0-0:1"]
        await clock.pass_time(PACE_S / 2)
        assert ranges(reader) == ["Live", "0:0-0:1", "0:1-0:4"]
        await add(desk, "e")
        assert len(reader.events) == 3
        await clock.pass_time(PACE_S)
        await clock.pass_time(PACE_S)
        await add(desk, "f")
        assert ranges(reader)[3:] == ["0:4-0:5", "0:5-0:6"]
        assert reader.data == desk.file()


async def test_commits_that_are_put_together_need_no_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with Desk().open() as desk:
        clock = Clock(desk, monkeypatch)
        _, reader = subscribe(desk)
        await desk.settle()
        monkeypatch.setattr(desk.feed, "_read", None)
        for number in range(5):
            await add(desk, f"a{number}", f"b{number}", f"c{number}")
            await clock.pass_time(PACE_S)

        assert reader.data == desk.file()


async def test_the_backlog_is_not_paced(monkeypatch: pytest.MonkeyPatch) -> None:
    async with Desk().open() as desk:
        clock = Clock(desk, monkeypatch)
        large = "x" * (limits.BLOCK_BYTES // 2)
        for number in range(6):
            await desk.do(append(f"k{number}"), user(large))
        _, reader = subscribe(desk, after="0:0")
        await clock.pass_time(0)

        assert reader.kinds == ["Records"] * 6 + ["Live"]
        assert reader.data == desk.file()


async def test_a_rewrite_comes_at_once_after_the_lines_before_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with Desk().open() as desk:
        clock = Clock(desk, monkeypatch)
        await desk.do(checkpoint("c"))
        _, reader = subscribe(desk)
        await add(desk, "a", "b", "c2")
        await desk.do(revert("r", 0))
        await clock.pass_time(0)

        assert ranges(reader) == ["Live", "0:1-0:2", "0:2-0:4", "Reset"]
        await add(desk, "d")
        await clock.pass_time(PACE_S)
        assert ranges(reader)[-1] == "1:0-1:1"


@pytest.mark.parametrize("size", [limits.BLOCK_BYTES // 4, limits.BLOCK_BYTES])
async def test_a_full_block_is_sent_early_and_memory_is_bounded(
    size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with Desk().open() as desk:
        clock = Clock(desk, monkeypatch)
        _, reader = subscribe(desk)
        await desk.settle()
        monkeypatch.setattr(desk.feed, "_read", None)
        for number in range(12):
            await desk.do(append(f"k{number}"), user("x" * size))
            waits = len(desk.file()) - len(reader.data)
            assert waits <= limits.BLOCK_BYTES
        await clock.pass_time(PACE_S)

        assert reader.data == desk.file()


async def test_a_plain_subscriber_beside_paced_ones_gets_each_commit(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with Desk().open() as desk:
        clock = Clock(desk, monkeypatch)
        paced = [subscribe(desk)[1] for _ in range(2 * limits.FANOUT_MAX)]
        _, plain = desk.subscribe("now")
        await add(desk, "a")
        # Many at their first commit are served in a round, which pauses.
        await clock.pass_time(limits.FANOUT_PAUSE_S_MAX)
        await add(desk, "b")
        await clock.pass_time(limits.FANOUT_PAUSE_S_MAX)
        before = len(plain.events)
        await add(desk, "c", "d", "e")
        await clock.pass_time(limits.FANOUT_PAUSE_S_MAX)

        assert len(plain.events) > before
        assert {each.data for each in [plain, *paced]} == {desk.file()}


async def test_a_subscriber_that_left_gets_nothing_and_frees_the_memory(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with Desk().open() as desk:
        clock = Clock(desk, monkeypatch)
        subscriber, reader = subscribe(desk)
        await add(desk, "a", "b")
        desk.feed.remove(subscriber)
        await clock.pass_time(PACE_S)

        assert ranges(reader) == ["Live", "0:0-0:1"]
        assert desk.feed._recent._bytes == 0


@pytest.mark.parametrize("number", range(6))
async def test_a_paced_subscriber_sees_the_stream_of_a_plain_one(
    number: int, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    chance = random.Random(seed * 100 + number)
    async with Desk().open() as desk:
        clock = Clock(desk, monkeypatch)
        _, plain = desk.subscribe("now", 1 << 24)
        _, paced = subscribe(desk)
        poor, poor_reader = subscribe(desk, credit=1)
        for step in range(60):
            match chance.randint(0, 11):
                case 0 | 1:
                    rewrites = [clear(f"c{step}"), revert(f"r{step}", 0), restore(f"g{step}", 0)]
                    desk.send(chance.choice([*rewrites, prompt(f"p{step}", "be kind")]))
                case 2:
                    desk.send(checkpoint(f"s{step}"))
                case 3:
                    desk.send(mail(f"m{step}", 0))
                case 4:
                    desk.send(deliver(f"d{step}", f"m{step - 1}"))
                case 5 | 6:
                    await clock.pass_time(chance.choice([PACE_S / 4, PACE_S, 3 * PACE_S]))
                case 7:
                    desk.feed.grant(poor, chance.choice([1, 2000]))
                case _:
                    for part in range(chance.randint(1, 3)):
                        text = "x" * chance.randint(0, 99)
                        desk.send(append(f"k{step}.{part}"), user(text))
                        await desk.settle(chance.choice([0, 2, 20]))
            await desk.settle(40)
        for _ in range(desk.feed.head.generation + 5):
            desk.feed.grant(poor, limits.SUBSCRIPTION_WINDOW_BYTES_MAX)
            await clock.pass_time(PACE_S)

        assert stream(paced.events) == stream(plain.events)
        lines = [each for each in stream(plain.events) if not isinstance(each, DmailEvent)]
        assert [
            each for each in stream(poor_reader.events) if not isinstance(each, DmailEvent)
        ] == (lines)
        present = [each for each in stream(plain.events) if isinstance(each, tuple)]
        assert present or not desk.file(paths.CONTEXT)
        assert poor.position == desk.feed.head
