"""Clients of a daemon that dies, drains, restarts or falls silent."""

import os
import signal
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import anyio
import pytest

from steno import (
    Incompatible,
    Live,
    NotFound,
    OutcomeUnknown,
    Position,
    RecordsEvent,
    Reset,
    Session,
    Subscription,
    Unreachable,
    connect,
    connect_sync,
)
from steno_protocol import commands, events, limits, replies
from steno_protocol.errors import ErrorCode
from steno_protocol.messages import Request
from support.foreground import ForegroundDaemon
from support.messages import message
from support.scripted_daemon import Answers, ScriptedDaemon
from support.session_files import contents_in, records_in

pytestmark = pytest.mark.anyio

WAIT_S = 60
"""A daemon starts long before, whatever else the machine does."""


@pytest.fixture
def _no_resends(monkeypatch: pytest.MonkeyPatch) -> None:
    """No request is sent again because its answer is late, so that a test can count them."""
    monkeypatch.setattr(limits, "RESEND_S", 60.0)


async def killing(pid_of: Callable[[], Awaitable[int]], times: int) -> None:
    """Kill the daemon again and again, each time as soon as the next one answers."""
    killed: set[int] = set()
    while len(killed) < times:
        pid = await pid_of()
        if pid not in killed:
            killed.add(pid)
            os.kill(pid, signal.SIGKILL)


async def test_every_ack_survives_exactly_once_while_the_daemon_is_killed(root: Path) -> None:
    acknowledged: list[str] = []
    async with connect(root, timeout=60) as client, connect(root, timeout=60) as other:
        session = await client.open("demo")

        async def write(number: int) -> None:
            for count in range(40):
                text = f"{number}-{count}"
                await session.append_message(message(text))
                acknowledged.append(text)

        async def pid() -> int:
            return (await other.status()).pid

        async with anyio.create_task_group() as tasks:
            for number in range(8):
                tasks.start_soon(write, number)
            tasks.start_soon(killing, pid, 4)
        counted = contents_in(root, "demo")
        assert len(acknowledged) == 320
        assert set(counted) == set(acknowledged)
        assert set(counted.values()) == {1}
        in_file = [record["content"] for record in records_in(root, "demo")]
        assert [entry["content"] for entry in session.history] == in_file
        for number in range(8):
            mine = [text for text in in_file if text.startswith(f"{number}-")]
            assert mine == [f"{number}-{count}" for count in range(40)]


def test_a_blocking_writer_survives_kills_as_well(root: Path) -> None:
    with connect_sync(root, timeout=60) as client:
        session = client.open("demo")
        for count in range(30):
            if count % 10 == 5:
                assert client.welcome is not None
                os.kill(client.welcome.pid, signal.SIGKILL)
            session.append_message(message(str(count)))
        expected = [str(count) for count in range(30)]
        assert [entry["content"] for entry in session.history] == expected
        assert [record["content"] for record in records_in(root, "demo")] == expected


async def test_a_kill_is_noticed_at_once_and_not_by_a_resend_timer(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # So long that a daemon starts in far less, whatever else the machine does.
    monkeypatch.setattr(limits, "RESEND_S", 60.0)
    async with connect(root, timeout=90) as client:
        session = await client.open("demo", follow=False)
        await session.append_message(message("before"))
        begun = time.monotonic()
        assert client.welcome is not None
        os.kill(client.welcome.pid, signal.SIGKILL)
        await session.append_message(message("after"))
        assert time.monotonic() - begun < limits.RESEND_S
        assert len(records_in(root, "demo")) == 2


async def test_a_follower_goes_on_where_it_was_across_a_kill_and_a_rewrite(root: Path) -> None:
    with ForegroundDaemon(root) as daemon:
        async with (
            connect(endpoint=daemon.endpoint) as writer,
            connect(root, spawn=False) as follower,
        ):
            session = await writer.open("demo", follow=False)
            mirror = await follower.open("demo")
            await session.append_message([message("a"), message("b")])
            await session.checkpoint()
            ack = await session.append_message(message("c"))
            await mirror.wait_for(ack.head)
            subscription = mirror.subscribe()
            # A subscriber without events begins with the present lines, and gets no Reset.
            seen = Seen()
            await seen.up_to(ack.head, subscription)
            daemon.kill()
            daemon.start()
            await session.revert_to(0)
            ack = await session.append_message(message("d"))
            await mirror.wait_for(ack.head)
            assert mirror.history == [message("a"), message("b"), message("d")]
            await seen.up_to(ack.head, subscription)
            assert (seen.contents, seen.lives) == (["a", "b", "d"], 1)


@dataclass
class Seen:
    """The events that a subscriber has received so far."""

    contents: list[str] = field(default_factory=list)
    position: Position = field(default_factory=lambda: Position(0, 0))
    lives: int = 0

    async def up_to(self, head: Position, subscription: Subscription) -> None:
        """Follow to `head` and through Live, which may come before the last record; no gap."""
        while not (self.position == head and self.lives):
            match event := await anext(subscription):
                case RecordsEvent():
                    assert event.first == self.position
                    self.contents += [
                        str(each.record.get("content", "")) for each in event.records()
                    ]
                    self.position = event.next
                case Reset():
                    del self.contents[event.kept :]
                    self.position = Position(event.generation, event.kept)
                case Live():
                    self.lives += 1


async def test_a_subscription_from_now_on_is_entered_once_it_was_answered(root: Path) -> None:
    answered: list[str] = []

    def script(request: Request) -> Answers | None:
        if isinstance(request.command, commands.Subscribe):
            answered.append(request.command.after)
        return None

    with ScriptedDaemon(root, script) as daemon:
        async with (
            connect(endpoint=daemon.endpoint) as client,
            client.session("demo").subscribe("now"),
        ):
            assert answered == ["now"]


async def test_a_drained_daemon_is_restarted_on_demand(root: Path) -> None:
    async with connect(root) as client:
        session = await client.open("demo")
        first = (await client.status()).pid
        await client.drain()
        await session.append_message(message("hi"))
        assert (await client.status()).pid != first
        assert session.history == [message("hi")]


@pytest.mark.parametrize("way", ["async for", "wait_for"])
async def test_a_task_that_only_waits_starts_a_killed_daemon_again(root: Path, way: str) -> None:
    async with connect(root) as waiter, connect(root, spawn=False) as other:
        session = await waiter.open("demo")
        events = session.subscribe("now")
        seen: list[Any] = []

        async def wait() -> None:
            if way == "wait_for":
                await session.wait_for("0:1")
                seen.extend(session.history)
                return
            async for event in events:
                if isinstance(event, RecordsEvent):
                    seen.extend(record.record for record in event.records())
                    return

        with anyio.fail_after(30):
            async with events, anyio.create_task_group() as tasks:
                tasks.start_soon(wait)
                assert other.welcome is not None
                os.kill(other.welcome.pid, signal.SIGKILL)
                # It starts none itself: until there is one again, this waits.
                await (await other.open("demo")).append_message(message("hi"))
        assert [each["content"] for each in seen] == ["hi"]


@pytest.mark.slow
def test_a_thread_that_only_waits_starts_a_killed_daemon_again(
    root: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with connect_sync(root) as waiter:
        events = waiter.open("demo").subscribe("now")
        killed = waiter.welcome.pid
        os.kill(killed, signal.SIGKILL)

        assert events.next_event(timeout=WAIT_S) == Live(Position(0, 0))
        until = time.monotonic() + WAIT_S
        while waiter.welcome.pid == killed:
            assert time.monotonic() < until, "it starts none"
            assert events.next_event(timeout=1) is None
        with connect_sync(root, spawn=False) as other:
            assert other.welcome.pid == waiter.welcome.pid
            other.session("demo").append_message(message("hi"))
        assert isinstance(events.next_event(timeout=WAIT_S), RecordsEvent)
    (logged,) = [record.getMessage() for record in caplog.records]
    assert f"was killed and runs again, as pid {waiter.welcome.pid};" in logged


async def test_a_follower_alone_starts_no_daemon_and_returns_when_one_is_there(
    root: Path,
) -> None:
    async with connect(root) as follower:
        mirror = await follower.open("demo")
        await follower.drain()
        with pytest.raises(Unreachable):
            async with connect(root, spawn=False):
                pass
        async with connect(root) as writer:
            ack = await (await writer.open("demo")).append_message(message("hi"))
            with anyio.fail_after(30):
                await mirror.wait_for(ack.head)
        assert mirror.history == [message("hi")]


@pytest.mark.slow
async def test_without_its_daemon_a_request_at_an_endpoint_is_unreachable_in_time(
    root: Path,
) -> None:
    with ScriptedDaemon(root) as daemon:
        async with connect(endpoint=daemon.endpoint, timeout=3) as client:
            session = await client.open("demo", follow=False)
            daemon.__exit__(None, None, None)
            with anyio.fail_after(20), pytest.raises(Unreachable):
                await client.status()
            with anyio.fail_after(20), pytest.raises(Unreachable):
                await session.append_message(message("never sent"))


@pytest.mark.usefixtures("_no_resends")
async def test_busy_and_shutting_down_are_tried_again_until_they_pass(root: Path) -> None:
    codes = [ErrorCode.BUSY, ErrorCode.SHUTTING_DOWN, ErrorCode.EXPIRED, ErrorCode.BUSY]

    def unwilling(request: Request) -> Answers | None:
        if isinstance(request.command, commands.Append) and codes:
            return [(replies.ErrorReply(code=codes.pop(), message="later"), None)]
        return None

    with ScriptedDaemon(root, unwilling) as daemon:
        async with connect(endpoint=daemon.endpoint) as client:
            session = await client.open("demo")
            await session.append_message(message("hi"))
            assert len(session.history) == 1
        appends = [c for c in daemon.requests if isinstance(c, commands.Append)]
        assert [append.repeat for append in appends] == [False] * 5
        assert len({append.key for append in appends}) == 1


@pytest.mark.usefixtures("_no_resends")
async def test_an_ack_counts_although_the_session_is_deleted_before_its_event(
    root: Path,
) -> None:
    with ScriptedDaemon(root) as daemon:
        daemon.gone = "the session was deleted"
        async with connect(endpoint=daemon.endpoint) as client:
            session = await client.open("demo")
            assert (await session.append_message(message("hi"))).head == (0, 1)
            with pytest.raises(NotFound, match="open it again"):
                assert session.history
        with connect_sync(endpoint=daemon.endpoint) as blocking:
            opened = blocking.open("demo")
            assert opened.append_message(message("hi")).head == (0, 2)
            with pytest.raises(NotFound, match="open it again"):
                assert opened.history
        appends = [c for c in daemon.requests if isinstance(c, commands.Append)]
        assert len(appends) == 2


async def test_an_answer_of_the_wrong_kind_is_incompatible_for_one_request(root: Path) -> None:
    def odd(request: Request) -> Answers | None:
        if isinstance(request.command, commands.Status):
            return [(replies.Sessions(sessions=[]), None)]
        return None

    with ScriptedDaemon(root, odd) as daemon:
        async with connect(endpoint=daemon.endpoint) as client:
            with pytest.raises(Incompatible):
                await client.status()
            await client.open("demo")


async def test_an_unreadable_reply_reaches_every_waiting_caller(root: Path) -> None:
    def garbled(request: Request) -> Answers | None:
        match request.command:
            case commands.Append():
                return []
            case commands.Subscribe():
                return [
                    (replies.Subscribed(head="0:0", incarnation="i"), None),
                    (events.Records(first="0:-1", next="0:0"), b"{}\n"),
                ]
            case _:
                return None

    async def wait_in_vain(session: Session) -> None:
        with pytest.raises(OutcomeUnknown):
            await session.append_message(message("hi"))

    with ScriptedDaemon(root, garbled) as daemon:
        async with connect(endpoint=daemon.endpoint) as client, anyio.create_task_group() as tasks:
            tasks.start_soon(wait_in_vain, client.session("demo"))
            await anyio.wait_all_tasks_blocked()
            with pytest.raises(Incompatible, match="0:-1"):
                await client.open("demo")
            with pytest.raises(Incompatible):
                await client.status()
        with connect_sync(endpoint=daemon.endpoint) as blocking:
            with pytest.raises(Incompatible):
                blocking.open("demo")
            with pytest.raises(Incompatible):
                blocking.status()
