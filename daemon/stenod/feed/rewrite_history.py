"""The history of a file's rewrites, for subscribers that are behind.

Recent rewrites are kept in memory; older ones are read from the timeline.
"""

from collections.abc import Iterable
from typing import NamedTuple

from steno_protocol import limits, paths, timeline_entries
from steno_protocol._json import whole_number
from steno_protocol.checkpoint_ids import NextCheckpointIds
from steno_protocol.timeline_entries import TimelineEntry
from stenod.core import timeline


class RewriteEffect(NamedTuple):
    """The effect of a rewrite on subscribers of the generation before.

    Attributes:
        kept: the number of first lines that the new generation shares with the one before.
        why: the kind of the rewrite.
        checkpoint_floor: the next checkpoint's id while the new generation has none.
    """

    kept: int
    why: str
    checkpoint_floor: int


class RewriteHistory:
    """The newest rewrites of a file, at most `REWRITE_HISTORY_MAX`, by the generation of each."""

    def __init__(self) -> None:
        self._made: dict[int, RewriteEffect] = {}

    def __len__(self) -> int:
        return len(self._made)

    def add(self, generation: int, rewritten: RewriteEffect) -> None:
        """Add the rewrite that made a generation."""
        self._made[generation] = rewritten
        while len(self._made) > limits.REWRITE_HISTORY_MAX:
            del self._made[next(iter(self._made))]

    def add_all(self, found: dict[int, RewriteEffect]) -> None:
        """Add rewrites from the timeline, except those that are known already."""
        for generation, rewritten in found.items():
            if generation not in self._made:
                self.add(generation, rewritten)

    def get(self, generation: int) -> RewriteEffect | None:
        """Returns the rewrite that made a generation; None if it is not in memory."""
        return self._made.get(generation)

    def clear(self) -> None:
        """Forget all rewrites: another program may have changed the files since."""
        self._made.clear()


def read_rewrites(data: bytes, first: int) -> dict[int, RewriteEffect]:
    """Returns the rewrites that made `first` and the generations after it, from a timeline.

    At most `REWRITES_READ_MAX` generations are returned, because a subscriber reads them step by
    step. A generation that another program made has no entry: it is returned only if it is `first`.

    Args:
        data: the timeline.
        first: the first generation.
    """
    entries = timeline.decode(data)
    next_ids, made = NextCheckpointIds(entries), _made(entries)
    found = {first: RewriteEffect(0, timeline_entries.FOREIGN, 0)}
    for generation in range(first, first + limits.REWRITES_READ_MAX):
        if generation in made:
            kept, why = made[generation]
            found[generation] = RewriteEffect(kept, why, next_ids.of(generation))
    return found


def _made(entries: Iterable[TimelineEntry]) -> dict[int, tuple[int, str]]:
    """Returns, for each generation that a rewrite made, the lines it kept and its kind."""
    made: dict[int, tuple[int, str]] = {}
    sizes: dict[int, int] = {}
    for entry in entries:
        if entry.kind in timeline_entries.REWRITES:
            made[entry.generation] = entry.kept, entry.kind
            sizes[entry.generation] = (timeline.fingerprint_of(entry, "new") or (0, 0))[0]
        elif entry.generation in made and _changes_kept_lines(entry, sizes[entry.generation]):
            made[entry.generation] = 0, made[entry.generation][1]
    return made


def _changes_kept_lines(entry: TimelineEntry, size: int) -> bool:
    """True for an entry behind which the lines that a rewrite kept may be others, or fewer.

    Args:
        entry: an entry of the rewrite's generation.
        size: the size of the file that the rewrite made.
    """
    if entry.kind == timeline_entries.REPAIRED:
        # A line that a rewrite leaves at the end may be a half one of another program.
        is_context = entry.details.get("file") == paths.CONTEXT
        return is_context and whole_number(entry.details.get("offset")) < size
    return entry.kind == timeline_entries.FOREIGN
