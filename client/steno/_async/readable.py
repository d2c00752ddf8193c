"""A callback whenever a file descriptor is readable."""

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
    loop = asyncio_loop()
    if loop is not None:
        await _called_by_loop(loop, fd, act)
    while True:
        await anyio.wait_readable(fd)
        act()


def asyncio_loop() -> asyncio.AbstractEventLoop | None:
    """The loop of the present task, None when that is no task of asyncio's."""
    # A trio that is a guest of asyncio's loop runs between its tasks, not in one.
    try:
        return asyncio.get_running_loop() if asyncio.current_task() is not None else None
    except RuntimeError:
        return None


async def _called_by_loop(
    loop: asyncio.AbstractEventLoop, fd: int, act: Callable[[], None]
) -> Never:
    loop.add_reader(fd, act)
    try:
        while True:
            await anyio.sleep_forever()
    finally:
        loop.remove_reader(fd)
