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

    A revert reuses the id of its target, which is more than 0 when that began the file of a
    compaction. After any other rewrite that keeps no ids, it is 0.

    Args:
        entries: of the session's timeline, oldest first, without rewrites that were voided.
        present: the generation.
    """
    known = list(entries)
    rewrites = {
        entry.generation: entry
        for entry in known
        if entry.kind == happenings.REVERTED or entry.kind in _KEEPING_IDS
    }
    forks = {entry.generation: entry for entry in known if entry.kind == happenings.FORKED}
    while True:
        fork = forks.get(present)
        if fork is not None and (number := whole_number(fork.details.get("checkpoint_id"))):
            return number
        entry = rewrites.get(present)
        if entry is None:
            return 0
        if entry.kind == happenings.REVERTED:
            return whole_number(entry.details.get("checkpoint_id"))
        source = entry.details.get("from", present - 1)
        if not isinstance(source, int) or not 0 <= source < present:
            return 0
        present = source
