"""The writer task: groups, their order, and replies only after the sync."""

import errno
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from steno_protocol import limits, paths
from steno_protocol.errors import (
    BadRequest,
    Busy,
    Conflict,
    Expired,
    OutcomeUnknown,
    ShuttingDown,
    StorageFailed,
)
from steno_protocol.replies import Ack
from stenod.core.keys import KeyTable
from stenod.core.recovery_point import decode_recovery_point
from stenod.store.jsonl import JsonlLog
from support.lines import append, checkpoint, clear, foreign, prompt, revert, usage, user, uuid7
from support.simulated_disk import Effect, SimulatedDisk, Survival
from support.stored_session import NOW_S, fresh_key
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


async def test_answers_come_in_the_order_of_the_commands_and_leave_together() -> None:
    async with Desk().open() as desk:
        sent = [
            desk.send(append("a"), user("a")),
            desk.send(checkpoint("c")),
            desk.send(append("a", repeat=True), user("a")),
            desk.send(usage("u", 5)),
        ]
        await desk.wait_for(lambda: sent[-1].answer is not None)
        await desk.settle()

        assert desk.answered == sent
        assert set(desk.flushes) <= {0, 4}


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


async def test_rewrite_keeps_its_place_among_the_commands() -> None:
    async with Desk().open() as desk:
        sent = [
            desk.send(append("k1"), user("one")),
            desk.send(checkpoint("c0")),
            desk.send(append("k2"), user("two")),
            desk.send(revert("r", 0)),
            desk.send(append("k3"), user("three")),
            desk.send(prompt("p", "be kind")),
            desk.send(append("k4"), user("four")),
        ]
        await desk.wait_for(lambda: sent[-1].answer is not None)

        assert answers(sent) == ["0:0", "0:1", "0:2", "1:1", "1:1", "2:3", "2:3"]
        assert desk.answered == sent
        texts = (b"be kind", b"one", b"three", b"four")
        for text, line in zip(texts, desk.file().splitlines(), strict=True):
            assert text in line


async def test_one_bad_command_does_not_harm_its_group() -> None:
    async with Desk().open() as desk:
        sent = [
            desk.send(append("k1"), user("one")),
            desk.send(append("bad"), b"{"),
            desk.send(append("late", expect="0:0"), user("x")),
            desk.send(append("k2"), user("two")),
        ]
        await desk.wait_for(lambda: sent[-1].answer is not None)

        assert isinstance(sent[1].error, BadRequest)
        assert isinstance(sent[2].error, Conflict)
        assert sent[2].error.head == "0:1"
        assert [sent[0].ack.first, sent[3].ack.first] == ["0:0", "0:1"]


async def test_an_old_key_is_looked_up_in_the_files() -> None:
    async with Desk().open() as desk:
        key = uuid7(int(NOW_S * 1000) - 5, 1)
        first = await desk.do(append(key), user("one"))
        desk.writer.opened.machine.keys._forget_oldest(1)  # type: ignore[union-attr]

        again = await desk.do(append(key, repeat=True), user("one"))

        assert again.ack.duplicate
        assert again.ack.first == first.ack.first
        assert desk.file().count(b"\n") == 1


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


@pytest.mark.parametrize("effect", Effect, ids=lambda effect: effect.value)
@pytest.mark.parametrize("method", ["write", "fdatasync"])
async def test_a_group_that_cannot_be_stored_is_taken_back_and_refused(
    method: str, effect: Effect
) -> None:
    async with Desk().open() as desk:
        await desk.do(append("k1"), user("one"))
        _, reader = desk.subscribe("0:1")
        before = desk.file()
        desk.disk.fail_next(method, errno.EIO, name=paths.CONTEXT, effect=effect)

        sent = [desk.send(append(f"f{number}"), user("lost")) for number in range(3)]
        await desk.wait_for(lambda: sent[-1].answer is not None)

        for one in sent:
            assert isinstance(one.error, StorageFailed)
        assert desk.file() == desk.durable() == before
        assert reader.data == b""
        again = await desk.do(append("f0", repeat=True), user("found"))
        assert (again.ack.first, again.ack.duplicate) == ("0:1", False)
        desk.disk.crash(Survival.LOST)
        assert desk.stored.open().machine.head.line == 2


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


async def test_foreign_lines_after_a_failed_sync_are_durable_before_ours() -> None:
    disk = SimulatedDisk()
    disk.foreign.make_folder(PATH)
    disk.sync_all()
    theirs = foreign("theirs")
    disk.foreign.replace(FILE, theirs)
    disk.fail_next("fsync", errno.EIO, name=paths.CONTEXT)
    async with Desk(disk).open(lazy=True) as desk:
        refused = await desk.do(append(fresh_key()), user("one"))
        assert isinstance(refused.error, StorageFailed)

        assert (await desk.do(append(fresh_key()), user("one"))).ack.first == "0:1"

        # The pages dropped by the failed sync are still shown by the page cache, until it is
        # given back for something else.
        disk.evict(FILE)
        assert desk.file().startswith(theirs)
        assert desk.durable() == desk.file()


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


async def test_duplicate_with_a_displaced_key_does_not_fail(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(KeyTable.__init__, "__defaults__", (2,))
    async with Desk().open() as desk:
        first = [await desk.do(append(f"k{number}"), user("x")) for number in range(3)]
        desk.disk.fail_next("write", errno.EIO, name=paths.CONTEXT)

        again = [desk.send(append(f"k{number}", repeat=True), user("x")) for number in (1, 0)]
        lost = desk.send(append("k3"), user("lost"))
        await desk.wait_for(lambda: lost.answer is not None)

        assert isinstance(lost.error, StorageFailed)
        assert [one.ack.first for one in again] == [first[1].ack.first, first[0].ack.first]


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


async def test_a_rewrite_that_fails_before_its_rename_did_not_happen() -> None:
    async with Desk().open() as desk:
        await desk.do(append("k1"), user("one"))
        desk.disk.fail_next("rename", errno.EIO, name=paths.REWRITE)

        failed = await desk.do(clear("c"))

        assert isinstance(failed.error, StorageFailed)
        done = await desk.do(clear("c", repeat=True))
        assert (done.ack.head, done.ack.duplicate) == ("1:0", False)


async def test_a_rewrite_that_fails_after_its_rename_is_reported_as_done() -> None:
    async with Desk().open() as desk:
        await desk.do(append("k1"), user("one"))
        desk.disk.fail_next("rename", errno.EIO, name=paths.REWRITE, effect=Effect.WHOLE)

        done = await desk.do(clear("c"))

        assert (done.ack.head, done.ack.duplicate) == ("1:0", False)
        again = await desk.do(clear("c", repeat=True))
        assert (again.ack.head, again.ack.duplicate) == ("1:0", True)


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


async def test_written_is_synced_by_itself_before_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "WRITTEN_SYNC_S", 0.0)
    monkeypatch.setattr(limits, "LIVE_SYNC_S", 0.0)
    async with Desk().open() as desk:
        _, reader = desk.subscribe()
        await desk.do(append("w", durability="written"), user("soon"))

        await desk.wait_for(lambda: reader.data != b"")

        assert desk.durable() == reader.data == desk.file()


async def test_a_repeat_of_a_written_command_is_answered_once_it_is_synced() -> None:
    async with Desk().open() as desk:
        await desk.do(append("w", durability="written"), user("soon"))

        again = await desk.do(append("w", durability="written", repeat=True), user("soon"))

        assert again.ack.duplicate
        assert again.ack.durability == "synced"
        assert b'"w"' in again.durable_then


async def test_failed_sync_takes_the_written_lines_back() -> None:
    async with Desk().open() as desk:
        written = await desk.do(append("w", durability="written"), user("soon"))
        desk.disk.fail_next("fdatasync", errno.EIO, name=paths.CONTEXT)

        failed = await desk.do(append("s"), user("now"))

        assert written.ack.durability == "written"
        assert isinstance(failed.error, StorageFailed)
        assert desk.file() == b""
        again = await desk.do(append("w", repeat=True), user("soon"))
        assert (again.ack.first, again.ack.duplicate) == ("0:0", False)


@pytest.mark.parametrize("effect", Effect, ids=lambda effect: effect.value)
async def test_failed_write_leaves_the_lines_before_it(effect: Effect) -> None:
    async with Desk().open() as desk:
        await desk.do(append("k1"), user("one"))
        for number in range(2):
            await desk.do(append(f"w{number}", durability="written"), user("soon"))
        before = desk.file()
        desk.disk.fail_next("write", errno.ENOSPC, name=paths.CONTEXT, effect=effect)

        again = desk.send(append("w1", durability="written", repeat=True), user("soon"))
        lost = desk.send(append("k2"), user("lost"))
        twice = desk.send(append("k2", repeat=True), user("lost"))
        await desk.wait_for(lambda: twice.answer is not None)

        assert isinstance(lost.error, StorageFailed)
        assert isinstance(twice.error, StorageFailed)
        assert (again.ack.first, again.ack.duplicate) == ("0:2", True)
        assert desk.file() == desk.durable() == before
        _, reader = desk.subscribe("0:1")
        assert (await desk.do(append("k2", repeat=True), user("found"))).ack.first == "0:3"
        await desk.wait_for(lambda: reader.data.count(b"\n") == 3)
        desk.disk.crash(Survival.LOST)
        assert desk.stored.open().machine.head.line == 4


async def test_followers_receive_the_records_that_a_failed_write_left() -> None:
    async with Desk().open() as desk:
        await desk.do(append("k1"), user("one"))
        _, reader = desk.subscribe("0:1")
        await desk.do(append("w", durability="written"), user("soon"))
        assert reader.data == b""
        desk.disk.fail_next("write", errno.ENOSPC, name=paths.CONTEXT)
        await desk.do(append("k2"), user("lost"))
        await desk.do(append("k3"), user("later"))
        await desk.wait_for(lambda: reader.data.count(b"\n") == 2)

        assert [b"soon" in each for each in reader.data.splitlines()] == [True, False]


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


async def test_written_lines_are_synced_when_the_writer_ends() -> None:
    desk = Desk()
    async with desk.open():
        await desk.do(append("w", durability="written"), user("soon"))

    assert desk.durable().count(b"\n") == 1
    assert desk.writer.opened is None
    assert not desk.disk._handles


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


async def test_a_line_behind_ours_moves_nothing() -> None:
    async with Desk().open() as desk:
        desk.commits.after = lambda: desk.disk.foreign.append(FILE, foreign("theirs"))

        sent = await desk.do(append("k1"), user("one"))
        desk.commits.after = lambda: None

        assert sent.ack.first == "0:0"
        assert (await desk.do(append("k2"), user("two"))).ack.first == "0:2"


async def test_a_file_that_was_replaced_is_kept_as_a_generation() -> None:
    async with Desk().open() as desk:
        _, reader = desk.subscribe()
        await desk.do(append("k1"), user("one"))
        mine = desk.file()
        desk.disk.foreign.replace(FILE, foreign("theirs"))

        sent = await desk.do(append("k2"), user("two"))
        await desk.wait_for(lambda: reader.data.count(b"\n") == 3)

        assert sent.ack.first == "1:1"
        assert desk.file("context_1.jsonl") == mine
        assert "Reset" in reader.kinds
        assert (await desk.do(append("k1", repeat=True), user("one"))).ack.first == "0:0"


async def test_a_file_that_was_replaced_between_look_and_write_is_kept_too() -> None:
    async with Desk().open() as desk:
        await desk.do(append("k1"), user("one"))
        between_look_and_write(desk, lambda: desk.disk.foreign.replace(FILE, foreign("theirs")))

        sent = await desk.do(append("k2"), user("two"))

        assert isinstance(sent.error, OutcomeUnknown)
        for key, text in (("k1", "one"), ("k2", "two")):
            assert (await desk.do(append(key, repeat=True), user(text))).ack.duplicate


async def test_a_rotation_as_kimi_cli_makes_it_is_a_generation() -> None:
    async with Desk().open() as desk:
        await desk.do(append("k1"), user("one"))
        desk.disk.foreign.rename(FILE, "context_1.jsonl")
        desk.disk.foreign.replace(FILE, b"")

        sent = await desk.do(append("k2"), user("two"))

        assert sent.ack.first == "1:0"
        assert (await desk.do(append("k1", repeat=True), user("one"))).ack.first == "0:0"


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


async def test_rewrite_conflicts_after_a_foreign_change() -> None:
    async with Desk().open() as desk:
        await desk.do(append("k1"), user("one"))
        between_look_and_write(desk, lambda: desk.disk.foreign.append(FILE, foreign("theirs")))

        desk.send(append("k2"), user("two"))
        rewrite = desk.send(clear("c", expect="0:2"))
        await desk.wait_for(lambda: rewrite.answer is not None)

        assert isinstance(rewrite.error, Conflict)
        assert rewrite.error.head == "0:3"


async def test_next_command_looks_again_at_an_unreadable_folder() -> None:
    async with Desk().open() as desk:
        await desk.do(append("k1"), user("one"))
        desk.disk.foreign.replace(FILE, foreign("theirs"))
        desk.disk.fail_next("names", errno.EIO)

        refused = await desk.do(append(fresh_key()), user("two"))

        assert isinstance(refused.error, StorageFailed)
        assert (await desk.do(append(fresh_key(), repeat=True), user("two"))).answer is not None


# --- bounds --------------------------------------------------------------------------------------


async def test_a_command_past_its_deadline_is_not_applied() -> None:
    async with Desk().open() as desk:
        late = desk.send(append("k1"), user("late"), deadline_s=desk.now_s - 1)
        in_time = desk.send(append("k2"), user("in time"), deadline_s=desk.now_s + 1)
        await desk.wait_for(lambda: in_time.answer is not None)

        assert isinstance(late.error, Expired)
        assert in_time.ack.first == "0:0"


@pytest.mark.parametrize("is_opened_again", [False, True])
async def test_late_repeat_gets_its_first_reply(*, is_opened_again: bool) -> None:
    first = Desk()
    async with first.open() as desk:
        ack = (await desk.do(append("k1"), user("one"))).ack
        repeated = None if is_opened_again else await _late_repeat(desk)
    if is_opened_again:
        async with Desk(first.disk).open() as desk:
            repeated = await _late_repeat(desk)

    assert repeated == msgspec.structs.replace(ack, duplicate=True)


async def _late_repeat(desk: Desk) -> Ack:
    """The reply to a late repeat with an old expectation."""
    late = desk.send(
        append("k1", repeat=True, expect="7:7"), user("one"), deadline_s=desk.now_s - 1
    )
    await desk.wait_for(lambda: late.answer is not None)
    return late.ack


async def test_a_full_mailbox_is_busy_and_takes_nothing() -> None:
    async with Desk().open() as desk:
        for number in range(limits.MAILBOX_COMMANDS_MAX):
            desk.send(append(f"k{number}"), user("x"))

        with pytest.raises(Busy):
            desk.send(append("one too many"), user("x"))

        await desk.wait_for(lambda: len(desk.answered) == limits.MAILBOX_COMMANDS_MAX)
        assert (await desk.do(append("again"), user("x"))).ack


async def test_bytes_that_wait_are_bounded_too() -> None:
    async with Desk().open() as desk:
        desk.send(append("k1"), user("x"), size=limits.MAILBOX_BYTES_MAX)

        with pytest.raises(Busy):
            desk.send(append("k2"), user("x"))
        await desk.settle()

        assert (await desk.do(append("k2"), user("x"))).ack


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


async def test_a_retired_writer_opens_nothing_any_more() -> None:
    async with Desk().open() as desk:
        desk.writer.retire()
        await desk.settle()

        with pytest.raises(ShuttingDown):
            await desk.writer.open()

        assert not desk.disk._handles


async def test_an_idle_session_costs_no_handle_and_comes_back_from_its_mark() -> None:
    desk = Desk()
    async with desk.open():
        await desk.do(append("k1"), user("one"))
        await desk.settle()
        assert desk.writer.is_idle
        desk.writer.retire()
        assert not desk.disk._handles

    assert desk.stored.file(paths.MARK) != b""
    assert desk.stored.open().machine.head.line == 1


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
