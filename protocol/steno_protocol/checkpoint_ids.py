"""The next checkpoint id of a generation without checkpoint lines.

A revert to the first checkpoint of a compacted file leaves no such line; the timeline has the id.
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
"""After these the ids are those of the generation that they were made of."""


def checkpoint_floor(entries: Iterable[TimelineEntry], present: int) -> int:
    """The next checkpoint id of a generation without checkpoint lines.

    Args:
        entries: of the session's timeline, oldest first, without rewrites that were voided.
        present: the generation.
    """
    return NextCheckpointIds(entries).of(present)


class NextCheckpointIds:
    """The next checkpoint ids in a timeline, read once for any number of generations.

    A revert reuses the id of its target, which is more than 0 when that began the file of a
    compaction. After any other rewrite that keeps no ids, it is 0.

    Args:
        entries: of the session's timeline, oldest first, without rewrites that were voided.
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
        """The next checkpoint id of a generation without checkpoint lines."""
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
