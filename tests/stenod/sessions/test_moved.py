"""Sessions whose folder another program moved or replaced."""

from collections.abc import Callable
from typing import TypeVar

import anyio
import anyio.lowlevel
import msgspec
import pytest

from steno_protocol.commands import (
    Append,
    Command,
    Delete,
    Describe,
    Fork,
    Open,
    PendingDmail,
    Stat,
    Subscribe,
    Verify,
)
from steno_protocol.events import Gone
from steno_protocol.replies import (
    Ack,
    Deleted,
    ErrorReply,
    MailReport,
    SessionStat,
    Subscribed,
    Verification,
)
from stenod.recovery.opened import Opened
from support import daemon_in_process
from support.asking import ask, ask_for, send
from support.daemon_in_process import ROOT, DaemonInProcess
from support.lines import append, foreign, user
from support.simulated_disk import SimulatedDisk

pytestmark = pytest.mark.anyio

SESSIONS = f"{ROOT}/sessions"
OPEN = Open(session="demo")
FOLLOW = Subscribe(session="demo", subscription="mine")
DELETE = Delete(session="demo", key="gone")

T = TypeVar("T")


def append_to(session: str, key: str) -> Append:
    return msgspec.structs.replace(append(key), session=session)


def move(disk: SimulatedDisk, session: str, to: str) -> None:
    """Rename a session's folder, as `mv` does."""
    folder = disk.open_root(SESSIONS)
    disk.move(folder, session, folder, to)
    disk.close(folder)


def lines(daemon: DaemonInProcess, session: str) -> int:
    return daemon.disk.content(f"{SESSIONS}/{session}/context.jsonl").count(b"\n")


async def opened_and_moved(daemon: DaemonInProcess) -> None:
    """An open, followed session of one line, whose folder was renamed to `moved`."""
    await ask(daemon, b"o", OPEN)
    await ask(daemon, b"f", FOLLOW)
    assert isinstance(await ask(daemon, b"a", append_to("demo", "k1"), user("one")), Ack)
    move(daemon.disk, "demo", "moved")


async def test_a_session_that_was_moved_away_is_not_there_and_can_be_made() -> None:
    daemon = DaemonInProcess(SimulatedDisk())
    async with daemon.running():
        await opened_and_moved(daemon)
        looked = await ask_for(ErrorReply, daemon, b"s", Stat(session="demo"))
        assert (looked.code, looked.outcome) == ("not_found", "not_applied")
        gone = daemon.answers[b"f"][-1]
        assert isinstance(gone, Gone)
        assert "moved" in gone.why

        made = await ask_for(SessionStat, daemon, b"o2", OPEN)
        assert (made.created, made.head) == (True, "0:0")
        assert isinstance(await ask(daemon, b"a2", append_to("demo", "k2"), user("two")), Ack)
        assert (lines(daemon, "demo"), lines(daemon, "moved")) == (1, 1)


@pytest.mark.parametrize(
    "command",
    [
        Stat(session="demo"),
        Open(session="demo"),
        Describe(session="demo", title="new"),
        Fork(session="demo", new_session="copy", key="f"),
    ],
    ids=lambda command: type(command).__name__,
)
async def test_commands_reach_the_folder_at_the_session_path(command: Command) -> None:
    daemon = DaemonInProcess(SimulatedDisk())
    async with daemon.running():
        await opened_and_moved(daemon)
        daemon.disk.foreign.replace(
            f"{SESSIONS}/demo/context.jsonl", foreign("1") + foreign("2") + foreign("3")
        )
        reply = await ask_for(SessionStat, daemon, b"c", command)
        assert reply.head == "0:3"
        assert isinstance(await ask(daemon, b"a2", append_to("demo", "k2"), user("two")), Ack)
        assert (lines(daemon, "demo"), lines(daemon, "moved")) == (4, 1)


async def test_a_session_that_was_put_in_place_of_another_is_followed_and_verified() -> None:
    daemon = DaemonInProcess(SimulatedDisk())
    async with daemon.running():
        await opened_and_moved(daemon)
        daemon.disk.foreign.replace(f"{SESSIONS}/demo/context.jsonl", foreign("1") + foreign("2"))
        report = await ask_for(Verification, daemon, b"v", Verify(session="demo"))
        assert [(file.file, file.records) for file in report.files] == [("context.jsonl", 2)]
        assert report.damage == 0
        followed = await ask_for(Subscribed, daemon, b"f2", FOLLOW)
        assert followed.head == "0:2"
        await ask_for(MailReport, daemon, b"p", PendingDmail(session="demo"))


@pytest.mark.parametrize("is_opened", [False, True])
async def test_a_session_that_was_moved_while_open_goes_by_its_new_name(*, is_opened: bool) -> None:
    daemon = DaemonInProcess(SimulatedDisk())
    async with daemon.running():
        await opened_and_moved(daemon)
        if is_opened:
            again = await ask_for(SessionStat, daemon, b"o2", Open(session="moved"))
            assert again.head == "0:1"
        await ask_for(Deleted, daemon, b"d", Delete(session="moved", key="gone"))
        names = daemon.disk.names(daemon.disk.open_root(SESSIONS))
        assert set(names) & {"demo", "moved"} == set()


async def test_a_disk_that_does_not_say_where_an_id_leads_ends_nothing() -> None:
    daemon = DaemonInProcess(SimulatedDisk())
    async with daemon.running():
        await ask(daemon, b"o", OPEN)
        await ask(daemon, b"f", FOLLOW)
        before = daemon.registry.writers("demo")
        daemon.disk.fail_next("open_folder", 5, name="demo")
        await ask(daemon, b"s", Stat(session="demo"))
        assert daemon.registry.writers("demo") == before


async def test_a_deletion_waits_for_an_opening_that_is_under_way(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    is_opening, may_end = anyio.Event(), anyio.Event()

    async def as_a_thread(work: Callable[[], T]) -> T:
        await anyio.lowlevel.checkpoint()
        result = work()
        if isinstance(result, tuple) and isinstance(result[0], Opened):
            # The files are open and locked, and the loop does not know yet.
            is_opening.set()
            await may_end.wait()
        return result

    monkeypatch.setattr(daemon_in_process, "_inline", as_a_thread)
    daemon = DaemonInProcess(SimulatedDisk())
    async with daemon.running():
        send(daemon, b"o", OPEN)
        await is_opening.wait()
        send(daemon, b"d", DELETE)
        for _ in range(100):
            await anyio.lowlevel.checkpoint()
        assert b"d" not in daemon.answers
        may_end.set()
        await daemon.wait_for_answer(b"d")
        assert isinstance(daemon.answers[b"d"][0], Deleted)
        await daemon.wait_for_answer(b"o")
        refused = daemon.answers[b"o"][0]
        assert isinstance(refused, ErrorReply)
        assert (refused.code, refused.outcome) == ("shutting_down", "not_applied")
