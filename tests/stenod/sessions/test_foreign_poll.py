"""The foreign poll, which finds writes of other programs for followers."""

from collections.abc import Callable
from unittest.mock import patch

import anyio
import anyio.lowlevel
import msgspec
import pytest

from steno_protocol import limits
from steno_protocol.commands import Open, Subscribe, Unsubscribe
from steno_protocol.events import Gone, Records, Reset
from steno_protocol.replies import Ack
from stenod.sessions.registry import Registry
from stenod.sessions.session import Session
from support.asking import ask
from support.daemon_in_process import MOUNTED, ROOT, DaemonInProcess
from support.lines import append, foreign, user
from support.simulated_disk import SimulatedDisk

pytestmark = pytest.mark.anyio

OWN, SHARED = "demo", "kimi:demo"
FOLDERS = {OWN: f"{ROOT}/sessions/demo", SHARED: f"{MOUNTED}/demo"}
BOTH = pytest.mark.parametrize("session", [OWN, SHARED])


async def followed(daemon: DaemonInProcess, session: str) -> None:
    """Open a session of one line, with a follower."""
    await ask(daemon, "open", Open(session=session))
    command = msgspec.structs.replace(append("k1"), session=session)
    assert isinstance(await ask(daemon, "k1", command, user("one")), Ack)
    await ask(daemon, "f", Subscribe(session=session, subscription="mine"))
    await until(lambda: events_of(daemon, Records) != [])


def events_of(daemon: DaemonInProcess, kind: type) -> list[object]:
    """The events of one kind that the follower got."""
    return [event for event in daemon.answers[b"f"] if isinstance(event, kind)]


async def until(fact: Callable[[], bool]) -> None:
    for _ in range(3000):
        if fact():
            return
        await anyio.lowlevel.checkpoint()
    raise AssertionError("it did not come about, however often every task had its turn")


async def turns(number: int = 300) -> None:
    for _ in range(number):
        await anyio.lowlevel.checkpoint()


@BOTH
async def test_foreign_appends_are_published_by_the_next_poll(session: str) -> None:
    daemon = DaemonInProcess(SimulatedDisk())
    async with daemon.running():
        await followed(daemon, session)
        daemon.disk.foreign.append(f"{FOLDERS[session]}/context.jsonl", foreign("theirs"))
        await turns()
        assert len(events_of(daemon, Records)) == 1, "no poll has run yet"
        await daemon.router.foreign_poll.look()
        await until(lambda: len(events_of(daemon, Records)) == 2)
        event = events_of(daemon, Records)[-1]
        assert isinstance(event, Records)
        assert (event.first, event.next) == ("0:1", "0:2")


@BOTH
async def test_a_replaced_or_removed_file_is_published_as_a_reset(session: str) -> None:
    daemon = DaemonInProcess(SimulatedDisk())
    file = f"{FOLDERS[session]}/context.jsonl"
    async with daemon.running():
        await followed(daemon, session)
        daemon.disk.foreign.replace(f"{file}~", foreign("edited"))
        daemon.disk.foreign.rename(f"{file}~", "context.jsonl")
        await daemon.router.foreign_poll.look()
        await until(lambda: len(events_of(daemon, Reset)) == 1)

        daemon.disk.foreign.rename(file, "elsewhere")
        await daemon.router.foreign_poll.look()
        await turns()
        assert not daemon.disk.has_file(file), "another one may be about to come"
        daemon.now_s += 2 * limits.FOREIGN_SETTLE_S
        daemon.wall_s += 2 * limits.FOREIGN_SETTLE_S
        await daemon.router.foreign_poll.look()
        await until(lambda: len(events_of(daemon, Reset)) == 2)
        assert daemon.disk.content(file) == b""


@BOTH
async def test_a_moved_folder_is_published_as_gone(session: str) -> None:
    daemon = DaemonInProcess(SimulatedDisk())
    async with daemon.running():
        await followed(daemon, session)
        parent = daemon.disk.open_root(FOLDERS[session].rpartition("/")[0])
        daemon.disk.move(parent, "demo", parent, "moved")
        daemon.disk.close(parent)
        await daemon.router.foreign_poll.look()
        await until(lambda: events_of(daemon, Gone) != [])


async def test_a_follower_in_a_mount_does_not_wait_for_housekeeping() -> None:
    daemon = DaemonInProcess(SimulatedDisk())
    with patch.object(limits, "FOREIGN_POLL_S", 0.0):
        async with daemon.running():
            await followed(daemon, SHARED)
            for number in range(2, 5):
                daemon.disk.foreign.append(f"{MOUNTED}/demo/context.jsonl", foreign("theirs"))
                await until(lambda number=number: len(events_of(daemon, Records)) == number)
            await ask(daemon, "e", Unsubscribe(subscription="mine"))
            await turns()
            assert not daemon.router.foreign_poll._is_at_mounts
            # And the next one has it begin anew.
            daemon.answers.pop(b"f")
            await ask(daemon, "f", Subscribe(session=SHARED, subscription="mine", after="now"))
            daemon.disk.foreign.append(f"{MOUNTED}/demo/context.jsonl", foreign("theirs"))
            await until(lambda: events_of(daemon, Records) != [])


async def test_a_look_that_hangs_is_not_joined_by_others() -> None:
    daemon = DaemonInProcess(SimulatedDisk())
    async with daemon.running():
        await followed(daemon, SHARED)
        begun, answers = [], anyio.Event()

        async def hang(_: object) -> None:
            begun.append(1)
            await answers.wait()

        with patch.object(daemon.registry, "close_moved", hang):
            async with anyio.create_task_group() as looks:
                looks.start_soon(daemon.router.foreign_poll.look)
                await until(lambda: begun != [])
                looks.start_soon(daemon.router.foreign_poll.look)
                await turns()
                assert begun == [1]
                answers.set()
            await daemon.router.foreign_poll.look()
        assert begun == [1, 1]


async def test_a_follower_in_the_root_causes_no_poll_of_open_sessions() -> None:
    looks: list[None] = []

    def counted(_: Registry) -> list[Session]:
        looks.append(None)
        return []

    daemon = DaemonInProcess(SimulatedDisk())
    async with daemon.running():
        with patch.object(Registry, "followed", property(counted)):
            await followed(daemon, OWN)
    assert not looks
