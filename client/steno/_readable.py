"""Something that is done whenever a file descriptor is readable, by the event loop if it can."""

import asyncio
from collections.abc import Callable
from typing import Never

import anyio


async def whenever_readable(fd: int, act: Callable[[], None]) -> Never:
    """Call `act` now and whenever `fd` is readable, until cancelled; it must not raise.

    asyncio's loop calls it without waking a task: a task that waits for the descriptor anew each
    time costs two system calls and a turn of the loop more, for every answer of the daemon.
    """
    act()
    if _is_asyncio_task():
        await _called_by_loop(fd, act)
    while True:
        await anyio.wait_readable(fd)
        act()


def _is_asyncio_task() -> bool:
    # A trio that is a guest of asyncio's loop runs between its tasks, not in one.
    try:
        return asyncio.current_task() is not None
    except RuntimeError:
        return False


async def _called_by_loop(fd: int, act: Callable[[], None]) -> Never:
    loop = asyncio.get_running_loop()
    loop.add_reader(fd, act)
    try:
        while True:
            await anyio.sleep_forever()
    finally:
        loop.remove_reader(fd)
