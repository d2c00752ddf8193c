"""Outcomes of repeats to deleted sessions and without a key lookup."""

import errno

import anyio.lowlevel
import pytest

from steno_protocol import limits, paths
from steno_protocol.commands import Command, Delete, Fork, Open
from steno_protocol.replies import Ack, Compaction, Deleted, ErrorReply, SessionStat
from support.asking import ask, ask_for, close_all, send
from support.daemon_in_process import ROOT, DaemonInProcess
from support.lines import append, compact, compact_begin, user
from support.simulated_disk import SimulatedDisk
from support.stored_session import fresh_key

pytestmark = pytest.mark.anyio

TRASH = f"{ROOT}/{paths.SESSIONS}/{paths.TRASH}"
OPEN = Open(session="demo")
DELETE = Delete(session="demo", key="d")
FORK = Fork(session="demo", new_session="copy", key="f")
SUMMARY = user("so far")
FIRST, AGAIN = append("k"), append("k", repeat=True)
NEVER_SENT = append("other", repeat=True)


async def refusal(
    daemon: DaemonInProcess, name: str, command: Command, *records: bytes
) -> tuple[str, str]:
    """Code and outcome of the error that a command is answered with."""
    answer = await ask_for(ErrorReply, daemon, name, command, *records)
    return answer.code, answer.outcome


async def test_repeat_to_a_deleted_session_has_an_unknown_outcome() -> None:
    daemon = DaemonInProcess(SimulatedDisk())
    async with daemon.running():
        await ask(daemon, "o", OPEN)
        assert isinstance(await ask(daemon, "a", FIRST, user("one")), Ack)
        assert isinstance(await ask(daemon, "d", DELETE), Deleted)

        refused = await refusal(daemon, "again", AGAIN, user("one"))
        assert refused == ("not_found", "unknown")
        # The daemon does not search the trash, so a new key is not distinguished from a used one.
        refused = await refusal(daemon, "never", NEVER_SENT, user("two"))
        assert refused == ("not_found", "unknown")
        # A key of another shape than steno's own shows no time, with or without `repeat`.
        refused = await refusal(daemon, "own", FIRST, user("one"))
        assert refused == ("not_found", "unknown")
        refused = await refusal(daemon, "new", append(fresh_key()), user("one"))
        assert refused == ("not_found", "not_applied")


async def test_repeat_to_an_unreadable_session_has_an_unknown_outcome() -> None:
    disk = SimulatedDisk()
    daemon = DaemonInProcess(disk)
    async with daemon.running():
        await ask(daemon, "o", OPEN)
        await ask(daemon, "a", FIRST, user("one"))
        await close_all(daemon)
        disk.fail_next("open_folder", errno.EIO, name="demo", times=9)
        refused = await refusal(daemon, "again", AGAIN, user("one"))
        assert refused == ("storage_failed", "unknown")
        refused = await refusal(daemon, "new", append(fresh_key()), user("two"))
        assert refused == ("storage_failed", "not_applied")
        disk.heal()
        ack = await ask_for(Ack, daemon, "late", AGAIN, user("one"))
        assert ack.duplicate


async def test_repeat_has_an_unknown_outcome_when_the_trash_cannot_be_read() -> None:
    disk = SimulatedDisk()
    daemon = DaemonInProcess(disk)
    async with daemon.running():
        await ask(daemon, "o", OPEN)
        await ask(daemon, "a", FIRST, user("one"))
        await ask(daemon, "d", DELETE)
        disk.fail_next("open_folder", errno.EIO, name=".trash", times=9)
        refused = await refusal(daemon, "again", AGAIN, user("one"))
        assert refused == ("not_found", "unknown")


async def test_a_compaction_that_was_begun_before_the_session_was_made_again_is_refused() -> None:
    daemon = DaemonInProcess(SimulatedDisk())
    async with daemon.running():
        await fill(daemon, "old")
        begun = await ask_for(Compaction, daemon, "b", compact_begin("c", preserve=1))
        await ask(daemon, "d", DELETE)
        await fill(daemon, "new")
        fields = {"cut": begun.cut, "at": begun.at, "checkpoint_id": begun.checkpoint_id}
        late = compact("c", **fields, incarnation=begun.incarnation)
        assert await refusal(daemon, "late", late, SUMMARY) == ("conflict", "not_applied")

        again = await ask_for(Compaction, daemon, "b2", compact_begin("c2", preserve=1))
        right = compact("c2", **fields, incarnation=again.incarnation)
        assert isinstance(await ask(daemon, "right", right, SUMMARY), Ack)


async def fill(daemon: DaemonInProcess, name: str) -> None:
    """Make the session, with three messages."""
    await ask(daemon, f"{name}-open", OPEN)
    for number in range(3):
        await ask(daemon, f"{name}-{number}", append(f"{name}-{number}"), user(name))


@pytest.mark.parametrize("is_open", [True, False])
async def test_a_repeat_is_in_doubt_while_the_daemon_is_ending(*, is_open: bool) -> None:
    daemon = DaemonInProcess(SimulatedDisk())
    async with daemon.running():
        await ask(daemon, "o", OPEN)
        await ask(daemon, "a", FIRST, user("one"))
        if not is_open:
            await close_all(daemon)
        daemon.registry.close()
        refused = await refusal(daemon, "again", AGAIN, user("one"))
        assert refused == ("shutting_down", "unknown")
        refused = await refusal(daemon, "new", append(fresh_key()), user("two"))
        assert refused == ("shutting_down", "not_applied")
        daemon.router.begin_drain()
        refused = await refusal(daemon, "drained", AGAIN, user("one"))
        assert refused == ("shutting_down", "unknown")


async def test_a_repeat_is_in_doubt_while_its_session_takes_nothing() -> None:
    daemon = DaemonInProcess(SimulatedDisk())
    async with daemon.running():
        await ask(daemon, "o", OPEN)
        await ask(daemon, "a", FIRST, user("one"))
        daemon.services.budget.taken_bytes += limits.INFLIGHT_BYTES_MAX
        refused = await refusal(daemon, "again", AGAIN, user("one"))
        assert refused == ("busy", "unknown")
        refused = await refusal(daemon, "new", append(fresh_key()), user("two"))
        assert refused == ("busy", "not_applied")
        daemon.services.budget.taken_bytes -= limits.INFLIGHT_BYTES_MAX


@pytest.mark.parametrize("command", [FORK, DELETE], ids=["fork", "delete"])
async def test_repeated_session_command_has_an_unknown_outcome_while_the_first_is_served(
    command: Fork | Delete,
) -> None:
    daemon = DaemonInProcess(SimulatedDisk())
    async with daemon.running():
        await ask(daemon, "o", OPEN)
        await ask(daemon, "a", FIRST, user("one"))
        send(daemon, "first", command)
        await anyio.lowlevel.checkpoint()
        refused = await refusal(daemon, "again", command)
        assert refused == ("busy", "unknown")
        await daemon.wait_for_answer(b"first")
        assert await ask(daemon, "late", command) == daemon.answers[b"first"][0]


@pytest.mark.parametrize("command", [FORK, DELETE], ids=["fork", "delete"])
async def test_session_command_has_an_unknown_outcome_while_its_key_cannot_be_looked_up(
    command: Fork | Delete,
) -> None:
    disk = SimulatedDisk()
    daemon = DaemonInProcess(disk)
    async with daemon.running():
        await ask(daemon, "o", OPEN)
        await ask(daemon, "a", FIRST, user("one"))
        first = await ask(daemon, "first", command)
        assert isinstance(first, SessionStat | Deleted)
        disk.fail_next("open_root", errno.EIO, times=9)
        refused = await refusal(daemon, "again", command)
        assert refused == ("storage_failed", "unknown")
        disk.heal()
        assert await ask(daemon, "late", command) == first


async def test_next_sweep_of_the_trash_removes_the_rest() -> None:
    disk = SimulatedDisk()
    for number in range(2 * limits.TRASH_SWEEP_ENTRIES_MAX + 1):
        disk.foreign.make_folder(f"{TRASH}/{number + 1}.k{number}.id")
    daemon = DaemonInProcess(disk)

    async def round_of_housekeeping() -> int:
        await daemon.operations.sweep.when_due()
        daemon.now_s += limits.HOUSEKEEPING_S
        return len(disk.names(disk.open_root(TRASH)))

    async with daemon.running():
        left = [await round_of_housekeeping() for _ in range(3)]
        assert left == [limits.TRASH_SWEEP_ENTRIES_MAX + 1, 1, 0]
        disk.foreign.make_folder(f"{TRASH}/1.k.id")
        assert await round_of_housekeeping() == 1
        daemon.now_s += limits.TRASH_SWEEP_S
        assert await round_of_housekeeping() == 0
