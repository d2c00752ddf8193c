"""Where blocking work runs: on the event loop, in a thread, or whichever is cheaper right now.

A writer is given one of these functions, so that the simulator can run everything inline and a
seed reproduces.
"""

import time
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
    """Runs a commit inline while the disk is fast, and in a thread while it is not.

    A thread hop costs 0.075-0.14 ms, as much as a fast disk's sync; a slow disk's sync would stop
    every other session. The time that the work takes is measured either way, and one slow commit
    is enough to leave the loop alone.
    """

    def __init__(self) -> None:
        self._expected_s = 0.0

    async def __call__(self, work: Callable[[], T]) -> T:
        """Run `work` where it costs least."""
        if self._expected_s < limits.INLINE_SYNC_S:
            return self._timed(work)
        return await in_thread(lambda: self._timed(work))

    def _timed(self, work: Callable[[], T]) -> T:
        started = time.perf_counter()
        try:
            return work()
        finally:
            took_s = time.perf_counter() - started
            self._expected_s += (took_s - self._expected_s) * (
                0.5 if took_s > self._expected_s else 0.1
            )
