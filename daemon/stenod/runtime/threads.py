"""Threads for work that waits for a disk: anyio's, a bounded number at a time."""

from collections.abc import Callable
from typing import TypeVar

from anyio import CapacityLimiter, to_thread

from stenod.runtime.internal_errors import NoThread

T = TypeVar("T")


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
