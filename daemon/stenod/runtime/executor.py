"""Where work runs: on the event loop, in a thread, whichever is cheaper, or in the background.

A writer is given one of these functions, so that the simulator can run everything inline and a
seed reproduces.
"""

import time
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol, TypeVar

import anyio.to_thread

from steno_protocol import limits
from stenod.runtime.internal_errors import NoThread

T = TypeVar("T")
L = TypeVar("L")

Spawn = Callable[[Callable[[], Awaitable[None]]], None]
"""Starts a task in the background."""


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


class Commits(Blocking, Protocol):
    """Runs commits, and measures their time."""

    @property
    def is_inline(self) -> bool:
        """True while they are so short that they may run on the event loop."""
        ...

    def here(self, work: Callable[[Sequence[L]], T], logs: Sequence[L]) -> T:
        """Run `work(logs)`, which commits these logs together, on the event loop."""
        ...


class Adaptive:
    """Runs a commit inline while the disk is fast, else in a thread.

    A thread hop costs 0.075-0.14 ms, as much as a fast disk's sync, and a fast sync stops the other
    sessions no longer than they would wait for the interpreter. A slow one would stop all of them
    for as long as it takes. The time is measured either way. In a thread the wait for the
    interpreter adds to it, so the quicker quarter of the last few counts: that is the disk, and one
    hiccup changes nothing.

    Args:
        threads: runs it in a thread.
        is_disk_idle: returns False while another thread syncs: a sync returns when those that
            overlap it have, and the loop is not to wait for the sync of a long rewrite.
    """

    def __init__(self, threads: Blocking, is_disk_idle: Callable[[], bool] = lambda: True) -> None:
        self._threads = threads
        self._is_disk_idle = is_disk_idle
        self._took_s: deque[float] = deque(maxlen=limits.SYNCS_REMEMBERED_MAX)
        self._is_fast = True
        self._in_threads = 0

    async def __call__(self, work: Callable[[], T]) -> T:
        """Run `work` where it costs least."""
        if self.is_inline:
            return self._timed(work)
        self._in_threads += 1
        try:
            return await self._threads(lambda: self._timed(work))
        except NoThread:
            # Others wait meanwhile, and would wait for ever for a thread.
            return self._timed(work)
        finally:
            self._in_threads -= 1

    @property
    def is_inline(self) -> bool:
        """See `Commits`; while one is in a thread, the others would wait for its turn anyway."""
        return self._is_fast and not self._in_threads and self._is_disk_idle()

    def here(self, work: Callable[[Sequence[L]], T], logs: Sequence[L]) -> T:
        """See `Commits`."""
        started = time.perf_counter()
        try:
            return work(logs)
        finally:
            # Sixteen files together take two to three times as long as one.
            self._took((time.perf_counter() - started) / (2 if len(logs) > 1 else 1))

    def _timed(self, work: Callable[[], T]) -> T:
        started = time.perf_counter()
        try:
            return work()
        finally:
            self._took(time.perf_counter() - started)

    def _took(self, seconds: float) -> None:
        self._took_s.append(seconds)
        # What is fast stays fast by one more commit that is.
        if seconds >= limits.INLINE_SYNC_S or not self._is_fast:
            self._is_fast = sorted(self._took_s)[len(self._took_s) // 4] < limits.INLINE_SYNC_S
