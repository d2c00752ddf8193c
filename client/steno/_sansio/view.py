"""The bases of the objects of both clients: a session's view of its mirror, no copies."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final, NoReturn
from weakref import ref

from steno._sansio.argument_checks import given_number
from steno._sansio.repairs import Repairs
from steno_protocol import paths
from steno_protocol.errors import BadRequest
from steno_protocol.positions import Position
from steno_protocol.replies import RepairedFile, SessionStat

if TYPE_CHECKING:
    from steno._sansio.mirror import Mirror
    from steno_protocol.context import ContextState, Message, UsageEntry

COMPACTION_RATIO: Final = 0.85
"""Part of a model's context that may be full before a session should be compacted."""

COMPACTION_RESERVED_TOKENS: Final = 50_000
"""Tokens of a model's context that should stay free for its answers and its tools' results."""


class NotPicklable:
    """An object that cannot be copied or pickled.

    A copy would share the subscription behind it, and end it when the copy is collected; in another
    process there is no connection for it.
    """

    def __reduce_ex__(self, protocol: object, /) -> NoReturn:
        raise TypeError(
            f"a {type(self).__name__} cannot be copied or pickled, as it belongs to its client's"
            " connection: open it again where it is needed, in another process with a client of"
            " its own"
        )


class SessionView(NotPicklable):
    """One session as this process sees it.

    Attributes:
        id: the session id.
    """

    def __init__(self, session: str, stat: SessionStat | None, repairs: Repairs) -> None:
        self.id = session
        self._opened = stat
        self._repairs = repairs
        self._mirror: Mirror | None = None
        self._is_changed = False

    def _mirror_finder(self) -> "Callable[[], Mirror | None]":
        """Return a function that returns the mirror of this session; it keeps nothing alive."""
        session = ref(self)

        def mirror_of() -> "Mirror | None":
            found = session()
            return None if found is None else found._mirror

        return mirror_of

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.id!r}>"

    @property
    def is_following(self) -> bool:
        """True when this process has a mirror of the session.

        Example:
            >>> session.is_following, client.session("talk").is_following
            (True, False)
        """
        return self._mirror is not None

    @property
    def history(self) -> "list[Message]":
        """The messages in order, without steno's own keys.

        Each access returns a new list, which belongs to the caller and does not follow the session.
        All these lists share their messages: change a copy of a message, not the message.

        Raises:
            BadRequest: the session was opened with `follow=False`.
            NotFound: the session cannot be followed any longer.

        Example:
            >>> session.history
            [{'role': 'user', 'content': 'hi'}]
        """
        return self._followed().history

    @property
    def token_count(self) -> int:
        """The last token count, 0 before the first.

        Example:
            >>> session.token_count
            0
        """
        return self._state().token_count

    @property
    def token_count_with_pending(self) -> int:
        """The token count plus an estimate for the messages that no model has counted yet.

        Example:
            >>> session.token_count_with_pending < 10
            True
        """
        return self._state().token_count_with_pending

    def should_compact(
        self,
        max_context_size: int,
        reserved: int = COMPACTION_RESERVED_TOKENS,
        ratio: float = COMPACTION_RATIO,
    ) -> bool:
        """True when the session is so full that it should be compacted.

        That is, when `token_count_with_pending` reaches `ratio` of `max_context_size`, or leaves no
        more than `reserved` of it.

        Args:
            max_context_size: tokens that the model can take.
            reserved: tokens that should stay free; for a model that takes fewer, give a smaller
                number, or the answer is always True.
            ratio: part of `max_context_size` that may be full.

        Returns:
            Whether `compact` is due; nothing is changed.

        Example:
            >>> session.should_compact(max_context_size=200_000)
            False
        """
        return should_compact(self.token_count_with_pending, max_context_size, reserved, ratio)

    @property
    def n_checkpoints(self) -> int:
        """The id that the next checkpoint gets.

        Example:
            >>> session.n_checkpoints
            1
        """
        return self._state().n_checkpoints

    @property
    def checkpoints(self) -> Sequence[tuple[int, Position]]:
        """Id and cursor of every checkpoint, oldest first.

        Example:
            >>> [(number, str(cursor)) for number, cursor in session.checkpoints]
            [(0, '0:1')]
        """
        return self._state().checkpoints

    @property
    def system_prompt(self) -> str | None:
        """The system prompt, None when there is none.

        Example:
            >>> session.system_prompt is None
            True
        """
        return self._state().system_prompt

    @property
    def head(self) -> Position:
        """The position up to which the mirror contains everything.

        Example:
            >>> session.head
            Position(generation=0, line=2)
        """
        return self._state().head

    @property
    def incarnation(self) -> str | None:
        """The incarnation of the session: another one after it was deleted and created again.

        It belongs to the mirror and its `head`; without a mirror it is as of the last `stat` or
        `open`, and None before them.

        Example:
            >>> session.incarnation is None
            False
        """
        if self._mirror is not None:
            return self._mirror.incarnation
        return (self._opened.incarnation or None) if self._opened is not None else None

    @property
    def damaged(self) -> int:
        """How many damaged lines of the present generation were skipped.

        Example:
            >>> session.damaged
            0
        """
        return self._state().damaged

    def usage_history(self) -> "list[UsageEntry]":
        """Return every token count of the present generation with its cursor, oldest first.

        Returns:
            Each count with the cursor of its record.

        Example:
            >>> session.usage_history()
            []
        """
        return self._state().usage_history

    @property
    def file_backend(self) -> Path:
        """The path of `context.jsonl`; only the daemon may write it.

        Raises:
            BadRequest: the session was not opened, so its folder is not known.

        Example:
            >>> session.file_backend.name
            'context.jsonl'
        """
        if self._opened is None:
            raise BadRequest("the session was not opened: its folder is not known", session=self.id)
        return Path(self._opened.folder, paths.CONTEXT)

    @property
    def repaired(self) -> tuple[RepairedFile, ...]:
        """The repairs of the session's files that the daemon made for this client.

        After a crash or a half line of another program, an opening has to change the end of a
        file. The daemon reports that once, in its next reply about the session, mostly the one to
        the command that opened it; the timeline has all repairs.

        Example:
            >>> session.repaired
            ()
        """
        return self._repairs.of(self.id)

    def _followed(self) -> "Mirror":
        if self._mirror is None:
            raise BadRequest(
                "the session was opened with follow=False and has no history here: open it with"
                " follow=True, call restore(), or read it with records()",
                session=self.id,
            )
        self._mirror.check()
        return self._mirror

    def _state(self) -> "ContextState":
        return self._followed().state

    def _refuse_when_changed(self) -> None:
        if self._mirror is not None and self._is_changed:
            raise RuntimeError(
                f"session {self.id} is loaded already and was changed since: its history is"
                " current, restore() has nothing to do"
            )


def should_compact(
    token_count: int,
    max_context_size: int,
    reserved: int = COMPACTION_RESERVED_TOKENS,
    ratio: float = COMPACTION_RATIO,
) -> bool:
    """True when a context is so full that it should be compacted.

    Args:
        token_count: tokens in it, those that no model has counted yet included.
        max_context_size: tokens that the model can take.
        reserved: tokens that should stay free; with a model that takes fewer, give a smaller
            number, or the answer is always True.
        ratio: part of `max_context_size` that may be full.
    """
    for name, number in (
        ("token_count", token_count), ("max_context_size", max_context_size),
        ("reserved", reserved), ("ratio", ratio),
    ):  # fmt: skip
        given_number(number, name)
    return token_count >= max_context_size * ratio or token_count + reserved >= max_context_size
