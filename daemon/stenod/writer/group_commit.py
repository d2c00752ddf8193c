"""Group commit: the writers with new commands are served together, their files synced together.

While the disk is fast, a command is decided, stored and answered right after the burst of messages
that contained it: waking a task for it would cost as much as the rest of the work. One sync of
several files costs the file system one commit of its journal instead of one each.
"""

import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

from steno_protocol import limits
from stenod.runtime.executor import Blocking, NoThread
from stenod.store.jsonl import JsonlLog
from stenod.writer.mailbox import Batch
from stenod.writer.services import Services
from stenod.writer.writer import Writer

T = TypeVar("T")
L = TypeVar("L")


class GroupCommit:
    """The writers with commands since the last group commit.

    An internal error in one session ends its writer's task, and no other session's commit.
    """

    def __init__(self, services: Services) -> None:
        self._services = services
        self._waiting: dict[Writer, None] = {}

    def add(self, writer: Writer) -> None:
        """Serve this writer in the next group commit."""
        self._waiting[writer] = None

    def serve(self) -> None:
        """Commit the waiting commands, or wake the writers' tasks while the disk is slow."""
        waiting, self._waiting = self._waiting, {}
        if not self._services.commit.is_inline:
            for writer in waiting:
                writer.mailbox.wake()
            return
        if len(waiting) <= 1:
            self._serve(waiting)
            return
        few: list[Writer] = []
        many: list[Writer] = []
        for writer in waiting:
            (few if len(writer.mailbox) <= limits.HASTY_COMMANDS_MAX else many).append(writer)
        # A writer with few commands does not wait until the commands of a long queue are decided.
        self._serve(few)
        self._serve(many)

    def _serve(self, waiting: Iterable[Writer]) -> None:
        begun: list[tuple[Writer, Batch]] = []
        for writer in waiting:
            try:
                batch = writer.begin()
            except Exception as error:
                writer.give_up(error)
                continue
            if batch is not None:
                begun.append((writer, batch))
        if begun:
            self._commit(begun)

    def _commit(self, begun: list[tuple[Writer, Batch]]) -> None:
        self._sync(begun)
        answered: list[tuple[Writer, Batch]] = []
        for writer, batch in begun:
            try:
                if writer.answer(batch):
                    answered.append((writer, batch))
            except Exception as error:
                writer.give_up(error)
        # Housekeeping runs after replies are sent.
        self._services.flush()
        for writer, batch in answered:
            try:
                writer.conclude(batch)
            except Exception as error:
                writer.give_up(error)

    def _sync(self, begun: list[tuple[Writer, Batch]]) -> None:
        batches: list[Batch] = []
        logs: list[JsonlLog] = []
        for _, batch in begun:
            if batch.synced and batch.error is None:
                batches.append(batch)
                logs.append(batch.opened.log)
        if not logs:
            return
        errors, took_s = self._services.commit.here(JsonlLog.sync_all, logs)
        for batch, error in zip(batches, errors, strict=True):
            batch.sync_s, batch.error = took_s, error


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
    """

    def __init__(
        self,
        threads: Blocking,
        is_disk_idle: Callable[[], bool] = lambda: True,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self._clock = clock
        self._threads = threads
        self._is_disk_idle = is_disk_idle
        self._took_s: deque[float] = deque(maxlen=limits.SYNCS_REMEMBERED_MAX)
        self._is_fast = True
        self._in_threads = 0

    async def __call__(self, work: Callable[[], T]) -> T:
        """Run `work` inline or in a thread."""
        if self.is_inline:
            return self._timed(work)
        self._in_threads += 1
        try:
            return await self._threads(lambda: self._timed(work))
        except NoThread:
            # The system may never have another thread; the commands behind this commit wait for it.
            return self._timed(work)
        finally:
            self._in_threads -= 1

    @property
    def is_inline(self) -> bool:
        """See `Commits`. False while another commit is in a thread, which would delay this one."""
        return self._is_fast and not self._in_threads and self._is_disk_idle()

    def here(self, work: Callable[[Sequence[L]], T], logs: Sequence[L]) -> tuple[T, float]:
        """See `Commits`."""
        started = self._clock()
        done = work(logs)
        took_s = self._clock() - started
        # A sync of sixteen files takes two to three times as long as the sync of one.
        self._took(took_s / (2 if len(logs) > 1 else 1))
        return done, took_s

    def _timed(self, work: Callable[[], T]) -> T:
        started = self._clock()
        try:
            return work()
        finally:
            self._took(self._clock() - started)

    def _took(self, seconds: float) -> None:
        self._took_s.append(seconds)
        # A fast commit cannot make a fast disk slow.
        if seconds >= limits.INLINE_SYNC_S or not self._is_fast:
            self._is_fast = sorted(self._took_s)[len(self._took_s) // 4] < limits.INLINE_SYNC_S
