"""The feed: backlog, then every commit, without gap or duplicate."""

import errno
import random
import sys
from collections.abc import Awaitable
from typing import Any
from unittest.mock import patch

import anyio
import anyio.lowlevel
import pytest

from steno_protocol import limits, paths
from steno_protocol.errors import BadRequest
from steno_protocol.events import Lagged, Live, Records, Reset
from steno_protocol.positions import Position
from stenod.feed.feed import Feed
from support.lines import append, checkpoint, clear, prompt, restore, revert, user
from support.writing import PATH, Desk, Reader

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("commit_mode")]

FILE = f"{PATH}/{paths.CONTEXT}"


def sequence(reader: Reader) -> list[tuple[Position, bytes]]:
    """Every line with its position, checked to follow one another."""
    position: Position | None = None
    found: list[tuple[Position, bytes]] = []
    for event, block in reader.events:
        match event:
            case Records():
                first = Position.parse(event.first)
                assert position in (None, first), f"{event} after {position}"
                lines = (block or b"").splitlines(keepends=True)
                found += [
                    (Position(first.generation, first.line + number), line)
                    for number, line in enumerate(lines)
                ]
                position = Position(first.generation, first.line + len(lines))
                assert event.next == str(position)
            case Reset():
                assert position is None or event.generation == position.generation + 1
                position = Position(event.generation, event.kept)
            case _:
                pass
    return found


def since_reset(reader: Reader) -> bytes:
    """The lines that it was sent since it had to start over, if it ever had to."""
    resets = [number for number, kind in enumerate(reader.kinds) if kind == "Reset"]
    return b"".join(block or b"" for _, block in reader.events[max(resets, default=0) :])


async def filled(desk: Desk, count: int, text: str = "x") -> None:
    for number in range(count):
        last = desk.send(append(f"{text}{number}"), user(f"{text}{number}"))
    await desk.wait_for(lambda: last.answer is not None)


# --- backlog and live --------------------------------------------------------------------------


async def test_the_backlog_comes_first_then_live_then_each_commit() -> None:
    async with Desk().open() as desk:
        await filled(desk, 3)
        _, reader = desk.subscribe("0:1")
        await desk.wait_for(lambda: "Live" in reader.kinds)
        await desk.do(append("k1"), user("new"))
        await desk.wait_for(lambda: reader.kinds[-1] == "Records")

        assert reader.kinds == ["Records", "Live", "Records"]
        assert reader.events[1][0] == Live(head="0:3")
        assert [position.line for position, _ in sequence(reader)] == [1, 2, 3]
        assert reader.data == b"".join(desk.file().splitlines(keepends=True)[1:])


async def test_a_position_beyond_the_head_is_refused() -> None:
    async with Desk().open() as desk:
        await filled(desk, 1)

        for position in ("0:2", "1:0"):
            with pytest.raises(BadRequest, match="the session ends at 0:1"):
                desk.subscribe(position)


# --- rewrites ----------------------------------------------------------------------------------


async def test_an_old_position_is_brought_forward_generation_by_generation() -> None:
    async with Desk().open() as desk:
        await filled(desk, 2, "a")
        await desk.do(checkpoint("c"))
        await desk.do(append("b"), user("b"))
        await desk.do(revert("r", 0))
        await desk.do(append("d"), user("d"))
        await desk.do(clear("cl"))
        await desk.do(prompt("p", "be kind"))
        await desk.do(append("e"), user("e"))
        for seen in range(4):
            _, reader = desk.subscribe(f"0:{seen}")
            await desk.wait_for(lambda reader=reader: "Live" in reader.kinds)

            resets = [event for event, _ in reader.events if isinstance(event, Reset)]
            assert [(reset.generation, reset.kept, reset.why) for reset in resets] == [
                (1, 2, "reverted"),
                (2, 0, "cleared"),
            ]
            assert [position for position, _ in sequence(reader)][-3:] == [
                Position(1, 2),
                Position(2, 0),
                Position(2, 1),
            ]


async def test_a_rewrite_of_an_earlier_run_is_published_from_the_timeline() -> None:
    first = Desk()
    async with first.open():
        await filled(first, 1)
        await first.do(checkpoint("c"))
        await first.do(revert("r", 0))
    async with Desk(first.disk).open() as desk:
        _, reader = desk.subscribe("0:2")
        await desk.wait_for(lambda: "Live" in reader.kinds)

        assert reader.events[0][0] == Reset(
            generation=1, kept=1, why="reverted", incarnation="first", head="1:1",
            checkpoint_floor=1,
        )  # fmt: skip


async def test_a_reset_does_not_claim_lines_that_another_program_may_have_changed() -> None:
    first = Desk()
    async with first.open():
        await filled(first, 1)
        await first.do(checkpoint("c"))
        await first.do(revert("r", 0))
        assert first.file()
    first.disk.foreign.replace(FILE, b"")
    async with Desk(first.disk).open() as desk:
        await filled(desk, 2, "new")
        _, reader = desk.subscribe("0:2")
        await desk.wait_for(lambda: "Live" in reader.kinds)
        event = reader.events[0][0]
        assert isinstance(event, Reset)
        assert (event.generation, event.kept, event.why) == (1, 0, "reverted")
        assert since_reset(reader) == desk.file()


# --- credit ------------------------------------------------------------------------------------


async def test_every_event_costs_credit_even_a_small_one() -> None:
    async with Desk().open() as desk:
        subscriber, _ = desk.subscribe(credit=10 * limits.EVENT_COST_BYTES)
        for number in range(20):
            await desk.do(append(f"k{number}"), user("x"))

        assert subscriber.credit <= 0
        assert subscriber.position.line < 20


async def test_a_subscriber_without_credit_for_long_gets_lagged() -> None:
    async with Desk().open() as desk:
        await filled(desk, 50)
        _, slow = desk.subscribe(credit=100)
        _, quick = desk.subscribe()
        await desk.wait_for(lambda: "Live" in quick.kinds)
        desk.now_s += limits.SUBSCRIBER_STALL_S / 2
        desk.feed.end_stalled()
        assert len(desk.feed) == 2
        desk.now_s += limits.SUBSCRIBER_STALL_S
        desk.feed.end_stalled()

        last = slow.events[-1][0]
        assert isinstance(last, Lagged)
        assert Position.parse(last.next).line == len(sequence(slow))
        assert "Lagged" not in quick.kinds
        assert len(desk.feed) == 1


async def test_subscriber_at_the_head_of_a_quiet_session_never_lags() -> None:
    async with Desk().open() as desk:
        await filled(desk, 3)
        subscriber, reader = desk.subscribe(credit=limits.EVENT_COST_BYTES)
        await desk.wait_for(lambda: "Live" in reader.kinds)
        assert subscriber.credit <= 0
        desk.now_s += 10 * limits.SUBSCRIBER_STALL_S
        desk.feed.end_stalled()

        assert "Lagged" not in reader.kinds


async def test_many_followers_get_concurrent_commits_in_one_event(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    may_go_on = anyio.Event()

    async def pause(_: float) -> None:
        await may_go_on.wait()

    monkeypatch.setattr(anyio, "sleep", pause)
    async with Desk().open() as desk:
        await filled(desk, 2)
        readers = [desk.subscribe("now")[1] for _ in range(limits.FANOUT_MAX + 1)]
        await desk.do(append("k1"), user("first"))
        await desk.wait_for(lambda: all(reader.kinds == ["Live", "Records"] for reader in readers))
        for number in range(5):
            await desk.do(append(f"m{number}"), user("meanwhile"))
        may_go_on.set()
        await desk.wait_for(lambda: all(reader.kinds[2:] == ["Records"] for reader in readers))

        assert readers[0].events[2][0] == Records(first="0:3", next="0:8")
        # One object, so that it is encoded once.
        assert len({id(reader.events[2][0]) for reader in readers}) == 1
        assert {reader.data for reader in readers} == {
            b"".join(desk.file().splitlines(keepends=True)[2:])
        }


async def test_many_followers_get_commits_that_outgrew_the_memory() -> None:
    async with Desk().open() as desk:
        readers = [desk.subscribe("now", 1 << 24)[1] for _ in range(2 * limits.FANOUT_MAX)]
        turn = anyio.lowlevel.checkpoint

        async def write_meanwhile() -> None:
            for key, text in (("small", ""), ("large", "x" * limits.BLOCK_BYTES)):
                sent = desk.send(append(key), user(text))
                while sent.answer is None:
                    await turn()

        def checkpoint_in_a_round() -> Awaitable[None]:
            is_round = sys._getframe(1).f_code is Feed._fan_out_in_rounds.__code__
            return write_meanwhile() if is_round else turn()

        with patch.object(anyio.lowlevel, "checkpoint", checkpoint_in_a_round):
            await filled(desk, 1)
            await desk.wait_for(lambda: all(each.data.count(b"\n") == 3 for each in readers))
        assert {each.data for each in readers} == {desk.file()}


async def test_follower_with_a_full_queue_delays_no_other() -> None:
    async with Desk().open() as desk:
        await filled(desk, 2)
        followers = [desk.subscribe("now") for _ in range(limits.FANOUT_MAX + 1)]
        (slow, full), others = followers[0], [reader for _, reader in followers[1:]]
        full.is_full = True
        await filled(desk, 5, "y")
        last = b"".join(desk.file().splitlines(keepends=True)[2:])
        await desk.wait_for(lambda: {reader.data for reader in others} == {last})
        assert full.kinds == ["Live"]
        full.is_full = False
        desk.feed.grant(slow, 1)
        await desk.wait_for(lambda: full.data == others[0].data)


# --- accidents ---------------------------------------------------------------------------------


async def test_durable_lines_are_hidden_until_their_commit() -> None:
    async with Desk().open() as desk:
        await filled(desk, 5)
        seen: list[Position] = []
        _, reader = desk.subscribe("0:5")

        def look() -> None:
            # The sync is done, the writer has not gone on: a pump that reads now sees the bytes.
            _, late = desk.subscribe("0:0")
            assert late.data == b""
            seen.append(desk.feed.head)

        desk.commits.after = look
        await desk.do(append("k1"), user("new"))
        desk.commits.after = lambda: None
        await desk.settle()

        assert seen == [Position(0, 5)]
        sequence(reader)


async def test_a_file_that_cannot_be_read_ends_the_subscription_and_nothing_else() -> None:
    async with Desk().open() as desk:
        await filled(desk, 5)
        desk.disk.fail_next("read", errno.EIO, name=paths.CONTEXT)
        _, reader = desk.subscribe()
        await desk.wait_for(lambda: "Gone" in reader.kinds)

        assert len(desk.feed) == 0
        assert (await desk.do(append("k1"), user("one"))).ack.first == "0:5"


@pytest.mark.parametrize("cut", [1, 20, 100])
async def test_file_cut_by_another_program_during_a_backlog_breaks_no_follower(cut: int) -> None:
    async with Desk().open() as desk:
        await filled(desk, 50)
        subscriber, reader = desk.subscribe(credit=1)
        await desk.settle()
        assert subscriber.offset
        desk.disk.foreign.truncate(FILE, cut)
        desk.feed.grant(subscriber, 1 << 20)
        await desk.settle()
        sent = await desk.do(append("k1"), user("one"))
        await desk.wait_for(lambda: b'"k1"' in reader.data)

        assert sent.ack
        assert since_reset(reader) == desk.file()


# --- at random ---------------------------------------------------------------------------------


@pytest.mark.parametrize("number", range(6))
async def test_followers_with_any_credit_see_every_line_once_and_in_order(
    number: int, seed: int
) -> None:
    chance = random.Random(seed * 100 + number)
    async with Desk().open() as desk:
        followers: list[tuple[Any, Reader]] = []
        starts: list[Position] = []
        for step in range(40):
            match chance.randint(0, 9):
                case 0 if len(followers) < 5:
                    start = Position(0, 0) if chance.random() < 0.5 else desk.feed.head
                    credit = chance.choice([1, 2000, 1 << 20])
                    followers.append(desk.subscribe(str(start), credit))
                    starts.append(start)
                case 1 | 2:
                    for subscriber, _ in followers:
                        desk.feed.grant(subscriber, chance.choice([1, 500, 5000]))
                case 3:
                    kind = chance.choice([clear, restore, prompt])
                    desk.send(
                        clear(f"c{step}")
                        if kind is clear
                        else restore(f"r{step}", 0)
                        if kind is restore
                        else prompt(f"p{step}", "be kind")
                    )
                case _:
                    count = chance.randint(1, 4)
                    desk.send(append(f"k{step}"), *[user("x" * chance.randint(0, 99))] * count)
            await desk.settle(chance.choice([0, 1, 2, 5]))
        await desk.settle()
        for subscriber, _ in followers:
            desk.feed.grant(subscriber, limits.SUBSCRIPTION_WINDOW_BYTES_MAX)
        await desk.wait_for(
            lambda: all(subscriber.position == desk.feed.head for subscriber, _ in followers)
        )
        generations = [
            desk.file(paths.generation_file(generation + 1)).splitlines(keepends=True)
            for generation in range(desk.feed.head.generation)
        ]
        generations.append(desk.file().splitlines(keepends=True))
        for start, (_, reader) in zip(starts, followers, strict=True):
            seen = sequence(reader)
            assert all(generations[place.generation][place.line] == line for place, line in seen)
            kept = {
                event.generation: event.kept
                for event, _ in reader.events
                if isinstance(event, Reset)
            }
            expected = [
                Position(generation, line)
                for generation in range(start.generation, len(generations))
                for line in range(
                    start.line if generation == start.generation else kept[generation],
                    len(generations[generation]),
                )
            ]
            assert [position for position, _ in seen] == expected
