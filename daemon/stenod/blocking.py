"""Where blocking work runs: on the event loop, in a thread, or whichever is cheaper right now.

A writer is given one of these functions, so that the simulator can run everything inline and a
seed reproduces.
"""

import time
from collections import deque
from collections.abc import Callable
from typing import Protocol, TypeVar

import anyio.to_thread

from steno_protocol import limits

T = TypeVar("T")


class Blocking(Protocol):
    """Runs blocking work and returns, or raises, what it does."""

    async def __call__(self, work: Callable[[], T]) -> T:
        """Run `work`; cancellation waits until it has ended."""
        ...


async def inline(work: Callable[[], T]) -> T:
    """Run the work here: for the simulator, and for work that is known to be short."""
    return work()


async def in_thread(work: Callable[[], T]) -> T:
    """Run the work in a thread, so that the loop goes on: for reads and copies of any length."""
    return await anyio.to_thread.run_sync(work)


class Adaptive:
    """Runs a commit inline while the disk is fast and nobody else waits, else in a thread.

    A thread hop costs 0.075-0.14 ms, as much as a fast disk's sync. It pays when several files are
    dirty, because a file system syncs two at once in hardly more time than one, and when the disk
    is slow, because an inline sync stops every other session. The time that the work takes is
    measured either way; the middle of the last few counts, so that one hiccup changes nothing.

    Args:
        threads: runs it in a thread.
        others_wait: whether there is other work to be done meanwhile.
    """

    def __init__(self, threads: Blocking, others_wait: Callable[[], bool]) -> None:
        self._threads = threads
        self._others_wait = others_wait
        self._took_s: deque[float] = deque(maxlen=limits.SYNCS_REMEMBERED_MAX)
        self._is_fast = True
        self._in_threads = 0

    async def __call__(self, work: Callable[[], T]) -> T:
        """Run `work` where it costs least."""
        if self._is_fast and not self._in_threads and not self._others_wait():
            return self._timed(work)
        self._in_threads += 1
        try:
            return await self._threads(lambda: self._timed(work))
        finally:
            self._in_threads -= 1

    def _timed(self, work: Callable[[], T]) -> T:
        started = time.perf_counter()
        try:
            return work()
        finally:
            self._took_s.append(time.perf_counter() - started)
            self._is_fast = sorted(self._took_s)[len(self._took_s) // 2] < limits.INLINE_SYNC_S
