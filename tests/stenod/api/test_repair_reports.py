"""Repairs of an opening in the replies: once, to the next reply, without paths for readers."""

from pathlib import Path

import pytest

from steno_protocol import limits, paths
from steno_protocol.commands import Open, Stat, Subscribe
from steno_protocol.credentials import Allowed
from steno_protocol.positions import Position
from steno_protocol.replies import Ack, ErrorReply, RepairedFile, SessionStat, Subscribed
from steno_protocol.rights import Right
from stenod.runtime.unreported_repairs import UnreportedRepairs
from support.asking import ask, close_all
from support.daemon_in_process import ROOT, DaemonInProcess
from support.lines import SESSION, append, user
from support.remote_access import admit
from support.simulated_disk import SimulatedDisk
from support.stored_session import fresh_key

pytestmark = pytest.mark.anyio

FOLDER = f"{ROOT}/{paths.SESSIONS}/{SESSION}"
HALF = b'{"role":"us'
READER = "L" * 40


async def torn(daemon: DaemonInProcess, disk: SimulatedDisk) -> None:
    """Close the session, whose file then ends in the middle of a line."""
    await ask(daemon, b"o", Open(session=SESSION))
    await ask(daemon, b"a", append(fresh_key(1)), user("one"))
    await close_all(daemon)
    disk.foreign.append(f"{FOLDER}/{paths.CONTEXT}", HALF)


async def test_a_refused_command_that_opened_the_session_reports_the_repair() -> None:
    disk = SimulatedDisk()
    daemon = DaemonInProcess(disk)
    async with daemon.running():
        await torn(daemon, disk)
        wrong = append(fresh_key(2), expect="7:0")
        refused = await ask(daemon, b"1", wrong, user("two"))
        later = await ask(daemon, b"2", append(fresh_key(3)), user("three"))

    assert isinstance(refused, ErrorReply)
    [repaired] = refused.repaired
    assert (repaired.session, repaired.file, repaired.bytes) == (SESSION, paths.CONTEXT, len(HALF))
    assert repaired.kept_in.startswith(f"{FOLDER}/{paths.QUARANTINE}/")
    assert isinstance(later, Ack)
    assert later.repaired == ()


async def test_a_reply_about_another_session_does_not_report_the_repair() -> None:
    disk = SimulatedDisk()
    daemon = DaemonInProcess(disk)
    async with daemon.running():
        await torn(daemon, disk)
        assert isinstance(await ask(daemon, b"1", Open(session="other")), SessionStat)
        closed = await ask(daemon, b"2", Stat(session=SESSION))
        opened = await ask(daemon, b"3", Open(session=SESSION))

    assert isinstance(closed, SessionStat)
    assert closed.repaired == ()
    assert isinstance(opened, SessionStat)
    assert len(opened.repaired) == 1


async def test_a_remote_reader_gets_the_report_without_a_path(tmp_path: Path) -> None:
    admit(tmp_path, Allowed("laptop", READER, Right.READ))
    disk = SimulatedDisk()
    daemon = DaemonInProcess(disk, tmp_path)
    async with daemon.running():
        await torn(daemon, disk)
        follow = Subscribe(session=SESSION, subscription="mine")
        subscribed = await ask(daemon, b"1", follow, user=READER)

    assert isinstance(subscribed, Subscribed)
    [repaired] = subscribed.repaired
    assert repaired.kept_in.startswith(f"{paths.QUARANTINE}/")
    assert str(Position(0, 1)) == subscribed.head


def test_repairs_that_no_reply_reports_are_bounded() -> None:
    repairs = UnreportedRepairs(sessions_max=2)
    for session in ("a", "b", "c"):
        for number in range(limits.REPAIRS_OF_SESSION_MAX + 1):
            repairs.add(session, (RepairedFile(session=session, file="f", offset=number),))

    assert list(repairs.sessions) == ["b", "c"]
    kept = repairs.take("c")
    assert [each.offset for each in kept] == [*range(1, limits.REPAIRS_OF_SESSION_MAX + 1)]
    assert repairs.take("c") == ()
