"""The writer task: groups, their order, and replies only after the sync."""

import errno
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from steno_protocol import limits, paths
from steno_protocol.errors import (
    Busy,
    Expired,
    OutcomeUnknown,
    ShuttingDown,
    StorageFailed,
)
from stenod.core.recovery_point import decode_recovery_point
from stenod.store.jsonl import JsonlLog
from support.lines import append, clear, foreign, user, uuid7
from support.simulated_disk import Effect, SimulatedDisk
from support.stored_session import NOW_S
from support.writing import PATH, Desk, answers

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("commit_mode")]


def between_look_and_write(desk: Desk, interfere: Callable[[], None]) -> None:
    """Let another program come between the writer's next write and its look at the file before."""
    write = desk.disk.write

    def interrupted(handle: int, data: bytes) -> int:
        vars(desk.disk).pop("write")
        interfere()
        return write(handle, data)

    vars(desk.disk)["write"] = interrupted


FILE = f"{PATH}/{paths.CONTEXT}"


def syncs(disk: SimulatedDisk) -> int:
    return sum(call.method == "fdatasync" and call.name == paths.CONTEXT for call in disk.calls)


def writes(disk: SimulatedDisk) -> int:
    return sum(call.method == "write" and call.name == paths.CONTEXT for call in disk.calls)


# --- groups --------------------------------------------------------------------------------------


async def test_waiting_commands_share_one_write_and_one_sync() -> None:
    async with Desk().open() as desk:
        before = writes(desk.disk), syncs(desk.disk)
        sent = [desk.send(append(f"k{number}"), user(str(number))) for number in range(50)]
        await desk.wait_for(lambda: sent[-1].answer is not None)

        assert (writes(desk.disk), syncs(desk.disk)) == (before[0] + 1, before[1] + 1)
        assert answers(sent) == [f"0:{number}" for number in range(50)]


async def test_nothing_is_answered_or_published_before_it_is_durable() -> None:
    async with Desk().open() as desk:
        _, reader = desk.subscribe()
        await desk.wait_for(lambda: "Live" in reader.kinds)
        sent = []

        def check() -> None:
            assert desk.durable().startswith(reader.data)

        desk.changed = check  # type: ignore[method-assign]
        for number in range(20):
            sent.append(desk.send(append(f"k{number}"), user(str(number))))
            if number % 3 == 0:
                await desk.settle()
        await desk.settle()

        for number, one in enumerate(sent):
            assert f'"k{number}"'.encode() in one.durable_then
        assert reader.data == desk.durable()


async def test_a_foreign_file_is_scanned_once_and_the_recovery_point_remembers_it() -> None:
    disk = SimulatedDisk()
    disk.plant(FILE, foreign("theirs"))
    async with Desk(disk=disk).open() as desk:
        assert not desk.writer.opened.machine.keys.knows_youngest  # type: ignore[union-attr]
        await desk.do(append(uuid7(int(NOW_S * 1000) - 5, 1)), user("one"))
        await desk.settle()

        mark = decode_recovery_point(desk.file(paths.MARK))
        assert mark is not None
        assert mark.youngest_key_ms == int(NOW_S * 1000) - 5


# --- failures ------------------------------------------------------------------------------------


async def test_a_group_that_cannot_be_taken_back_is_unknown_and_never_believed_unsynced() -> None:
    async with Desk().open() as desk:
        await desk.do(append("k1"), user("one"))
        desk.disk.fail_next("fdatasync", errno.EIO, name=paths.CONTEXT)
        desk.disk.fail_next("truncate", errno.EIO, name=paths.CONTEXT)

        lost = await desk.do(append("k2"), user("two"))

        assert isinstance(lost.error, OutcomeUnknown)
        assert lost.error.key == "k2"
        # The page cache still shows the line, and every further sync would succeed over it.
        again = await desk.do(append("k2", repeat=True), user("two"))
        assert again.ack.duplicate
        assert desk.durable() == desk.file()
        assert desk.durable().count(b'"k2"') == 1


async def test_a_duplicate_of_an_applied_command_is_no_failure_when_its_group_fails() -> None:
    async with Desk().open() as desk:
        first = await desk.do(append("k1"), user("one"))
        desk.writer.opened.machine.keys._forget_oldest(1)  # type: ignore[union-attr]
        desk.disk.fail_next("write", errno.EIO, name=paths.CONTEXT)

        again = desk.send(append("k1", repeat=True), user("one"))
        lost = desk.send(append("k2"), user("two"))
        await desk.wait_for(lambda: lost.answer is not None)

        assert isinstance(lost.error, StorageFailed)
        assert again.ack.duplicate
        assert again.ack.first == first.ack.first


async def test_a_full_disk_refuses_and_heals_by_itself() -> None:
    async with Desk().open() as desk:
        await desk.do(append("k1"), user("one"))
        desk.disk.free_bytes = 20

        full = await desk.do(append("k2"), user("two"))

        assert isinstance(full.error, StorageFailed)
        assert "No space left" in full.error.message
        desk.disk.free_bytes = None
        healed = await desk.do(append("k2", repeat=True), user("two"))
        assert healed.ack.first == "0:1"
        assert desk.file().count(b"\n") == 2


async def test_a_rewrite_behind_a_group_that_failed_is_not_made() -> None:
    async with Desk().open() as desk:
        await desk.do(append("k1"), user("one"))
        desk.disk.fail_next("fdatasync", errno.EIO, name=paths.CONTEXT)

        lost, rewrite = desk.send(append("k2"), user("two")), desk.send(clear("c"))
        await desk.wait_for(lambda: rewrite.answer is not None)

        assert isinstance(lost.error, StorageFailed)
        assert isinstance(rewrite.error, StorageFailed)
        assert desk.file().count(b"\n") == 1


# --- written -------------------------------------------------------------------------------------


async def test_written_is_acked_at_once_and_published_when_it_is_synced(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with Desk().open() as desk:
        _, reader = desk.subscribe()
        written = await desk.do(append("w", durability="written"), user("soon"))

        assert written.ack.durability == "written"
        assert desk.durable() == b""
        assert reader.data == b""
        synced = await desk.do(append("s"), user("now"))
        assert synced.ack.durability == "synced"
        assert synced.ack.first == "0:1"
        await desk.wait_for(lambda: reader.data.count(b"\n") == 2)
        assert desk.durable() == reader.data


async def test_a_repeat_of_a_written_command_is_answered_once_it_is_synced() -> None:
    async with Desk().open() as desk:
        await desk.do(append("w", durability="written"), user("soon"))

        again = await desk.do(append("w", durability="written", repeat=True), user("soon"))

        assert again.ack.duplicate
        assert again.ack.durability == "synced"
        assert b'"w"' in again.durable_then


async def test_failed_write_and_sync_take_all_lines_back() -> None:
    async with Desk().open() as desk:
        await desk.do(append("w", durability="written"), user("soon"))
        desk.disk.fail_next("write", errno.EIO, name=paths.CONTEXT, effect=Effect.WHOLE)
        desk.disk.fail_next("fdatasync", errno.EIO, name=paths.CONTEXT)

        failed = await desk.do(append("s"), user("now"))

        assert isinstance(failed.error, StorageFailed)
        assert desk.file() == b""
        again = await desk.do(append("w", repeat=True), user("soon"))
        assert (again.ack.first, again.ack.duplicate) == ("0:0", False)


# --- other programs ------------------------------------------------------------------------------


async def test_lines_that_another_program_appended_before_are_taken_in() -> None:
    async with Desk().open() as desk:
        _, reader = desk.subscribe()
        await desk.do(append("k1"), user("one"))
        desk.disk.foreign.append(FILE, foreign("theirs"))

        sent = await desk.do(append("k2"), user("two"))
        await desk.wait_for(lambda: reader.data.count(b"\n") == 3)

        assert sent.ack.first == "0:2"
        assert reader.data == desk.file()
        assert "foreign" in [entry.kind for entry in desk.stored.timeline()]


@pytest.mark.parametrize("durability", ["synced", "written"])
@pytest.mark.parametrize("theirs", [foreign("x"), foreign("theirs" * 50), foreign("x") * 3])
async def test_lines_that_another_program_appended_between_look_and_write_shift_ours(
    theirs: bytes, durability: Any
) -> None:
    async with Desk().open() as desk:
        _, reader = desk.subscribe()
        await desk.do(append("k1"), user("one"))
        before = await desk.do(append("w", durability="written"), user("unsynced"))
        between_look_and_write(desk, lambda: desk.disk.foreign.append(FILE, theirs))

        sent = desk.send(append("k2", durability=durability), user("two"), user("three"))
        expecting = desk.send(append("k3", expect="0:4", durability=durability), user("four"))
        await desk.wait_for(lambda: expecting.answer is not None)
        await desk.wait_for(lambda: reader.data == desk.file())

        lines = desk.file().splitlines()
        assert before.ack.first == "0:1"
        assert b'"k2.0/2"' in lines[int(sent.ack.first[2:])]
        assert b'"k2.1/2"' in lines[int(sent.ack.last[2:])]
        assert b'"k3"' in lines[int(expecting.ack.first[2:])]
        assert expecting.ack.overtaken
        assert not sent.ack.overtaken
        assert expecting.ack.head == f"0:{len(lines)}"
        assert desk.durable() == desk.file()


async def test_half_line_before_a_write_makes_its_outcome_unknown() -> None:
    async with Desk().open() as desk:
        await desk.do(append("k1"), user("one"))
        between_look_and_write(desk, lambda: desk.disk.foreign.append(FILE, b'{"role":"us'))

        sent = [desk.send(append(f"g{number}"), user("mine")) for number in range(2)]
        await desk.wait_for(lambda: sent[-1].answer is not None)

        for one in sent:
            assert isinstance(one.error, OutcomeUnknown)
        for number in range(2):
            again = await desk.do(append(f"g{number}", repeat=True), user("mine"))
            line = desk.file().splitlines()[int(again.ack.first[2:])]
            assert line == b'{"role":"user","content":"mine","_id":"g%d"}' % number
        assert desk.file().count(b'\n{"role":"user","content":"mine","_id":"g0"}') == 1


async def test_cut_file_is_adopted_and_followers_start_over() -> None:
    async with Desk().open() as desk:
        _, reader = desk.subscribe()
        await desk.do(append("k1"), user("one"))
        kept = len(desk.file())
        await desk.do(append("k2"), user("two"))
        await desk.wait_for(lambda: reader.data.count(b"\n") == 2)
        desk.disk.foreign.truncate(FILE, kept)

        sent = await desk.do(append("k3"), user("three"))
        await desk.wait_for(lambda: b"three" in reader.data)

        assert sent.ack.first == "0:1"
        last_reset = len(reader.kinds) - 1 - reader.kinds[::-1].index("Reset")
        assert b"".join(block or b"" for _, block in reader.events[last_reset:]) == desk.file()


# --- bounds --------------------------------------------------------------------------------------


async def test_a_command_past_its_deadline_is_not_applied() -> None:
    async with Desk().open() as desk:
        late = desk.send(append("k1"), user("late"), deadline_s=desk.now_s - 1)
        in_time = desk.send(append("k2"), user("in time"), deadline_s=desk.now_s + 1)
        await desk.wait_for(lambda: in_time.answer is not None)

        assert isinstance(late.error, Expired)
        assert in_time.ack.first == "0:0"


async def test_a_full_mailbox_is_busy_and_takes_nothing() -> None:
    async with Desk().open() as desk:
        for number in range(limits.MAILBOX_COMMANDS_MAX):
            desk.send(append(f"k{number}"), user("x"))

        with pytest.raises(Busy):
            desk.send(append("one too many"), user("x"))

        await desk.wait_for(lambda: len(desk.answered) == limits.MAILBOX_COMMANDS_MAX)
        assert (await desk.do(append("again"), user("x"))).ack


async def test_a_group_is_no_larger_than_its_limit() -> None:
    async with Desk().open() as desk:
        half = limits.GROUP_BYTES_MAX // 2 + 1
        before = syncs(desk.disk)
        sent = [desk.send(append(f"k{number}"), user("x"), size=half) for number in range(2)]
        await desk.wait_for(lambda: sent[-1].answer is not None)

        assert syncs(desk.disk) == before + 2


async def test_a_flood_is_served_in_groups_between_which_others_have_their_turn() -> None:
    async with Desk().open() as desk:
        before = syncs(desk.disk)
        count = 2 * limits.GROUP_COMMANDS_MAX
        sent = [desk.send(append(f"k{number}"), user("x")) for number in range(count)]
        await desk.wait_for(lambda: sent[0].answer is not None)
        assert sent[-1].answer is None
        await desk.wait_for(lambda: sent[-1].answer is not None)

        assert syncs(desk.disk) == before + 2


async def test_closed_mailbox_serves_its_commands_and_accepts_no_more() -> None:
    desk = Desk()
    async with desk.open():
        sent = desk.send(append("k1"), user("one"))
        desk.writer.mailbox.close()
        with pytest.raises(ShuttingDown):
            desk.send(append("k2"), user("two"))
        await desk.wait_for(lambda: sent.answer is not None)

    assert sent.ack.first == "0:0"


# --- opening and closing -------------------------------------------------------------------------


async def test_a_writer_is_not_idle_while_its_files_are_being_opened() -> None:
    async with Desk().open() as desk:
        desk.writer._files.abandon()
        seen: list[bool] = []
        read = desk._read

        async def watched(work: Any) -> Any:
            seen.append(desk.writer.is_idle)
            return await read(work)

        msgspec.structs.force_setattr(desk.services, "read", watched)
        await desk.writer.open()

        assert seen == [False]


async def test_a_view_of_closed_files_is_an_error_and_no_other_file() -> None:
    async with Desk().open() as desk:
        opened = desk.writer.opened
        assert opened is not None
        log: JsonlLog = opened.log
        desk.writer._files.abandon()

        with pytest.raises(OSError, match="were closed"):
            log.view(0)
        with pytest.raises(OSError, match="were closed"):
            log.view(1)


async def test_written_lines_are_synced_when_the_writer_ends() -> None:
    desk = Desk()
    async with desk.open():
        await desk.do(append("w", durability="written"), user("soon"))

    assert desk.durable().count(b"\n") == 1
    assert desk.writer.opened is None
    assert not desk.disk._handles
