"""The times of lines, from their keys; pure."""

from collections.abc import Iterable, Iterator
from typing import Any

from steno.values import Record
from steno_protocol.paths import UUID_CHARS, key_time_ms


def written_at(record: dict[str, Any]) -> float | None:
    """Unix time in seconds of the request that wrote a line, from its key; None without one.

    Only keys made by steno's clients contain a time; a caller's own key and a line of another
    program do not.
    """
    stamp = record.get("_id")
    if not isinstance(stamp, str):
        return None
    milliseconds = key_time_ms(stamp[:UUID_CHARS])
    return None if milliseconds is None else milliseconds / 1000


class Since:
    """Lets records pass from the first one on that is known to be no older than a time.

    What follows that one belongs to it, whether its own time is known or not.

    Args:
        at: Unix time in seconds; None lets all pass.
    """

    def __init__(self, at: float | None) -> None:
        self._at = at

    def records(self, records: Iterable[Record]) -> Iterator[Record]:
        """Those that pass."""
        for record in records:
            if self._at is not None:
                written = written_at(record.record)
                if written is None or written < self._at:
                    continue
                self._at = None
            yield record
