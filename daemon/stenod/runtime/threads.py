"""Threads for work that waits for a disk, handed out and taken back with few wake-ups."""

import asyncio
import queue
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Any, TypeVar

import anyio
import msgspec

from steno_protocol import limits
from stenod.runtime.internal_errors import NoThread

T = TypeVar("T")


class _Job(msgspec.Struct, eq=False):
    work: Callable[[], Any]
    ended: "asyncio.Future[Any]"
    result: Any = None
    error: BaseException | None = None


class Threads:
    """A `Blocking` with threads of its own, for the event loop that it was first used on.

    A job costs a third of what it costs with anyio's threads, and two jobs that end together wake
    the loop once. Threads are started when they are needed, and end with the process.

    Args:
        count_max: threads at most; what comes while all are busy waits.
    """

    def __init__(self, count_max: int) -> None:
        self._count_max = count_max
        self._count = 0
        self._under_way = 0
        self._jobs: queue.SimpleQueue[_Job] = queue.SimpleQueue()
        self._ended: deque[_Job] = deque()
        self._is_told = False

    async def __call__(self, work: Callable[[], T]) -> T:
        """Run `work` in a thread; cancellation waits until it has ended.

        Raises:
            NoThread: there is none, and none can be started; `work` has not begun.
        """
        loop = asyncio.get_running_loop()
        job = _Job(work, loop.create_future())
        if self._under_way >= self._count and self._count < self._count_max:
            self._start_one(loop)
        self._under_way += 1
        self._jobs.put(job)
        with anyio.CancelScope(shield=True):
            await job.ended
        if job.error is not None:
            raise job.error
        result: T = job.result
        return result

    def _start_one(self, loop: asyncio.AbstractEventLoop) -> None:
        try:
            threading.Thread(target=self._serve, args=(loop,), daemon=True).start()
        except RuntimeError as error:
            # The system has no more of them; those that there are do the work.
            if self._count == 0:
                raise NoThread(str(error)) from error
        else:
            self._count += 1

    def _serve(self, loop: asyncio.AbstractEventLoop) -> None:
        while True:
            job = self._jobs.get()
            try:
                job.result = job.work()
            except BaseException as error:
                job.error = error
            self._ended.append(job)
            if not self._is_told:
                # Set before the loop is notified and reset before it checks: a job that ends in
                # between is found by that check, or notifies again.
                self._is_told = True
                if not self._notify(loop):
                    return
            del job

    def _notify(self, loop: asyncio.AbstractEventLoop) -> bool:
        """Notify the loop; False when it was closed and no caller waits."""
        while True:
            try:
                loop.call_soon_threadsafe(self._take_back)
            except RuntimeError:
                return False
            except MemoryError:
                # If the thread ended here, its waiting callers would wait for ever.
                time.sleep(limits.OUT_OF_MEMORY_PAUSE_S)
            else:
                return True

    def _take_back(self) -> None:
        self._is_told = False
        while self._ended:
            job = self._ended.popleft()
            self._under_way -= 1
            if not job.ended.done():
                job.ended.set_result(None)
