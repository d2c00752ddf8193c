"""Group commits of the sessions of a burst."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import anyio
import anyio.lowlevel
import msgspec
import pytest

from steno_protocol import limits
from steno_protocol.commands import Command, Open
from steno_protocol.messages import encode_request
from steno_protocol.replies import Ack
from stenod.store.jsonl import JsonlLog
from support.commits import TestCommits
from support.daemon_in_process import DaemonInProcess
from support.lines import append, user, uuid7
from support.simulated_disk import SimulatedDisk
from support.stored_session import NOW_S
from support.writing import Desk, answers

pytestmark = pytest.mark.anyio

SESSIONS = [f"s{number}" for number in range(4)]


def burst(daemon: DaemonInProcess, commands: list[tuple[Command, bytes]]) -> list[bytes]:
    """Give a daemon one burst of messages; returns the ids of its requests."""
    names: list[bytes] = []
    for command, record in commands:
        names.append(b"b%d" % len(daemon.answers) + b".%d" % len(names))
        daemon.router.handle(daemon, b"peer", encode_request(names[-1], command, [record]))
    daemon.registry.commit()
    return names


def fresh(seconds: int, number: int = 0) -> str:
    """A key that cannot have been used before, so that no file has to be looked at for it."""
    return uuid7(int(NOW_S + seconds) * 1000, number)


def appends(key: int) -> list[tuple[Command, bytes]]:
    """One append to each session."""
    return [
        (msgspec.structs.replace(append(fresh(key, number)), session=session), user(session))
        for number, session in enumerate(SESSIONS)
    ]


async def opened(daemon: DaemonInProcess) -> None:
    for session in SESSIONS:
        name = session.encode()
        daemon.handle(encode_request(name, Open(session=session), ()))
        await daemon.wait_for_answer(name)


async def test_a_burst_is_answered_when_its_round_ends_and_synced_together() -> None:
    disk = SimulatedDisk()
    daemon = DaemonInProcess(disk)
    async with daemon.running():
        await opened(daemon)
        before = len(disk.calls)
        names = burst(daemon, appends(1))

        # Nothing has given way: no task had a turn.
        assert all(isinstance(daemon.answers[name][0], Ack) for name in names)
        methods = [call.method for call in disk.calls[before:]]
        assert methods.count("write") == methods.count("fdatasync") == len(SESSIONS)
        last_write = len(methods) - 1 - methods[::-1].index("write")
        assert last_write < methods.index("fdatasync")


@asynccontextmanager
async def group_under_way() -> AsyncIterator[tuple[DaemonInProcess, bytes, TestCommits]]:
    """A daemon of a cluster whose commit of the first session waits at a gate; its request."""
    daemon = DaemonInProcess(SimulatedDisk())
    commits = daemon.services.commit
    assert isinstance(commits, TestCommits)
    async with daemon.running():
        await opened(daemon)
        commits.is_inline, commits.groups_max = False, 8
        gate = commits.gate = anyio.Event()
        (under_way,) = burst(daemon, appends(1)[:1])
        await anyio.wait_all_tasks_blocked()
        commits.gate = None
        try:
            yield daemon, under_way, commits
        finally:
            gate.set()
            await daemon.wait_for_answer(under_way)
            # The end of the daemon would have each writer serve what is left for the next group.
            await anyio.wait_all_tasks_blocked()


async def test_a_slow_group_delays_no_other_group_of_a_cluster() -> None:
    async with group_under_way() as (daemon, slow, _):
        daemon.now_s += limits.SLOW_GROUP_S
        for number, (command, record) in enumerate(appends(2)[1:]):
            name = b"quick.%d" % number
            daemon.handle(encode_request(name, command, [record]))
            await daemon.wait_for_answer(name)
        assert slow not in daemon.answers


async def test_a_group_that_becomes_slow_delays_what_comes_then_no_longer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(limits, "SLOW_GROUP_S", 60.0)
    async with group_under_way() as (daemon, slow, _):
        early, late = appends(2)[1:3]
        daemon.handle(encode_request(b"early", early[0], [early[1]]))
        await anyio.wait_all_tasks_blocked()
        assert b"early" not in daemon.answers

        daemon.now_s += limits.SLOW_GROUP_S
        daemon.handle(encode_request(b"late", late[0], [late[1]]))
        await daemon.wait_for_answer(b"late")
        assert b"early" in daemon.answers
        assert slow not in daemon.answers


async def test_what_waits_for_a_quick_group_begins_by_itself_once_that_is_slow(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pauses: list[float] = []

    async def pause(seconds: float) -> None:
        pauses.append(seconds)
        await anyio.lowlevel.checkpoint()

    async with group_under_way() as (daemon, slow, _):
        monkeypatch.setattr(anyio, "sleep", pause)
        command, record = appends(2)[1]
        daemon.handle(encode_request(b"early", command, [record]))
        # The clock stands: the group is looked at again and again.
        await wait_for(lambda: len(pauses) > 2)
        assert b"early" not in daemon.answers
        daemon.now_s += limits.SLOW_GROUP_S
        await daemon.wait_for_answer(b"early")
        assert slow not in daemon.answers


async def test_a_fault_in_one_command_of_a_round_refuses_that_command_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with Desk(at_once=True).open() as desk:
        opened = desk.writer.opened
        assert opened is not None
        decide = opened.machine.decide_new

        def faulty(command: Command, *rest: object) -> object:
            if getattr(command, "key", "") == "bad":
                raise ZeroDivisionError
            return decide(command, *rest)

        monkeypatch.setattr(opened.machine, "decide_new", faulty)
        sent = [desk.send(append(key), user(key)) for key in ("a", "bad", "b")]
        await desk.wait_for(lambda: all(one.answer is not None for one in sent))

        assert answers(sent) == ["0:0", "Internal", "0:1"]


@pytest.mark.parametrize("step", ["begin", "answer", "conclude"])
async def test_fault_outside_a_command_closes_only_its_session(
    step: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    daemon = DaemonInProcess(SimulatedDisk())
    async with daemon.running():
        await opened(daemon)
        (writer,) = daemon.registry.writers("s1")

        def faulty(*_: object) -> object:
            raise ZeroDivisionError(step)

        monkeypatch.setattr(writer, step, faulty)
        commands = appends(1)
        names = burst(daemon, commands)
        others = [name for name in names if name != names[1]]
        assert all(isinstance(daemon.answers[name][0], Ack) for name in others)
        await wait_for(lambda: not daemon.registry.writers("s1"))

        assert daemon.faults == [f"ZeroDivisionError('{step}')"]
        # Commands without a reply are repeated, as clients do: each is applied once.
        command, record = commands[1]
        again = msgspec.structs.replace(command, repeat=True)
        (name,) = burst(daemon, [(again, record)])
        await daemon.wait_for_answer(name)
        ack = daemon.answers[name][0]
        assert isinstance(ack, Ack)
        assert (ack.first, ack.head) == ("0:0", "0:1")
        for name in burst(daemon, appends(2)):
            await daemon.wait_for_answer(name)
            assert isinstance(daemon.answers[name][0], Ack)


@pytest.mark.parametrize("is_inline", [True, False])
async def test_fault_in_the_storing_of_a_group_closes_its_sessions_and_is_repeated(
    is_inline: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    daemon = DaemonInProcess(SimulatedDisk())
    commits = daemon.services.commit
    assert isinstance(commits, TestCommits)
    commits.is_inline = is_inline
    async with daemon.running():
        await opened(daemon)
        kept = JsonlLog.append

        def faulty(log: JsonlLog, data: bytes) -> object:
            if data.find(b'"s1"') < 0:
                return kept(log, data)
            monkeypatch.undo()
            raise MemoryError

        monkeypatch.setattr(JsonlLog, "append", faulty)
        commands = appends(1)
        burst(daemon, commands)
        await wait_for(lambda: not any(map(daemon.registry.writers, SESSIONS)))

        # The line of the first session is in its file, and the others are not.
        again = [(msgspec.structs.replace(each, repeat=True), record) for each, record in commands]
        for name in burst(daemon, again):
            await daemon.wait_for_answer(name)
            ack = daemon.answers[name][0]
            assert isinstance(ack, Ack)
            assert (ack.first, ack.head) == ("0:0", "0:1")


async def wait_for(fact: Callable[[], bool]) -> None:
    """Return when a fact is true; a test that waits in vain fails by its time limit."""
    while not fact():
        await anyio.lowlevel.checkpoint()


async def test_replies_are_sent_before_events() -> None:
    async with Desk(at_once=True).open() as desk:
        _, reader = desk.subscribe()
        await desk.settle()
        flushed: list[int] = []
        send = reader.send
        desk.feed._subscribers[0].send = lambda event, block: (
            flushed.append(desk.flushes[-1]) or send(event, block)
        )
        sent = await desk.do(append(fresh(1)), user("one"))
        await desk.wait_for(lambda: bool(reader.data))

        assert sent.ack.first == "0:0"
        assert flushed == [1]
