"""The common budget of the keys of all open sessions."""

import errno

import pytest

from steno_protocol.commands import Append, Open
from steno_protocol.replies import Ack
from stenod.core.key_budget import KeyRoom
from support.asking import ask, close_all
from support.daemon_in_process import ROOT, DaemonInProcess
from support.lines import user
from support.simulated_disk import SimulatedDisk

pytestmark = pytest.mark.anyio

KEYS_MAX, PIECE = 32, 4
SESSIONS = [f"s{number}" for number in range(6)]


async def put(daemon: DaemonInProcess, session: str, number: int, *, again: bool = False) -> Ack:
    key = f"{session}-{number}"
    command = Append(session=session, key=key, repeat=again)
    ack = await ask(daemon, f"{key}-{again}", command, user("one"))
    assert isinstance(ack, Ack)
    return ack


def remembered(daemon: DaemonInProcess) -> list[int]:
    writers = [
        writer for session in [*SESSIONS, "last"] for writer in daemon.registry.writers(session)
    ]
    return [len(writer.opened.machine.keys) for writer in writers if writer.opened is not None]


async def test_many_sessions_together_remember_no_more_keys_than_there_is_room_for() -> None:
    daemon = DaemonInProcess(SimulatedDisk(), key_room=KeyRoom(KEYS_MAX, PIECE))
    firsts: dict[tuple[str, int], str] = {}
    async with daemon.running():
        for session in SESSIONS:
            await ask(daemon, f"o-{session}", Open(session=session))
            for number in range(3 * PIECE):
                firsts[session, number] = (await put(daemon, session, number)).first
                assert sum(remembered(daemon)) <= KEYS_MAX

        assert max(remembered(daemon)) == 3 * PIECE
        for (session, number), first in firsts.items():
            ack = await put(daemon, session, number, again=True)
            assert (ack.duplicate, ack.first) == (True, first)
        for session in SESSIONS:
            content = daemon.disk.content(f"{ROOT}/sessions/{session}/context.jsonl")
            assert content.count(b"\n") == 3 * PIECE


async def test_files_that_are_closed_or_fail_give_all_of_their_room_back() -> None:
    disk = SimulatedDisk()
    daemon = DaemonInProcess(disk, key_room=KeyRoom(KEYS_MAX, PIECE))
    async with daemon.running():
        for turn in range(5):
            for session in SESSIONS:
                await ask(daemon, f"o-{session}{turn}", Open(session=session))
            disk.fail_next("fdatasync", errno.EIO)
            failing = Append(session=SESSIONS[0], key=f"f{turn}", durability="synced")
            await ask(daemon, f"f{turn}", failing, user("one"))
            assert daemon.registry.writers(SESSIONS[0])[0].last_error
            await close_all(daemon)

        await ask(daemon, "o-last", Open(session="last"))
        for number in range(KEYS_MAX):
            await put(daemon, "last", number)
        assert remembered(daemon) == [KEYS_MAX]
