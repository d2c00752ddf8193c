"""Rewrites of a file, for followers of earlier generations."""

from collections.abc import Iterable
from typing import NamedTuple

from steno_protocol import limits, timeline_entries
from steno_protocol.checkpoint_ids import NextCheckpointIds
from steno_protocol.timeline_entries import TimelineEntry
from stenod.core import timeline


class Rewritten(NamedTuple):
    """The effect of a rewrite on followers of the previous generation.

    Attributes:
        kept: the number of first lines that the new generation keeps.
        why: the kind of the rewrite.
        floor: the id of the next checkpoint while the new generation has none.
    """

    kept: int
    why: str
    floor: int


class Resets:
    """The rewrites that followers need; the oldest ones above the limit are removed."""

    def __init__(self) -> None:
        self._made: dict[int, Rewritten] = {}

    def __len__(self) -> int:
        return len(self._made)

    def add(self, generation: int, rewritten: Rewritten) -> None:
        """Add the rewrite that created a generation."""
        self._made[generation] = rewritten
        while len(self._made) > limits.REWRITE_HISTORY_MAX:
            del self._made[next(iter(self._made))]

    def add_all(self, found: dict[int, Rewritten]) -> None:
        """Add rewrites from the timeline; known ones are kept."""
        for generation, rewritten in found.items():
            if generation not in self._made:
                self.add(generation, rewritten)

    def get(self, generation: int) -> Rewritten | None:
        """Return the rewrite that created a generation, None if it is not known."""
        return self._made.get(generation)

    def clear(self) -> None:
        """Remove all: another program may have changed the files."""
        self._made.clear()


def read_resets(data: bytes, first: int) -> dict[int, Rewritten]:
    """Return the rewrites to a generation and to up to `REWRITES_READ_MAX` later ones.

    A follower that is far behind reads the others next. Generations without an entry, which another
    program created, are left out, except for the first one.
    """
    entries = timeline.decode(data)
    floors, made = NextCheckpointIds(entries), _made(entries)
    found = {first: Rewritten(0, timeline_entries.FOREIGN, 0)}
    for generation in range(first, first + limits.REWRITES_READ_MAX):
        if generation in made:
            kept, why = made[generation]
            found[generation] = Rewritten(kept, why, floors.of(generation))
    return found


def _made(entries: Iterable[TimelineEntry]) -> dict[int, tuple[int, str]]:
    """Return the number of kept lines and the kind of the rewrite to each generation."""
    made: dict[int, tuple[int, str]] = {}
    for entry in entries:
        if entry.kind in timeline_entries.REWRITES:
            made[entry.generation] = entry.kept, entry.kind
        elif entry.kind == timeline_entries.FOREIGN and entry.generation in made:
            # Another program may have edited the kept lines since, or replaced the file.
            made[entry.generation] = 0, made[entry.generation][1]
    return made
