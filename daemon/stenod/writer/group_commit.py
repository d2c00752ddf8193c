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
    """The writers whose mailboxes were filled since the last group commit.

    An internal error in one session ends its writer's task, and no other session's commit.

    Args:
        services: what they work with.
    """

    def __init__(self, services: Services) -> None:
        self._services = services
        self._waiting: dict[Writer, None] = {}

    def add(self, writer: Writer) -> None:
        """Something was put into this writer's mailbox."""
        self._waiting[writer] = None

    def serve(self) -> None:
        """Serve the waiting writers; work that has to wait is left to their tasks."""
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
        # A few commands are not to wait until many others were decided on.
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

    A thread hop costs 0.075-0.14 ms, as much as a fast disk's sync, and a fast sync stops the other
    sessions no longer than they would wait for the interpreter. A slow one would stop all of them
    for as long as it takes. The time is measured either way. In a thread the wait for the
    interpreter adds to it, so the quicker quarter of the last few counts: that is the disk, and one
    hiccup changes nothing.

    Args:
        threads: runs it in a thread.
        is_disk_idle: returns False while another thread syncs: a sync returns when those that
            overlap it have, and the loop is not to wait for the sync of a long rewrite.
        clock: seconds that only rise.
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

    def here(self, work: Callable[[Sequence[L]], T], logs: Sequence[L]) -> tuple[T, float]:
        """See `Commits`."""
        started = self._clock()
        done = work(logs)
        took_s = self._clock() - started
        # Sixteen files together take two to three times as long as one.
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
        # What is fast stays fast by one more commit that is.
        if seconds >= limits.INLINE_SYNC_S or not self._is_fast:
            self._is_fast = sorted(self._took_s)[len(self._took_s) // 4] < limits.INLINE_SYNC_S
