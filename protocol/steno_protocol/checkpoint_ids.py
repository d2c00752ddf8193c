"""The next checkpoint id of a generation without checkpoint lines.

A revert to the first checkpoint of a compacted file leaves no checkpoint line, so the id is taken
from the timeline.
"""

from collections.abc import Iterable
from typing import Final

from steno_protocol import timeline_entries
from steno_protocol._json import whole_number
from steno_protocol.timeline_entries import TimelineEntry

_KEEPING_IDS: Final = {
    timeline_entries.PROMPTED,
    timeline_entries.RESTORED,
    timeline_entries.MENDED,
}
"""Rewrites after which the ids continue those of their source generation."""


def checkpoint_floor(entries: Iterable[TimelineEntry], present: int) -> int:
    """Return the next checkpoint id of a generation without checkpoint lines.

    Args:
        entries: the session's timeline, oldest first, without voided rewrites.
        present: the generation.
    """
    return NextCheckpointIds(entries).of(present)


class NextCheckpointIds:
    """The next checkpoint ids of a timeline, for any number of generations.

    After a revert the next id is its target's; it is more than 0 if that is the first checkpoint of
    a compacted file. After any other rewrite that keeps no ids, it is 0.

    Args:
        entries: the session's timeline, oldest first, without voided rewrites.
    """

    def __init__(self, entries: Iterable[TimelineEntry]) -> None:
        self._rewrites: dict[int, TimelineEntry] = {}
        self._forks: dict[int, TimelineEntry] = {}
        for entry in entries:
            if entry.kind == timeline_entries.REVERTED or entry.kind in _KEEPING_IDS:
                self._rewrites[entry.generation] = entry
            elif entry.kind == timeline_entries.FORKED:
                self._forks[entry.generation] = entry

    def of(self, generation: int) -> int:
        """Return the next checkpoint id of a generation without checkpoint lines."""
        while True:
            fork = self._forks.get(generation)
            if fork is not None and (number := whole_number(fork.details.get("checkpoint_id"))):
                return number
            entry = self._rewrites.get(generation)
            if entry is None:
                return 0
            if entry.kind == timeline_entries.REVERTED:
                return whole_number(entry.details.get("checkpoint_id"))
            source = entry.details.get("from", generation - 1)
            if not isinstance(source, int) or not 0 <= source < generation:
                return 0
            generation = source
