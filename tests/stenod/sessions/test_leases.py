"""Compactions beside a writer: leases, concurrent records, rising ids."""

import errno
import json
from collections.abc import Callable
from typing import Any, TypeVar

import anyio
import pytest
from msgspec.structs import replace

from steno_protocol.errors import Busy, Conflict
from steno_protocol.replies import Compaction
from stenod.sessions.leases import Compactions
from support.lines import (
    append,
    checkpoint,
    clear,
    compact,
    compact_begin,
    revert,
    user,
)
from support.writing import Desk, Sent

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("commit_mode")]

T = TypeVar("T")

SUMMARY = user("so far")


def compactions_at(desk: Desk) -> Compactions:
    return Compactions(desk.services)


async def fill(desk: Desk) -> None:
    """Four messages and a checkpoint."""
    for number in range(4):
        await desk.do(append(f"k{number}"), user(str(number)))
    await desk.do(checkpoint("c0"))


async def commit(desk: Desk, answer: Compaction, key: str = "commit") -> Sent:
    named = compact(key, answer.cut, answer.at, answer.checkpoint_id)
    return await desk.do(named, SUMMARY)


def ids(desk: Desk) -> list[int]:
    records = map(json.loads, desk.file().splitlines())
    return [record["id"] for record in records if record["role"] == "_checkpoint"]


# --- leases --------------------------------------------------------------------------------------


async def test_a_second_compactor_learns_the_holder_and_the_lease_time() -> None:
    async with Desk().open() as desk:
        await fill(desk)
        compactions = compactions_at(desk)
        answer = await compactions.begin(desk.writer, compact_begin("a", by="worker-1"))
        assert (answer.at, answer.cut, answer.messages) == ("0:5", "0:2", 2)
        assert (answer.checkpoint_id, answer.lease_ms) == (1, 60_000)
        desk.now_s += 20

        with pytest.raises(Busy, match=r"worker-1 is compacting the session \(lease a, 40 s left"):
            await compactions.begin(desk.writer, compact_begin("b"))


async def test_a_lease_is_renewed_by_asking_again_and_gets_the_same_answer() -> None:
    async with Desk().open() as desk:
        await fill(desk)
        compactions = compactions_at(desk)
        first = await compactions.begin(desk.writer, compact_begin("a", lease_ms=10_000))
        for _ in range(5):
            desk.now_s += 9
            await desk.do(append(f"m{desk.now_s}"), user("meanwhile"))
            again = await compactions.begin(desk.writer, compact_begin("a", lease_ms=10_000))
            assert again == first
            with pytest.raises(Busy):
                await compactions.begin(desk.writer, compact_begin("b"))


async def test_expired_lease_blocks_no_compaction_and_its_commit_is_still_valid() -> None:
    async with Desk().open() as desk:
        await fill(desk)
        compactions = compactions_at(desk)
        first = await compactions.begin(desk.writer, compact_begin("a"))
        desk.now_s += 61
        second = await compactions.begin(desk.writer, compact_begin("b"))
        assert second.checkpoint_id == first.checkpoint_id + 1

        assert (await commit(desk, first, "a")).ack.checkpoint_id == 1
        late = await commit(desk, second, "b")

        assert isinstance(late.error, Conflict)
        assert late.error.head == "1:5"


async def test_a_compaction_begin_without_its_timeline_entry_reserves_no_id() -> None:
    async with Desk().open() as desk:
        await fill(desk)
        compactions = compactions_at(desk)
        desk.disk.fail_next("write", errno.EIO, name="timeline.jsonl")
        with pytest.raises(OSError, match="Input/output"):
            await compactions.begin(desk.writer, compact_begin("a"))

        assert (await desk.do(checkpoint("next"))).ack.checkpoint_id == 1


@pytest.mark.parametrize("rewrite", [clear("r"), revert("r", 0)], ids=["clear", "revert"])
async def test_a_rewrite_ends_a_compaction_and_its_lease(rewrite: Any) -> None:
    async with Desk().open() as desk:
        await fill(desk)
        compactions = compactions_at(desk)
        answer = await compactions.begin(desk.writer, compact_begin("a"))
        await desk.do(rewrite)
        before = desk.file()

        assert isinstance((await commit(desk, answer)).error, Conflict)
        assert desk.file() == before
        await desk.do(append("m"), user("5"), user("6"), user("7"))
        assert (await compactions.begin(desk.writer, compact_begin("b"))).at.startswith("1:")


@pytest.mark.parametrize(
    ("preserve", "why"), [(4, "nothing before the last 4"), (0, "remove the task")]
)
async def test_where_there_is_nothing_to_do_there_is_no_lease_and_no_id(
    preserve: int, why: str
) -> None:
    async with Desk().open() as desk:
        await fill(desk)
        compactions = compactions_at(desk)
        timeline = desk.file("timeline.jsonl")

        answer = await compactions.begin(desk.writer, compact_begin("a", preserve=preserve))

        assert (answer.messages, answer.at, answer.cut) == (0, "0:5", "0:0")
        assert why in (answer.why or "")
        assert desk.file("timeline.jsonl") == timeline
        assert (await compactions.begin(desk.writer, compact_begin("b"))).checkpoint_id == 1


async def test_late_failure_of_a_look_keeps_the_next_compactors_lease() -> None:
    async with Desk().open() as desk:
        await fill(desk)
        release = anyio.Event()
        looks = 0

        async def run(work: Callable[[], T]) -> T:
            nonlocal looks
            looks += 1
            if looks == 1:
                await release.wait()
                raise OSError(5, "unreadable")
            return work()

        compactions = Compactions(replace(desk.services, read=run))
        failed: list[BaseException] = []

        async def look() -> None:
            try:
                await compactions.begin(desk.writer, compact_begin("a"))
            except OSError as error:
                failed.append(error)

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(look)
            await desk.settle()
            with pytest.raises(Busy):
                await compactions.begin(desk.writer, compact_begin("b"))
            desk.now_s += 61
            await compactions.begin(desk.writer, compact_begin("b"))
            release.set()

        assert len(failed) == 1
        with pytest.raises(Busy, match="lease b"):
            await compactions.begin(desk.writer, compact_begin("c"))


async def test_files_that_are_closed_during_the_look_are_opened_again() -> None:
    async with Desk().open() as desk:
        await fill(desk)
        looks = 0

        async def run(work: Callable[[], T]) -> T:
            nonlocal looks
            looks += 1
            if looks == 1:
                desk.writer._files.abandon()
            return work()

        compactions = Compactions(replace(desk.services, read=run))

        answer = await compactions.begin(desk.writer, compact_begin("a"))

        assert (answer.cut, looks) == ("0:2", 2)
        assert (await commit(desk, answer)).ack.head == "1:5"


async def test_a_session_that_is_rewritten_again_and_again_is_left_for_later() -> None:
    async with Desk().open() as desk:
        await fill(desk)

        async def run(work: Callable[[], T]) -> T:
            await desk.do(clear(f"c{desk.now_s}"))
            desk.now_s += 1
            return work()

        compactions = Compactions(replace(desk.services, read=run))
        with pytest.raises(Conflict, match="repeatedly"):
            await compactions.begin(desk.writer, compact_begin("a"))


# --- concurrent records --------------------------------------------------------------------------


@pytest.mark.parametrize("turns", range(12))
async def test_checkpoint_ids_rise_beside_pending_commands_when_a_compaction_begins(
    turns: int,
) -> None:
    async with Desk().open() as desk:
        await fill(desk)
        sent = [desk.send(checkpoint(f"x{number}")) for number in range(2)]
        await desk.settle(turns)
        begun: list[Compaction] = []

        async def begin() -> None:
            begun.append(await compactions_at(desk).begin(desk.writer, compact_begin("a")))
            desk.changed()

        desk.spawn(begin)
        for number in range(6):
            sent.append(desk.send(checkpoint(f"y{number}"), *()))
            await desk.settle(1)
        await desk.wait_for(lambda: bool(begun) and sent[-1].answer is not None)

        done = await commit(desk, begun[0])

        assert ids(desk)[0] == done.ack.checkpoint_id
        assert ids(desk) == sorted(set(ids(desk)))
        assert (await desk.do(checkpoint("next"))).ack.checkpoint_id == ids(desk)[-2] + 1
