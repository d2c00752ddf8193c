"""Writers that got commands at the same time, served together without a task's turn for each.

While the disk is fast, a command is decided on, stored and answered right behind the burst that
brought it: waking a task for it would cost as much as the rest of the work. The sessions of a burst
are synced together, which costs the file system one commit of its journal instead of one each.
"""

from steno_protocol import limits
from stenod.runtime.services import Services
from stenod.store.jsonl import JsonlLog
from stenod.writer.batch import Commit
from stenod.writer.writer import Writer


class Round:
    """The writers whose mailboxes were filled since the last round.

    Args:
        workshop: what they work with.
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
        few: list[Writer] = []
        many: list[Writer] = []
        for writer in waiting:
            (few if len(writer.mailbox) <= limits.HASTY_COMMANDS_MAX else many).append(writer)
        # A few commands are not to wait until many others were decided on.
        for together in filter(None, (few, many)):
            self._serve(together)

    def _serve(self, waiting: list[Writer]) -> None:
        begun = [(writer, commit) for writer in waiting if (commit := _begin(writer)) is not None]
        if begun:
            self._sync([commit for _, commit in begun if commit.synced and commit.error is None])
            answered = [(writer, commit) for writer, commit in begun if _answer(writer, commit)]
            # Housekeeping runs after replies are sent.
            self._services.flush()
            for writer, commit in answered:
                _conclude(writer, commit)

    def _sync(self, commits: list[Commit]) -> None:
        if not commits:
            return
        started = self._services.monotonic()
        errors = self._services.commit.here(
            lambda: JsonlLog.sync_all([commit.opened.log for commit in commits]), len(commits)
        )
        took_s = self._services.monotonic() - started
        for commit, error in zip(commits, errors, strict=True):
            commit.sync_s, commit.error = took_s, error


# An internal error in one session ends its writer's task, and no other session's round.


def _begin(writer: Writer) -> Commit | None:
    try:
        return writer.begin()
    except Exception as error:
        writer.give_up(error)
        return None


def _answer(writer: Writer, commit: Commit) -> bool:
    try:
        return writer.answer(commit)
    except Exception as error:
        writer.give_up(error)
        return False


def _conclude(writer: Writer, commit: Commit) -> None:
    try:
        writer.conclude(commit)
    except Exception as error:
        writer.give_up(error)
