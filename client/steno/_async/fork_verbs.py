"""What an async session does to become another one, and to be known by people."""

from collections.abc import Sequence
from typing import Self

from steno._async.linked import LinkedSession
from steno._sansio.forks import describe_command, fork_command, undo_command
from steno._sansio.request_builders import PositionLike, fork_unfollowed
from steno_protocol import commands, replies
from steno_protocol.errors import StenoError


class ForkingSession(LinkedSession):
    """A session that can be forked."""

    async def fork(
        self,
        new_id: str,
        *,
        at: PositionLike | None = None,
        checkpoint: int | None = None,
        turn: int | None = None,
        title: str | None = None,
        key: str | None = None,
    ) -> Self:
        """Make a new session of what this one was at an instant; this one stays as it is.

        Context and wire file are cut at the same instant. At most one of `at`, `checkpoint` and
        `turn` is given; none is now.

        Args:
            new_id: the id of the new session.
            at: a position of any generation, or `now`.
            checkpoint: before this checkpoint, as a revert to it leaves the session.
            turn: after this turn, counted from 0; -1 is before the first.
            title: of the new session; None is made of this one's.
            key: names the fork for ever: a repeat gets the same session and makes no other.

        Returns:
            The new session, on the disk; followed when this one is.

        Raises:
            NotFound: there is no such position, checkpoint or turn.
            Exists: there is a session of the new id already.
            BadRequest: the instant lies inside a batch, or nothing says where the turn began; the
                message names positions. Or the new id is none.
            OutcomeUnknown: it may have been made, or it was and cannot be followed; repeat with the
                error's `key`.
        """
        command = fork_command(self.id, self._link.name, new_id, at, checkpoint, turn, title, key)
        return await self._fork(command)

    async def undo(
        self,
        turns: int = 1,
        new_id: str | None = None,
        *,
        title: str | None = None,
        key: str | None = None,
    ) -> Self:
        """Fork before the last `turns` turns; args, returns and errors are those of `fork`.

        Args:
            turns: how many, at least 1; the wire file says where turns begin.
            new_id: None is this session's id with `-undo-` and eight characters made of the key.
        """
        command = undo_command(self.id, self._link.name, turns, new_id, title, key)
        return await self._fork(command)

    async def describe(
        self,
        *,
        title: str | None = None,
        labels: Sequence[str] | None = None,
        archived: bool | None = None,
        replace_damaged: bool = False,
    ) -> replies.SessionStat:
        """Set what people know the session by; what is None stays as it is.

        Args:
            title: its title; the empty text removes it.
            labels: all of its labels; an empty list removes them.
            archived: whether lists that leave out archived sessions leave it out.
            replace_damaged: keep a damaged `state.json` under another name and begin a new one;
                nothing else need be given then.

        Returns:
            The session's numbers with what is set now, on the disk.

        Raises:
            Corrupt: `state.json` is damaged and was not replaced; nothing was changed.
        """
        self._refuse_when_ended()
        asked = describe_command(self.id, title, labels, archived, replace_damaged=replace_damaged)
        self._opened = await self._link.ask(asked, replies.SessionStat)
        return self._opened

    async def _fork(self, command: commands.Fork) -> Self:
        self._refuse_when_ended()
        stat = await self._link.ask(command, replies.SessionStat)
        made = type(self)(self._link, command.new_session, stat)
        if self.is_following:
            try:
                await made.load()
            except StenoError as error:
                raise fork_unfollowed(error, command) from error
        return made
