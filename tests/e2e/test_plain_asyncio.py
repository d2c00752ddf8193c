"""The async client under `asyncio.run`, as most programs begin, with no help of anyio's runner."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

import anyio.lowlevel
import pytest

import steno
from steno._transport import Connection
from steno_protocol import limits

MANY = 3 * limits.CLIENT_TURN_MESSAGES


def append_many(root: Path) -> None:
    """Let another client append so much that it comes as many messages."""
    with steno.connect_sync(root) as client:
        session = client.open("demo", follow=False)
        for number in range(MANY):
            session.append_message({"role": "user", "content": str(number)})


def test_a_history_is_whole_after_its_loop_was_busy_while_much_came(root: Path) -> None:
    async def main() -> None:
        async with steno.connect(root) as client:
            session = await client.open("demo")
            # In this very thread: the loop stands still meanwhile.
            append_many(root)
            async with asyncio.timeout(30):
                await session.wait_for(f"0:{MANY}")
            assert [message["content"] for message in session.history] == list(
                map(str, range(MANY))
            )

    asyncio.run(main())


def test_a_subscription_ends_with_what_was_written_last(root: Path) -> None:
    async def main() -> None:
        async with steno.connect(root) as client:
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


def test_many_requests_at_once_are_all_answered(root: Path) -> None:
    async def main() -> None:
        async with steno.connect(root) as client:
            session = await client.open("demo")
            messages = [{"role": "user", "content": str(number)} for number in range(MANY)]
            acks = await asyncio.gather(*map(session.append_message, messages))
            assert len({ack.first for ack in acks}) == MANY
            assert len(session.history) == MANY

    asyncio.run(main())


def test_those_who_are_answered_together_ask_together(
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
        async with steno.connect(root) as client:
            session = await client.open("demo", follow=False)

            async def agent() -> None:
                for number in range(10):
                    await session.append_message({"role": "user", "content": str(number)})

            monkeypatch.setattr(Connection, "send", counted_send)
            monkeypatch.setattr(Connection, "receive", counted_receive)
            await asyncio.gather(*(agent() for _ in range(50)))

    asyncio.run(main())
    # The first goes alone, as nobody knows that others follow; the rest of its turn goes together,
    # and so does what each message from the daemon brings about.
    assert len(sent) <= 2 + len(received)


async def messages(root: Path) -> AsyncGenerator[int, None]:
    """A client in a generator, which whoever closes the generator leaves."""
    async with steno.connect(root) as client:
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
    client = steno.connect(root)
    await asyncio.create_task(client.__aenter__())
    session = await client.open("demo")
    await session.append_message({"role": "user", "content": "x"})
    await asyncio.create_task(client.__aexit__(None, None, None))


async def left_while_it_is_cancelled(root: Path) -> None:
    client = steno.connect(root)
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
def test_whoever_leaves_a_client_no_task_is_cancelled_and_none_stays(
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


def test_who_waits_is_told_when_a_program_cancels_all_other_tasks(root: Path) -> None:
    async def main() -> None:
        client = steno.connect(root)
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


def test_a_client_that_is_closed_ends_the_waits_of_other_tasks(root: Path) -> None:
    async def main() -> None:
        client = steno.connect(root)
        await client.__aenter__()
        session = await client.open("demo")
        waiting = asyncio.create_task(session.wait_for("0:9"))
        await anyio.lowlevel.checkpoint()
        await client.__aexit__(None, None, None)
        with pytest.raises(steno.Unreachable, match="closed"):
            await waiting

    asyncio.run(main())
