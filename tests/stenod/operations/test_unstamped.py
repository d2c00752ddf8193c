"""Unstamped sessions, whose keys the daemon keeps when their files close."""

import errno

import msgspec
import pytest

from steno_protocol import paths
from steno_protocol.commands import Open
from steno_protocol.replies import Ack, ErrorReply
from stenod.sessions.session import ClosedSessionKeys
from support.asking import ask, ask_for, close_all
from support.daemon_in_process import ROOT, DaemonInProcess
from support.lines import append, user
from support.simulated_disk import SimulatedDisk

pytestmark = pytest.mark.anyio

OPEN = Open(session="demo", stamp=False)


async def put(daemon: DaemonInProcess, name: str, key: str, session: str = "demo") -> Ack:
    command = msgspec.structs.replace(append(key), session=session)
    return await ask_for(Ack, daemon, name, command, user("one"))


def records(daemon: DaemonInProcess, file: str = "context") -> int:
    content = daemon.disk.content(f"{ROOT}/sessions/demo/{file}.jsonl")
    return content.count(b'"one"') + content.count(b"TurnBegin")


async def test_a_repeat_is_recognised_after_its_session_was_closed() -> None:
    daemon = DaemonInProcess(SimulatedDisk())
    async with daemon.running():
        await ask(daemon, "o", OPEN)
        first = await put(daemon, "a1", "k")
        for number in range(3):
            await close_all(daemon)
            again = await put(daemon, f"again{number}", "k")
            assert (again.duplicate, again.first) == (True, first.first)
        assert records(daemon) == 1


async def test_repeat_of_a_partly_failed_write_is_recognised() -> None:
    daemon = DaemonInProcess(SimulatedDisk())
    async with daemon.running():
        await ask(daemon, "o", OPEN)
        written = append("w", durability="written")
        first = await ask(daemon, "w", written, user("one"))
        daemon.disk.fail_next("write", errno.ENOSPC, name=paths.CONTEXT)
        assert isinstance(await ask(daemon, "f", append("f"), user("two")), ErrorReply)
        again = await ask(daemon, "w2", msgspec.structs.replace(written, repeat=True), user("one"))
        assert isinstance(first, Ack)
        assert isinstance(again, Ack)
        assert (again.duplicate, again.first) == (True, first.first)
        assert records(daemon) == 1
        failed = await ask_for(Ack, daemon, "f2", append("f", repeat=True), user("one"))
        assert not failed.duplicate
        assert records(daemon) == 2


async def test_first_opened_session_forgets_keys_over_the_budget() -> None:
    daemon = DaemonInProcess(SimulatedDisk())
    daemon.registry._kept = ClosedSessionKeys(keys_max=4)
    async with daemon.running():
        for session in ("one", "two", "three"):
            await ask(daemon, f"o-{session}", msgspec.structs.replace(OPEN, session=session))
            await put(daemon, f"a-{session}", "k", session)
        await close_all(daemon)
        repeats = [
            await put(daemon, f"b-{session}", "k", session) for session in ("three", "two", "one")
        ]
        assert [ack.duplicate for ack in repeats] == [True, True, False]
