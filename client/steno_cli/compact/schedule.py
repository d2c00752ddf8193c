"""The sessions that a compaction worker examines next; pure."""

from dataclasses import dataclass

from steno_cli.command_limits import WATCH_BACKOFF_S, WATCH_BACKOFF_S_MAX
from steno_protocol.replies import SessionEntry


@dataclass(slots=True)
class _Note:
    """The notes on one session.

    Attributes:
        mark: its size and age when it was last examined.
        pause_s: how long it is left alone after its last failure, 0 after a success.
    """

    mark: tuple[int, float] | None = None
    is_under_way: bool = False
    pause_s: float = 0.0
    not_before: float = 0.0


class Book:
    """Notes on each session for as long as it is listed."""

    def __init__(self) -> None:
        self._notes: dict[str, _Note] = {}

    def to_examine(self, entries: list[SessionEntry], now: float) -> list[SessionEntry]:
        """The entries that changed or failed since they were examined, and may be tried.

        Args:
            entries: all present sessions; others are forgotten.
            now: seconds of a monotonic clock.
        """
        listed = {entry.session for entry in entries}
        for session in [each for each in self._notes if each not in listed]:
            if not self._notes[session].is_under_way:
                del self._notes[session]
        return [entry for entry in entries if self._is_wanted(entry, now)]

    def examined(self, entry: SessionEntry) -> None:
        """Note that a session was examined: the next time is after its next change."""
        self._note(entry.session).mark = _mark(entry)

    def begun(self, session: str) -> None:
        """Note that a compaction is under way."""
        self._note(session).is_under_way = True

    def ended(self, session: str) -> None:
        """Note that the compaction succeeded."""
        self._notes[session] = _Note(mark=self._note(session).mark)

    def failed(self, session: str, now: float) -> float:
        """Note a failure; returns the seconds until the next try, which grow with each failure."""
        note = self._note(session)
        # Doubled from the last pause: the number of failures has no bound.
        note.pause_s = min(2 * note.pause_s or WATCH_BACKOFF_S, WATCH_BACKOFF_S_MAX)
        note.is_under_way = False
        note.not_before = now + note.pause_s
        # Tried again even without new records.
        note.mark = None
        return note.pause_s

    def _is_wanted(self, entry: SessionEntry, now: float) -> bool:
        note = self._notes.get(entry.session)
        if note is None:
            return True
        return not note.is_under_way and now >= note.not_before and note.mark != _mark(entry)

    def _note(self, session: str) -> _Note:
        return self._notes.setdefault(session, _Note())


def _mark(entry: SessionEntry) -> tuple[int, float]:
    return (entry.bytes, entry.modified_at)
