"""Writers that got commands at the same time, served together without a task's turn for each.

While the disk is fast, a command is decided on, stored and answered right behind the burst that
brought it: waking a task for it would cost as much as the rest of the work. The sessions of a burst
are synced together, which costs the file system one commit of its journal instead of one each.
"""

from collections.abc import Iterable

from steno_protocol import limits
from stenod.runtime.services import Services
from stenod.store.jsonl import JsonlLog
from stenod.writer.batch import Batch
from stenod.writer.writer import Writer


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
        if not self._waiting:
            return
        waiting, self._waiting = self._waiting, {}
        if not self._services.commit.is_inline:
            for writer in waiting:
                writer.mailbox.wake()
            return
        if len(waiting) == 1:
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
        started = self._services.monotonic()
        errors = self._services.commit.here(JsonlLog.sync_all, logs)
        took_s = self._services.monotonic() - started
        for batch, error in zip(batches, errors, strict=True):
            batch.sync_s, batch.error = took_s, error
