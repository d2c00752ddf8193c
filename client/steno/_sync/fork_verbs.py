"""What a blocking session does to become another one; the verbs are those of `ForkingSession`."""

from collections.abc import Sequence
from typing import Self

from steno._sansio.forks import describe_command, fork_command, undo_command
from steno._sansio.request_builders import PositionLike, fork_unfollowed
from steno._sync.linked import BlockingLinkedSession
from steno_protocol import commands, replies
from steno_protocol.errors import StenoError


class BlockingForkingSession(BlockingLinkedSession):
    """A session that can be forked."""

    def fork(
        self,
        new_id: str,
        *,
        at: PositionLike | None = None,
        checkpoint: int | None = None,
        turn: int | None = None,
        title: str | None = None,
        key: str | None = None,
    ) -> Self:
        """Make a new session of what this one was at an instant; see `Session.fork`."""
        command = fork_command(self.id, self._link.name, new_id, at, checkpoint, turn, title, key)
        return self._fork(command)

    def undo(
        self,
        turns: int = 1,
        new_id: str | None = None,
        *,
        title: str | None = None,
        key: str | None = None,
    ) -> Self:
        """Fork before the last `turns` turns; see `Session.undo`."""
        return self._fork(undo_command(self.id, self._link.name, turns, new_id, title, key))

    def describe(
        self,
        *,
        title: str | None = None,
        labels: Sequence[str] | None = None,
        archived: bool | None = None,
        replace_damaged: bool = False,
    ) -> replies.SessionStat:
        """Set what people know the session by; see `Session.describe`."""
        asked = describe_command(self.id, title, labels, archived, replace_damaged=replace_damaged)
        self._opened = self._link.ask(asked, replies.SessionStat, check=self._history_check)
        return self._opened

    def _fork(self, command: commands.Fork) -> Self:
        stat = self._link.ask(command, replies.SessionStat, check=self._history_check)
        made = type(self)(self._link, command.new_session, stat)
        if self.is_following:
            try:
                made.load()
            except StenoError as error:
                raise fork_unfollowed(error, command) from error
        return made
