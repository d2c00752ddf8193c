"""Blocking work in a thread that never outlives the wait of its caller."""

import threading
from collections.abc import Callable
from contextlib import suppress
from typing import TypeVar

import anyio
import anyio.to_thread

T = TypeVar("T")


async def in_thread(work: Callable[[], T]) -> T:
    """Run blocking work in a thread; a cancelled caller waits until the work has ended.

    asyncio's own cancellation, as of `asyncio.wait_for`, passes anyio's shield around the thread.
    Without this function the work would then go on while its caller uses the same objects. Work
    that has not begun by then is dropped.
    """
    # Taken by the first of the two: the thread, or the cancelled caller.
    claim = threading.Lock()
    has_ended = threading.Event()
    results: list[T] = []

    def claimed() -> None:
        if claim.acquire(blocking=False):
            try:
                results.append(work())
            finally:
                has_ended.set()

    try:
        await anyio.to_thread.run_sync(claimed)
    except BaseException:
        if not claim.acquire(blocking=False):
            await _until(has_ended)
        raise
    return results[0]


async def _until(has_ended: threading.Event) -> None:
    while not has_ended.is_set():
        # A second cancellation ends with the first one, which continues after this.
        with suppress(anyio.get_cancelled_exc_class()), anyio.CancelScope(shield=True):
            await anyio.to_thread.run_sync(has_ended.wait)
