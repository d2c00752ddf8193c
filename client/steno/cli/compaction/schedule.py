"""Which sessions a worker has to look at: a pure table of what it saw and what failed."""

from dataclasses import dataclass

from steno.llm_limits import WATCH_BACKOFF_S, WATCH_BACKOFF_S_MAX
from steno_protocol.replies import SessionEntry


@dataclass(slots=True)
class _Note:
    """What is known of one session.

    Attributes:
        mark: its size and age when it was last looked at.
        pause_s: how long it is left alone after its last failure, 0 when it went well.
    """

    mark: tuple[int, float] | None = None
    is_under_way: bool = False
    pause_s: float = 0.0
    not_before: float = 0.0


class Book:
    """Remembers each session for as long as it is listed."""

    def __init__(self) -> None:
        self._notes: dict[str, _Note] = {}

    def to_look_at(self, entries: list[SessionEntry], now: float) -> list[SessionEntry]:
        """Those of `entries` that changed or failed since they were looked at, and may be tried.

        Args:
            entries: all sessions that there are now; others are forgotten.
            now: any clock in seconds that only goes on.
        """
        listed = {entry.session for entry in entries}
        for session in [each for each in self._notes if each not in listed]:
            if not self._notes[session].is_under_way:
                del self._notes[session]
        return [entry for entry in entries if self._is_wanted(entry, now)]

    def looked(self, entry: SessionEntry) -> None:
        """A session was looked at, and need not be until it changes."""
        self._note(entry.session).mark = _mark(entry)

    def begun(self, session: str) -> None:
        """A compaction is under way."""
        self._note(session).is_under_way = True

    def ended(self, session: str) -> None:
        """It is not any more, and went well."""
        self._notes[session] = _Note(mark=self._note(session).mark)

    def failed(self, session: str, now: float) -> float:
        """It failed; how many seconds the session is left alone, growing with each failure."""
        note = self._note(session)
        # Doubled from the last one, and not from the number of failures: that has no end.
        note.pause_s = min(2 * note.pause_s or WATCH_BACKOFF_S, WATCH_BACKOFF_S_MAX)
        note.is_under_way = False
        note.not_before = now + note.pause_s
        # Retried even without new records.
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
