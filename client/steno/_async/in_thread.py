"""Blocking work beside the event loop, of which nothing goes on when its caller has gone on."""

import threading
from collections.abc import Callable
from contextlib import suppress
from typing import TypeVar

import anyio
import anyio.to_thread

T = TypeVar("T")


async def in_thread(work: Callable[[], T]) -> T:
    """Run blocking work beside the event loop; a cancelled caller waits until it has ended.

    Also one that asyncio itself cancels, as `asyncio.wait_for` does: that reaches through the
    shield that anyio puts around a thread, which would go on while its caller does something else
    with what they share. What has not begun by then is left undone.
    """
    # Taken by the first of the two: the thread, or the caller that gives up.
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
