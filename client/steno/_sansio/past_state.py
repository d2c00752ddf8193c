"""A past state of a session, read from the lines before a position."""

from collections.abc import Sequence

from steno._sansio.reading import LineReader, check_reached
from steno._sansio.requests import CheckpointLike, PositionLike, Target, position_text, target_of
from steno_protocol.checkpoint_ids import belongs, checkpoint_floor
from steno_protocol.context import ContextState
from steno_protocol.errors import BadRequest, Conflict, NotFound
from steno_protocol.positions import Position
from steno_protocol.timeline_entries import TimelineEntry

PastState = PositionLike | int
"""A position, or a generation (its end)."""


class PastReader:
    """A past state of a session, built from the lines before a position of any generation.

    A checkpoint with a position is searched for in the generation in which it was created, which
    still has its line: past generations do not change.

    Raises:
        BadRequest: `checkpoint` is none, or has a position and another one is given.
    """

    def __init__(
        self, session: str, at: PastState | None, checkpoint: CheckpointLike | None
    ) -> None:
        self._session = session
        self._target = None if checkpoint is None else target_of(checkpoint)
        self._state: ContextState | None = None
        bound = None if self._target is None else self._target.checkpoint_at
        if bound is not None:
            if at is not None:
                raise BadRequest(
                    "a handle of a checkpoint names its generation: leave `at` out, or give the"
                    " checkpoint's id",
                    session=session,
                )
            at = bound.generation
        after, self._until = _span(at)
        self.reader = LineReader(session, after, self._until)

    def absorb(self) -> None:
        """Apply the received lines."""
        lines = self.reader.lines
        while lines:
            cursor, line = lines.popleft()
            if self._state is None:
                self._state = ContextState(cursor.generation)
            missing = cursor.line - self._state.head.line
            self._state.apply_lines([b"passed over\n"] * missing)
            self._state.apply_lines([line])

    def state(self, entries: Sequence[TimelineEntry] = ()) -> ContextState:
        """The state, once everything was absorbed.

        Args:
            entries: the session's timeline, if `n_checkpoints` of the state is wanted, or a
                checkpoint with a position.

        Raises:
            NotFound: it has no such checkpoint, or ends before the position.
            Conflict: the checkpoint is another session's.
        """
        end = self.reader.end
        if self._until is not None and end is not None:
            check_reached(self._session, self._until, end)
        state = self._state
        if state is None:
            state = ContextState(self.reader.generation)
        floor = checkpoint_floor(entries, state.head.generation)
        target = self._target
        if target is None:
            state.reset(*state.head, floor)
            return state
        self._check_session(target, entries)
        for number, cursor in state.checkpoints:
            if number == target.checkpoint_id and target.checkpoint_at in {None, cursor}:
                state.reset(*cursor, max(number, floor))
                return state
        raise NotFound(
            f"there is no checkpoint {target.checkpoint_id} in generation {state.head.generation},"
            f" which has {[number for number, _ in state.checkpoints]}: name another generation",
            session=self._session,
        )

    def _check_session(self, target: Target, entries: Sequence[TimelineEntry]) -> None:
        at, incarnation = target.checkpoint_at, target.incarnation
        if at is None or incarnation is None or belongs(entries, incarnation, at):
            return
        raise Conflict(
            f"the handle of checkpoint {target.checkpoint_id} belongs to another session, or to"
            f" {self._session} before it was deleted and created again: use a handle of this"
            " session, or an id and a generation",
            session=self._session,
        )


def _span(at: PastState | None) -> tuple[Position | None, Position | None]:
    if at is None:
        return None, None
    if isinstance(at, int):
        return Position(at, 0), None
    until = Position.parse(position_text(at))
    return Position(until.generation, 0), until
