"""The async client under `asyncio.run`, without anyio's runner."""

import asyncio
import json
import threading
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

import anyio.lowlevel
import pytest

import steno
from steno._connect.connection import Connection
from steno._connect.safe_open import SourceFile
from steno.adapters._file_session import FileSession
from steno.adapters.kosong import StenoLinearStorage
from steno_protocol import limits

pytestmark = pytest.mark.usefixtures("daemon")

MANY = 3 * limits.CLIENT_TURN_MESSAGES


def append_many(root: Path) -> None:
    """Append so much by another client that it arrives as many messages."""
    with steno.connect_sync(root, spawn=False) as client:
        session = client.open("demo", follow=False)
        for number in range(MANY):
            session.append_message({"role": "user", "content": str(number)})


def test_history_is_complete_after_its_loop_was_blocked(root: Path) -> None:
    async def main() -> None:
        async with steno.connect(root, spawn=False) as client:
            session = await client.open("demo")
            # In this thread, so the loop is blocked meanwhile.
            append_many(root)
            async with asyncio.timeout(30):
                await session.wait_for(f"0:{MANY}")
            assert [message["content"] for message in session.history] == list(
                map(str, range(MANY))
            )

    asyncio.run(main())


def test_subscription_receives_the_last_record(root: Path) -> None:
    async def main() -> None:
        async with steno.connect(root, spawn=False) as client:
            session = await client.open("demo", follow=False)
            lines = 0
            async with asyncio.timeout(30):
                async for event in session.subscribe():
                    match event:
                        case steno.Live():
                            append_many(root)
                        case steno.RecordsEvent():
                            lines += len(event.lines())
                            if lines == MANY:
                                break
                        case _:
                            pass

    asyncio.run(main())


def test_callers_with_replies_in_one_message_send_one_message(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent: list[Sequence[bytes]] = []
    received: list[list[bytes]] = []
    send, receive = Connection.send, Connection.receive

    def counted_send(connection: Connection, frames: Sequence[bytes]) -> bool:
        sent.append(frames)
        return send(connection, frames)

    def counted_receive(connection: Connection, messages_max: int) -> list[list[bytes]]:
        messages = receive(connection, messages_max)
        received.extend(messages)
        return messages

    async def main() -> None:
        async with steno.connect(root, spawn=False) as client:
            session = await client.open("demo", follow=False)

            async def agent() -> None:
                for number in range(10):
                    await session.append_message({"role": "user", "content": str(number)})

            monkeypatch.setattr(Connection, "send", counted_send)
            monkeypatch.setattr(Connection, "receive", counted_receive)
            await asyncio.gather(*(agent() for _ in range(50)))

    asyncio.run(main())
    # The first request is sent alone, before the others exist. The others of that turn share one
    # message, and so do the requests that follow each message of the daemon.
    assert len(sent) <= 2 + len(received)


async def messages(root: Path) -> AsyncGenerator[int, None]:
    """A client in a generator; the task that closes the generator leaves the client."""
    async with steno.connect(root, spawn=False) as client:
        session = await client.open("demo")
        for number in range(3):
            await session.append_message({"role": "user", "content": str(number)})
            yield number


async def left_to_the_loop(root: Path) -> None:
    async for _ in messages(root):
        break


async def closed_by_another_task(root: Path) -> None:
    generator = messages(root)
    await anext(generator)
    await asyncio.create_task(generator.aclose())


async def entered_and_left_by_two_tasks(root: Path) -> None:
    client = steno.connect(root, spawn=False)
    await asyncio.create_task(client.__aenter__())
    session = await client.open("demo")
    await session.append_message({"role": "user", "content": "x"})
    await asyncio.create_task(client.__aexit__(None, None, None))


async def left_while_it_is_cancelled(root: Path) -> None:
    client = steno.connect(root, spawn=False)
    await client.__aenter__()
    leaving = asyncio.create_task(client.__aexit__(None, None, None))
    await anyio.lowlevel.checkpoint()
    leaving.cancel()
    with pytest.raises(asyncio.CancelledError):
        await leaving


@pytest.mark.parametrize(
    "use",
    [
        left_to_the_loop,
        closed_by_another_task,
        entered_and_left_by_two_tasks,
        left_while_it_is_cancelled,
    ],
)
def test_leaving_a_client_cancels_no_other_task_and_leaves_no_task(
    root: Path, use: Callable[[Path], Awaitable[None]]
) -> None:
    complaints: list[dict[str, Any]] = []

    async def main() -> str:
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _, complaint: complaints.append(complaint))
        await use(root)
        left = asyncio.all_tasks() - {asyncio.current_task()}
        if left and use is not left_to_the_loop:
            assert not (await asyncio.wait(left, timeout=30))[1]
        return "the program's result"

    assert asyncio.run(main()) == "the program's result"
    assert complaints == []


def test_waiting_caller_gets_an_error_when_the_link_task_is_cancelled(root: Path) -> None:
    async def main() -> None:
        client = steno.connect(root, spawn=False)
        await client.__aenter__()
        session = await client.open("demo")
        others = asyncio.all_tasks() - {asyncio.current_task()}
        waiting = asyncio.create_task(session.wait_for("0:9"))
        await anyio.lowlevel.checkpoint()
        for task in others:
            task.cancel()
        async with asyncio.timeout(30):
            with pytest.raises(steno.Unreachable, match="closed"):
                await waiting
            with pytest.raises(steno.BadRequest, match="not connected"):
                await client.status()
            await client.__aexit__(None, None, None)

    asyncio.run(main())


def test_closing_a_client_ends_the_waits_of_other_tasks(root: Path) -> None:
    async def main() -> None:
        client = steno.connect(root, spawn=False)
        await client.__aenter__()
        session = await client.open("demo")
        waiting = asyncio.create_task(session.wait_for("0:9"))
        await anyio.lowlevel.checkpoint()
        await client.__aexit__(None, None, None)
        with pytest.raises(steno.Unreachable, match="closed"):
            await waiting

    asyncio.run(main())


class Gate:
    """Blocks work in threads, after it has begun, until the gate is opened."""

    def __init__(self) -> None:
        self.is_reached = threading.Event()
        self._is_open = threading.Event()

    def before(self, work: Callable[..., Any]) -> Callable[..., Any]:
        """The work, behind the gate."""

        def held(*arguments: Any) -> Any:
            self.is_reached.set()
            assert self._is_open.wait(30)
            return work(*arguments)

        return held

    async def is_kept_by(self, work: Awaitable[Any]) -> bool:
        """Cancel a task that waits at the gate; True when it waits until its work ends."""
        task = asyncio.ensure_future(work)
        assert await asyncio.to_thread(self.is_reached.wait, 30)
        for _ in range(3):
            task.cancel()
            for _ in range(10):
                await anyio.lowlevel.checkpoint()
        is_kept = not task.done()
        self._is_open.set()
        with pytest.raises(asyncio.CancelledError):
            await task
        return is_kept


def test_stream_with_a_cancelled_reader_gives_each_line_once(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def main() -> None:
        async with steno.connect(root, spawn=False) as client:
            session = await client.open("demo", follow=False)
            sent = [{"role": "user", "content": f"{number} {'x' * 1000}"} for number in range(4000)]
            await session.append_message(sent)
            gate = Gate()
            monkeypatch.setattr(SourceFile, "read", gate.before(SourceFile.read))
            lines = session.lines()
            # The first lines come from the daemon, before the file is read.
            taken: list[bytes] = []

            async def take() -> None:
                while True:
                    taken.append(await anext(lines))

            assert await gate.is_kept_by(take())
            taken += [line async for line in lines]
            contents = [json.loads(line)["content"] for line in taken]
            assert contents == [message["content"] for message in sent]

    asyncio.run(main())


class Note:
    """A message with as much of a pydantic model as an adapter needs."""

    def __init__(self, content: str) -> None:
        self.content = content

    def model_dump_json(self, *, exclude_none: bool) -> str:
        return json.dumps({"role": "user", "content": self.content})

    @classmethod
    def model_validate(cls, record: dict[str, Any]) -> "Note":
        return cls(record["content"])


def test_cancelled_adapter_call_ends_before_the_next_one_begins(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STENO_HOME", str(root))
    (root / "sessions" / "demo").mkdir(parents=True)
    path = root / "sessions" / "demo" / "context.jsonl"

    async def main() -> None:
        storage = StenoLinearStorage(path, message_type=Note)
        await storage.append_message(Note("first"))
        gate = Gate()
        monkeypatch.setattr(FileSession, "append", gate.before(FileSession.append))
        assert await gate.is_kept_by(storage.append_message(Note("cancelled")))
        monkeypatch.undo()
        monkeypatch.setenv("STENO_HOME", str(root))
        await storage.append_message(Note("last"))
        assert [note.content for note in storage.messages] == ["first", "cancelled", "last"]

    asyncio.run(main())
