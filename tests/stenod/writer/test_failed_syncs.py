"""Failed syncs, also of other programs."""

import errno

import pytest

from steno_protocol import limits, paths
from steno_protocol.commands import AppendWire, Command, Open, Read, ReadWire, Stat, Verify
from steno_protocol.events import AnyEvent
from steno_protocol.replies import AnyReply, ErrorReply, Lines
from support import asking
from support.daemon_in_process import ROOT, DaemonInProcess
from support.lines import SESSION, append, foreign, user
from support.simulated_disk import SimulatedDisk
from support.wire_writing import append_wire, event

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("commit_mode")]

FOLDER = f"{ROOT}/{paths.SESSIONS}/{SESSION}"
CONTEXT = f"{FOLDER}/{paths.CONTEXT}"
WIRE = f"{FOLDER}/{paths.WIRE}"

READS: list[Command] = [Stat(session=SESSION), Read(session=SESSION), Verify(session=SESSION)]


async def ask(daemon: DaemonInProcess, command: Command, *records: bytes) -> AnyReply | AnyEvent:
    return await asking.ask(daemon, str(len(daemon.answers)), command, *records)


def daemon_with(data: bytes, unsynced: bytes) -> DaemonInProcess:
    """A daemon, and a closed session with unsynced lines of another program."""
    daemon = DaemonInProcess(SimulatedDisk())
    daemon.disk.plant(CONTEXT, data)
    daemon.disk.foreign.append(CONTEXT, unsynced)
    return daemon


@pytest.mark.parametrize("command", READS, ids=lambda command: type(command).__name__)
async def test_lines_of_a_failed_read_sync_are_shown_after_they_are_rewritten(
    command: Command,
) -> None:
    daemon = daemon_with(foreign("one"), foreign("two"))
    disk = daemon.disk
    async with daemon.running():
        disk.fail_next("fdatasync", errno.EIO, name=paths.CONTEXT)
        failed = await ask(daemon, command)
        assert isinstance(failed, ErrorReply)
        assert failed.code == "storage_failed"
        assert disk.durable(CONTEXT) == foreign("one")

        shown = await ask(daemon, command)

        assert not isinstance(shown, ErrorReply)
        assert disk.durable(CONTEXT) == foreign("one") + foreign("two")


@pytest.mark.parametrize("is_failing", [False, True], ids=["sound", "failing"])
async def test_unsynced_foreign_lines_are_shown_when_they_are_durable(
    is_failing: bool,
) -> None:
    daemon = daemon_with(foreign("one"), foreign("two"))
    disk = daemon.disk
    disk.foreign.rename(CONTEXT, "context_1.jsonl")
    disk.foreign.replace(f"{FOLDER}/context_2.jsonl", foreign("between"))
    disk.foreign.replace(CONTEXT, foreign("three"))
    async with daemon.running():
        if is_failing:
            disk.fail_next("fdatasync", errno.EIO, name="context_1.jsonl")
            assert isinstance(await ask(daemon, Read(session=SESSION, after="0:0")), ErrorReply)

        shown = await ask(daemon, Read(session=SESSION, after="0:0"))

        assert isinstance(shown, Lines)
        assert shown.next == "0:2"
        left = disk.file_at(f"{FOLDER}/context_1.jsonl")
        assert left.durable == left.cached == (foreign("one") + foreign("two"))


async def test_read_after_a_failed_sync_and_cut_shows_only_durable_lines() -> None:
    daemon = DaemonInProcess(SimulatedDisk())
    disk = daemon.disk
    async with daemon.running():
        await ask(daemon, Open(session=SESSION))
        await ask(daemon, event_of("e1"), event(1, "one"))
        disk.fail_next("fdatasync", errno.EIO, name=paths.WIRE)
        disk.fail_next("truncate", errno.EIO, name=paths.WIRE)
        refused = await ask(daemon, event_of("e2"), event(2, "two"))
        assert isinstance(refused, ErrorReply)
        assert refused.outcome == "unknown", refused
        assert b"two" in disk.content(WIRE)
        assert b"two" not in (disk.durable(WIRE) or b"")

        shown = await ask(daemon, ReadWire(session=SESSION))

        assert isinstance(shown, Lines)
        assert shown.next == "0:3"
        assert disk.durable(WIRE) == disk.content(WIRE)


def event_of(key: str) -> AppendWire:
    return append_wire(key, durability="synced")


async def test_a_doubt_outlives_the_closing_of_a_session() -> None:
    daemon = DaemonInProcess(SimulatedDisk())
    disk = daemon.disk
    async with daemon.running():
        await ask(daemon, Open(session=SESSION))
        await ask(daemon, append("k1"), user("one"))
        disk.fail_next("fdatasync", errno.EIO, name=paths.CONTEXT)
        disk.fail_next("truncate", errno.EIO, name=paths.CONTEXT)
        await ask(daemon, append("k2"), user("two"))
        daemon.now_s += 2 * limits.SESSION_IDLE_S
        daemon.registry.retire_idle()
        assert not len(daemon.registry)

        shown = await ask(daemon, Read(session=SESSION))

        assert isinstance(shown, Lines)
        assert shown.next == "0:2"
        assert disk.durable(CONTEXT) == disk.content(CONTEXT)
