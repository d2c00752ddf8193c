"""The async client under `asyncio.run`, as most programs begin, with no help of anyio's runner."""

import asyncio
from pathlib import Path

import steno
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
