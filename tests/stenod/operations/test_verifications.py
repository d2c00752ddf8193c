"""Checks of closed sessions: in one thread hop, and after a failed sync."""

import errno
from collections.abc import Callable
from typing import TypeVar

import pytest

from steno_protocol import limits, paths
from steno_protocol.commands import Open, Verify
from steno_protocol.replies import ErrorReply, Verification
from support import daemon_in_process
from support.asking import ask, ask_for, close_all
from support.daemon_in_process import ROOT, DaemonInProcess
from support.lines import append, foreign, user
from support.simulated_disk import SimulatedDisk

pytestmark = pytest.mark.anyio

T = TypeVar("T")


_FILE = f"{ROOT}/{paths.SESSIONS}/demo/{paths.CONTEXT}"


async def _store(daemon: DaemonInProcess, text: str = "one") -> None:
    await ask(daemon, "o", Open(session="demo"))
    await ask(daemon, "a", append("k"), user(text))
    daemon.disk.now_s += 1
    await close_all(daemon)


async def test_a_closed_session_is_checked_in_one_hop(monkeypatch: pytest.MonkeyPatch) -> None:
    hops: list[object] = []

    async def counted(work: Callable[[], T]) -> T:
        hops.append(work)
        return work()

    monkeypatch.setattr(daemon_in_process, "_inline", counted)
    daemon = DaemonInProcess(SimulatedDisk())
    async with daemon.running():
        await _store(daemon)
        hops.clear()
        report = await ask_for(Verification, daemon, "v", Verify(session="demo"))
        assert [each.records for each in report.files] == [1, 1]
        assert len(hops) == 1


async def test_a_check_lists_the_folder_once(monkeypatch: pytest.MonkeyPatch) -> None:
    disk = SimulatedDisk()
    daemon = DaemonInProcess(disk)
    async with daemon.running():
        await _store(daemon)
        listed: list[int] = []
        names = disk.names

        def counted(folder: int) -> list[str]:
            listed.append(folder)
            return names(folder)

        monkeypatch.setattr(disk, "names", counted)
        await ask(daemon, "v", Verify(session="demo"))
        assert len(listed) == 1


async def test_a_file_that_ends_at_its_recovery_point_is_read_without_a_sync() -> None:
    disk = SimulatedDisk()
    daemon = DaemonInProcess(disk)
    async with daemon.running():
        await _store(daemon)
        before = len(disk.calls)
        await ask(daemon, "v1", Verify(session="demo"))
        assert [call.method for call in disk.calls[before:]] == []
        disk.foreign.append(_FILE, foreign("theirs"))
        await ask(daemon, "v2", Verify(session="demo"))
        assert [call.method for call in disk.calls[before:]] == ["fdatasync"]


async def test_lines_that_were_edited_in_place_since_the_recovery_point_are_synced() -> None:
    disk = SimulatedDisk()
    daemon = DaemonInProcess(disk)
    async with daemon.running():
        # The edit lies before the fingerprint of the recovery point.
        await _store(daemon, "x" * 2 * limits.FINGERPRINT_BYTES)
        disk.now_s += 1
        disk.foreign.overwrite(_FILE, disk.content(_FILE).index(b"xxx"), b"edited")
        await ask(daemon, "v", Verify(session="demo"))
        assert disk.durable(_FILE) == disk.content(_FILE)


async def test_a_session_with_a_failed_sync_is_opened_before_it_is_checked() -> None:
    disk = SimulatedDisk()
    daemon = DaemonInProcess(disk)
    async with daemon.running():
        await _store(daemon)
        disk.foreign.append(_FILE, foreign("theirs"))
        disk.fail_next("fdatasync", errno.EIO)
        await ask_for(ErrorReply, daemon, "v1", Verify(session="demo"))
        report = await ask_for(Verification, daemon, "v2", Verify(session="demo"))
        assert (report.damage, len(daemon.registry)) == (0, 1)
