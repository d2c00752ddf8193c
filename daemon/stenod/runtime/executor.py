"""Where blocking work runs: in anyio's threads, a bounded number at a time."""

import errno
from collections.abc import Awaitable, Callable
from typing import Protocol, TypeVar

from anyio import CapacityLimiter, to_thread

T = TypeVar("T")

Spawn = Callable[[Callable[[], Awaitable[None]]], None]
"""Starts a task in the background."""


class NoThread(OSError):
    """The system has no thread left: the work has not begun.

    Args:
        why: the error of the system's library.
    """

    def __init__(self, why: str) -> None:
        super().__init__(errno.EAGAIN, f"the system gives the daemon no thread ({why})")


class Blocking(Protocol):
    """Runs blocking work and returns, or raises, what it does."""

    async def __call__(self, work: Callable[[], T]) -> T:
        """Run `work`; cancellation waits until it has ended."""
        ...


async def in_thread(work: Callable[[], T]) -> T:
    """Run the work in a thread, so that the loop goes on: for reads and copies of any length."""
    return await to_thread.run_sync(work)


class Threads:
    """A `Blocking` that runs work in anyio's worker threads.

    Args:
        count_max: threads at most; further work waits.
    """

    def __init__(self, count_max: int) -> None:
        self._limiter = CapacityLimiter(count_max)

    async def __call__(self, work: Callable[[], T]) -> T:
        """Run `work` in a thread; cancellation waits until it has ended.

        Raises:
            NoThread: the system has no thread left; `work` has not begun.
        """
        has_begun = False

        def begin() -> T:
            nonlocal has_begun
            has_begun = True
            return work()

        try:
            return await to_thread.run_sync(begin, limiter=self._limiter)
        except RuntimeError as error:
            if has_begun:
                raise
            raise NoThread(str(error)) from error
