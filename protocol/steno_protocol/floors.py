"""The id that the next checkpoint gets where the lines of a generation tell of none.

A revert to the first checkpoint of a compacted file leaves no such line; the timeline tells it.
"""

from collections.abc import Iterable
from typing import Final

from steno_protocol import happenings
from steno_protocol._json import whole_number
from steno_protocol.happenings import Happening

_KEEPING_IDS: Final = {happenings.PROMPTED, happenings.RESTORED, happenings.MENDED}
"""After these the ids are those of the generation that they were made of."""


def checkpoint_floor(entries: Iterable[Happening], present: int) -> int:
    """The id that the next checkpoint gets in a generation whose own lines tell of none.

    Args:
        entries: of the session's timeline, oldest first, without rewrites that were voided.
        present: the generation.
    """
    return Floors(entries).of(present)


class Floors:
    """What a timeline tells of such ids, looked through once for however many generations.

    A revert reuses the id of its target, which is more than 0 when that began the file of a
    compaction. After any other rewrite that keeps no ids, it is 0.

    Args:
        entries: of the session's timeline, oldest first, without rewrites that were voided.
    """

    def __init__(self, entries: Iterable[Happening]) -> None:
        self._rewrites: dict[int, Happening] = {}
        self._forks: dict[int, Happening] = {}
        for entry in entries:
            if entry.kind == happenings.REVERTED or entry.kind in _KEEPING_IDS:
                self._rewrites[entry.generation] = entry
            elif entry.kind == happenings.FORKED:
                self._forks[entry.generation] = entry

    def of(self, generation: int) -> int:
        """The id that the next checkpoint gets where the lines of a generation tell of none."""
        while True:
            fork = self._forks.get(generation)
            if fork is not None and (number := whole_number(fork.details.get("checkpoint_id"))):
                return number
            entry = self._rewrites.get(generation)
            if entry is None:
                return 0
            if entry.kind == happenings.REVERTED:
                return whole_number(entry.details.get("checkpoint_id"))
            source = entry.details.get("from", generation - 1)
            if not isinstance(source, int) or not 0 <= source < generation:
                return 0
            generation = source
