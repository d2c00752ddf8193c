"""The search for a checkpoint that a command names, without I/O.

A command with a handle is refused if another line has the id now. An error names the rewrite that
removed the checkpoint, and the generation that still contains it.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from steno_protocol.checkpoint_ids import belongs
from steno_protocol.commands import Fork, RevertTo, SendDmail
from steno_protocol.errors import Conflict, NotFound
from steno_protocol.positions import Position
from steno_protocol.timeline_entries import TimelineEntry
from stenod.core import checkpoint_survival, timeline
from stenod.core.checkpoint_survival import Target


def target_of(command: RevertTo | SendDmail | Fork) -> Target:
    """Return the checkpoint that a command names."""
    at = command.checkpoint_at
    return Target(
        -1 if command.checkpoint_id is None else command.checkpoint_id,
        None if at is None else Position.parse(at),
        command.incarnation,
    )


@dataclass(frozen=True, slots=True)
class Search:
    """One search.

    Attributes:
        session: the session's id, for messages.
        entries: its timeline.
        head: its head.
        next_id: the id of its next checkpoint.
        target: the checkpoint.
        line_in: returns the line of the target's id in a generation; None if there is none. It
            reads the generation, and is called for errors and for lines that rewrites moved.
    """

    session: str
    entries: Sequence[TimelineEntry]
    head: Position
    next_id: int
    target: Target
    line_in: Callable[[int], int | None]

    def check_session(self) -> None:
        """Refuse a handle of another session.

        Raises:
            Conflict: the handle's incarnation is another session's.
        """
        at, incarnation = self.target.at, self.target.incarnation
        if at is None or incarnation is None or belongs(self.entries, incarnation, at):
            return
        raise Conflict(
            f"the handle of checkpoint {self.target.id} belongs to another session, or to"
            f" {self.session} before it was deleted and created again: nothing was changed; use a"
            " handle of this session, or the id of one of its checkpoints",
            session=self.session,
            head=str(self.head),
        )

    def generations(self) -> list[int]:
        """Return the generations that may contain the checkpoint, in the order of the search."""
        if not 0 <= self.target.id < self.next_id:
            return []
        return timeline.lineage(self.entries, self.head.generation, self.target.id)

    def check_line(self, found: Position) -> None:
        """Refuse another line than the handle's.

        Raises:
            Conflict: another checkpoint has the id.
        """
        at = self.target.at
        if at is None or self._is_line(at, found):
            return
        raise Conflict(
            f"checkpoint {self.target.id} is another one now, at {found}, and nothing was changed:"
            f" {self._what_happened('another line of its generation has the same id')}",
            session=self.session,
            head=str(self.head),
        )

    def missing(self) -> NotFound:
        """Return the error for a checkpoint that was not found."""
        number = self.target.id
        if self.target.at is None and not 0 <= number < self.next_id:
            known = f"the ids 0 to {self.next_id - 1} were assigned so far"
            what = known if self.next_id else "the session has none yet"
        else:
            what = self._what_happened("`gc` or another program removed the file with its line")
        return NotFound(f"checkpoint {number} does not exist: {what}", session=self.session)

    def _is_line(self, at: Position, found: Position) -> bool:
        rewrites = checkpoint_survival.rewrites_of(self.entries)
        between = found.generation, at.generation
        if not checkpoint_survival.is_same(rewrites, self.target.id, *between):
            return False
        if checkpoint_survival.keeps_lines(rewrites, at.line, *between):
            return found.line == at.line
        # Rewrites moved the line. Only another program writes an id twice into one generation.
        return self.line_in(at.generation) in {at.line, None}

    def _what_happened(self, otherwise: str) -> str:
        """Return the reason why a checkpoint is gone; `otherwise` if no rewrite removed it."""
        number, session = self.target.id, self.session
        found = checkpoint_survival.removal(self.entries, self.target, self.head.generation)
        timeline_hint = f"`steno timeline {session}` shows its rewrites"
        if found is None:
            return f"{otherwise}, and {timeline_hint}"
        line = self.line_in(found.kept_in)
        at = self.target.at
        if line is None and at is None:
            return f"no generation contains its line, and {timeline_hint}"
        what = checkpoint_survival.text_of(found, number)
        if line is None:
            return f"{what}; `gc` or another program removed its generation {found.kept_in}"
        return (
            f"{what}; generation {found.kept_in} contains it at {found.kept_in}:{line}:"
            f" `steno restore {session} {found.kept_in}` brings that generation back, and"
            f" `steno fork {session} NEW --at {found.kept_in}:{line}` continues before it in a new"
            " session"
        )
