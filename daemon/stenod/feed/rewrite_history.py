"""The rewrites of a file for followers: recent ones in memory, others from the timeline."""

from collections.abc import Iterable
from typing import NamedTuple

from steno_protocol import limits, timeline_entries
from steno_protocol.checkpoint_ids import NextCheckpointIds
from steno_protocol.timeline_entries import TimelineEntry
from stenod.core import timeline


class Rewritten(NamedTuple):
    """The effect of a rewrite on followers of the generation before.

    Attributes:
        kept: its first lines that live on.
        why: the kind of the rewrite.
        floor: the id of the next checkpoint while the new generation has none.
    """

    kept: int
    why: str
    floor: int


class Resets:
    """The rewrites that followers need now; the oldest of too many are forgotten."""

    def __init__(self) -> None:
        self._made: dict[int, Rewritten] = {}

    def __len__(self) -> int:
        return len(self._made)

    def add(self, generation: int, rewritten: Rewritten) -> None:
        """A rewrite made a generation."""
        self._made[generation] = rewritten
        while len(self._made) > limits.REWRITE_HISTORY_MAX:
            del self._made[next(iter(self._made))]

    def add_all(self, found: dict[int, Rewritten]) -> None:
        """As `add`, for rewrites from the timeline; newer knowledge is kept."""
        for generation, rewritten in found.items():
            if generation not in self._made:
                self.add(generation, rewritten)

    def get(self, generation: int) -> Rewritten | None:
        """How a generation was made, None if that is not known here."""
        return self._made.get(generation)

    def clear(self) -> None:
        """Another program may have changed what the rewrites left."""
        self._made.clear()


def read_resets(data: bytes, first: int) -> dict[int, Rewritten]:
    """The rewrites to a generation and up to `REWRITES_READ_MAX` later ones, from a timeline.

    A follower that is far behind reads the others next. Of a generation without an entry, another
    program's, the first only is in the answer.
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
    """For each generation that a rewrite made, how many lines it kept, and the rewrite's kind."""
    made: dict[int, tuple[int, str]] = {}
    for entry in entries:
        if entry.kind in timeline_entries.REWRITES:
            made[entry.generation] = entry.kept, entry.kind
        elif entry.kind == timeline_entries.FOREIGN and entry.generation in made:
            # What the rewrite kept may have been edited since, or be of another file.
            made[entry.generation] = 0, made[entry.generation][1]
    return made
