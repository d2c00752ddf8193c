"""Group commit: the writers with new commands are served together, their files synced together.

While the disk is fast, a command is decided, stored and answered right after the burst of messages
that contained it: waking a task for it would cost as much as the rest of the work. One sync of
several files costs the file system one commit of its journal instead of one each.
"""

import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import TypeVar

import anyio
import anyio.lowlevel

from steno_protocol import limits
from stenod.runtime.executor import Blocking, NoThread
from stenod.writer.mailbox import Batch
from stenod.writer.services import Services
from stenod.writer.storing import store, store_soon
from stenod.writer.writer import Writer

T = TypeVar("T")


class GroupCommit:
    """The writers with commands since the last group commit.

    A commit runs on the event loop right after the burst of messages while the disk is fast, else
    in a thread; commands that arrive meanwhile are in the next one. Where several commits may be
    under way, the next one does not wait for a slow one, but for a quick one: one message for each
    of many sessions costs the servers less than many messages one by one. An internal error in one
    session ends its writer's task, and no other session's commit.
    """

    def __init__(self, services: Services) -> None:
        self._services = services
        self._waiting: dict[Writer, None] = {}
        self._tasks = 0
        self._is_next_due = False
        self._needed: anyio.Event | None = None
        # When each commit that is under way began.
        self._began_s: list[float] = []

    def add(self, writer: Writer) -> None:
        """Serve this writer in the next group commit."""
        self._waiting[writer] = None

    def serve(self) -> None:
        """Commit the waiting commands, or begin to do so in a thread while the disk is slow."""
        if not self._services.commit.is_inline:
            self._serve_soon()
            return
        waiting, self._waiting = self._waiting, {}
        if len(waiting) <= 1:
            self._serve(waiting)
        else:
            self._serve_short_queues_first(waiting)
        if self._waiting:
            self._serve_soon()

    def _serve_short_queues_first(self, waiting: Iterable[Writer]) -> None:
        """A writer with few commands does not wait until a long queue is decided."""
        few: list[Writer] = []
        many: list[Writer] = []
        for writer in waiting:
            (few if len(writer.mailbox) <= limits.HASTY_COMMANDS_MAX else many).append(writer)
        self._serve(few)
        self._serve(many)

    def _serve(self, waiting: Iterable[Writer]) -> None:
        begun = self._begin(waiting)
        if begun:
            work = partial(store, list(begun.values()), self._services.monotonic)
            try:
                self._services.commit.here(work, len(begun))
            except Exception as error:
                _give_up(begun, error)
                return
            self._end(begun)

    def _serve_soon(self) -> None:
        if not self._waiting:
            return
        if not self._tasks:
            self._tasks += 1
            if self._needed is None:
                self._services.spawn(self._keep_serving)
            else:
                self._needed.set()
                self._needed = None
        elif self._tasks < self._services.commit.groups_max:
            now_s = self._services.monotonic()
            wait_s = max(self._began_s, default=now_s) + limits.SLOW_GROUP_S - now_s
            if wait_s <= 0:
                self._tasks += 1
                self._services.spawn(self._serve_in_task)
            elif not self._is_next_due:
                self._is_next_due = True
                self._services.spawn(partial(self._serve_later, wait_s))

    async def _keep_serving(self) -> None:
        """Serve in this task whenever no other one does: a new task would cost 20 us."""
        while True:
            await self._serve_in_task()
            self._needed = needed = anyio.Event()
            await needed.wait()

    async def _serve_later(self, wait_s: float) -> None:
        """Look again once the newest of the commits under way counts as slow."""
        await anyio.sleep(wait_s)
        self._is_next_due = False
        self._serve_soon()

    async def _serve_in_task(self) -> None:
        """Commit what waits, and what comes meanwhile, one commit of this task at a time."""
        try:
            while self._waiting:
                waiting, self._waiting = self._waiting, {}
                begun = self._begin(waiting)
                try:
                    if begun:
                        await self._store(begun)
                except Exception as error:
                    _give_up(begun, error)
                else:
                    self._end(begun)
                # An inline commit does not wait, and the other tasks need their turn.
                await anyio.lowlevel.checkpoint()
        finally:
            self._tasks -= 1

    async def _store(self, begun: Mapping[Writer, Batch]) -> None:
        for writer in begun:
            writer.hold()
        began_s = self._services.monotonic()
        self._began_s.append(began_s)
        try:
            await store_soon(list(begun.values()), self._services)
        finally:
            self._began_s.remove(began_s)
            for writer in begun:
                writer.release()

    def _begin(self, waiting: Iterable[Writer]) -> dict[Writer, Batch]:
        begun: dict[Writer, Batch] = {}
        for writer in waiting:
            try:
                batch = writer.begin()
            except Exception as error:
                writer.give_up(error)
                continue
            if batch is not None:
                begun[writer] = batch
            if writer.mailbox and not writer.is_serving:
                # More commands wait than one batch takes.
                self._waiting[writer] = None
        return begun

    def _end(self, begun: Mapping[Writer, Batch]) -> None:
        """Send the replies, those of stored batches too, then update state and followers."""
        answered: list[Writer] = []
        for writer, batch in begun.items():
            try:
                if writer.answer(batch):
                    answered.append(writer)
            except Exception as error:
                writer.give_up(error)
        # Housekeeping runs after replies are sent.
        self._services.flush()
        for writer in answered:
            try:
                writer.conclude(begun[writer])
            except Exception as error:
                writer.give_up(error)


def _give_up(writers: Iterable[Writer], error: Exception) -> None:
    """End these writers: what their files have of a commit that failed inside is not known."""
    for writer in writers:
        writer.give_up(error)


class AdaptiveCommits:
    """Runs a commit inline while the disk is fast, else in a thread.

    A thread hop costs 0.075-0.14 ms, as much as the sync of a fast disk, and a fast sync delays the
    other sessions no longer than the interpreter would. A slow sync would delay all of them. Each
    commit is timed. In a thread, the wait for the interpreter adds to the time, so the fastest
    quarter of the last few commits decides: it shows the disk, and one slow commit changes nothing.

    Args:
        threads: runs a commit in a thread.
        is_disk_idle: returns False while another thread syncs: a sync returns only after the syncs
            that overlap it, and the loop must not wait for the sync of a long rewrite.
        clock: seconds on a clock that never goes back.
        groups_max: see `Commits`.
        may_block: False for a disk that needs the event loop, and so must never block it.
    """

    def __init__(
        self,
        threads: Blocking,
        is_disk_idle: Callable[[], bool] = lambda: True,
        clock: Callable[[], float] = time.perf_counter,
        groups_max: int = 1,
        *,
        may_block: bool = True,
    ) -> None:
        self._may_block = may_block
        self.groups_max = groups_max
        self._clock = clock
        self._threads = threads
        self._is_disk_idle = is_disk_idle
        self._took_s: deque[float] = deque(maxlen=limits.SYNCS_REMEMBERED_MAX)
        self._is_fast = True
        self._in_threads = 0

    async def __call__(self, work: Callable[[], T], files: int = 1) -> T:
        """Run `work` inline or in a thread."""
        if self.is_inline:
            return self.here(work, files)
        self._in_threads += 1
        try:
            return await self._in_thread(lambda: self.here(work, files))
        finally:
            self._in_threads -= 1

    async def _in_thread(self, work: Callable[[], T]) -> T:
        attempts_left = limits.THREAD_ATTEMPTS_MAX
        while True:
            try:
                return await self._threads(work)
            except NoThread:
                # The commands behind this commit wait for it.
                if self._may_block:
                    return work()
                attempts_left -= 1
                if not attempts_left:
                    raise
                await anyio.sleep(limits.THREAD_RETRY_S)

    @property
    def is_inline(self) -> bool:
        """See `Commits`. False while another commit is in a thread, which would delay this one."""
        may_run = self._may_block and self._is_fast and not self._in_threads
        return may_run and self._is_disk_idle()

    def here(self, work: Callable[[], T], files: int = 1) -> T:
        """See `Commits`."""
        started = self._clock()
        try:
            return work()
        finally:
            # A sync of sixteen files takes two to three times as long as the sync of one.
            self._took((self._clock() - started) / (2 if files > 1 else 1))

    def _took(self, seconds: float) -> None:
        self._took_s.append(seconds)
        # A fast commit cannot make a fast disk slow.
        if seconds >= limits.INLINE_SYNC_S or not self._is_fast:
            self._is_fast = sorted(self._took_s)[len(self._took_s) // 4] < limits.INLINE_SYNC_S
