"""Survival of a checkpoint through rewrites, from the timeline.

A rewrite that keeps a checkpoint's line keeps the checkpoint; ids rise along a file, so a revert
keeps the ids below its target. A rewrite by another program has no entry, so it keeps none.
"""

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime

import msgspec

from steno_protocol import timeline_entries
from steno_protocol._json import whole_number
from steno_protocol.checkpoint_ids import NextCheckpointIds
from steno_protocol.positions import Position
from steno_protocol.timeline_entries import TimelineEntry

Rewrites = Mapping[int, TimelineEntry]
"""The rewrite that made each generation."""


class Target(msgspec.Struct, frozen=True):
    """The checkpoint that a command names.

    Attributes:
        id: its id.
        at: the position at which its line was created; None accepts any line with the id.
        incarnation: the incarnation of the session that `at` belongs to; None: of this session.
    """

    id: int
    at: Position | None = None
    incarnation: str | None = None


class Removal(msgspec.Struct, frozen=True):
    """The end of a checkpoint.

    Attributes:
        generation: the generation that the removing rewrite made.
        entry: the entry of that rewrite; None if another program made it.
        kept_in: the newest generation that contains the checkpoint's line.
    """

    generation: int
    entry: TimelineEntry | None
    kept_in: int


def rewrites_of(entries: Iterable[TimelineEntry]) -> dict[int, TimelineEntry]:
    """Return the rewrite that made each generation."""
    return {entry.generation: entry for entry in entries if entry.kind in timeline_entries.REWRITES}


def new_checkpoint(entry: TimelineEntry) -> int | None:
    """Return the id of the checkpoint that a rewrite set; None if it set none."""
    match entry.kind:
        case timeline_entries.COMPACTED:
            number = entry.details.get("checkpoint_id")
        case timeline_entries.DELIVERED:
            number = entry.details.get("new_checkpoint_id", entry.details.get("checkpoint_id"))
        case _:
            return None
    return number if isinstance(number, int) else None


def is_same(rewrites: Rewrites, checkpoint_id: int, found: int, created: int) -> bool:
    """Whether a checkpoint is still the one of an earlier generation.

    Args:
        rewrites: the session's rewrites.
        checkpoint_id: its id.
        found: the generation that contains it now.
        created: the earlier generation.
    """
    at = found
    while at > created:
        entry = rewrites.get(at)
        if entry is None or new_checkpoint(entry) == checkpoint_id:
            return False
        if not _keeps(entry, checkpoint_id):
            return False
        at = _source(entry)
    return at == created


def keeps_lines(rewrites: Rewrites, line: int, found: int, created: int) -> bool:
    """Whether each rewrite between two generations left a line in its place."""
    at = found
    while at > created:
        entry = rewrites.get(at)
        if entry is None:
            return False
        if entry.kind != timeline_entries.RESTORED and entry.kept <= line:
            return False
        at = _source(entry)
    return True


def removal(entries: Iterable[TimelineEntry], target: Target, present: int) -> Removal | None:
    """Return the removal of a checkpoint; None if no rewrite is known to have removed it.

    Args:
        entries: the session's timeline.
        target: the checkpoint. Without a position its generation is taken from the recorded ids,
            so the answer is right only where no id is assigned twice.
        present: the present generation.
    """
    entries = list(entries)
    rewrites = rewrites_of(entries)
    created = _created_in(entries, rewrites, target)
    alive, lines_in = {created}, {created}
    for generation in range(created + 1, present + 1):
        entry = rewrites.get(generation)
        if entry is None or not _keeps(entry, target.id):
            continue
        source = _source(entry)
        if source in alive:
            alive.add(generation)
        if source in lines_in and not _is_only_in_lineage(entry, target.id):
            lines_in.add(generation)
    last = max(alive)
    if last >= present:
        return None
    return Removal(last + 1, rewrites.get(last + 1), max(lines_in))


def text_of(found: Removal, checkpoint_id: int) -> str:
    """Return a sentence about a removal, without its full stop."""
    entry = found.entry
    if entry is None:
        return (
            f"another program rewrote the file as generation {found.generation}, and the timeline"
            f" does not show whether checkpoint {checkpoint_id} was kept"
        )
    made = datetime.fromtimestamp(entry.at, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
    by = entry.by or "a client without a name"
    return (
        f"{by} {_verb(entry)} at {made}, as generation {found.generation}, which removed checkpoint"
        f" {checkpoint_id}"
    )


def _verb(entry: TimelineEntry) -> str:
    details = entry.details
    match entry.kind:
        case timeline_entries.REVERTED:
            if "position" in details:
                return f"reverted the session to line {details['position']}"
            return f"reverted the session to checkpoint {details.get('checkpoint_id')}"
        case timeline_entries.CLEARED:
            return "cleared the session"
        case timeline_entries.RESTORED:
            return f"restored generation {details.get('from')}"
        case timeline_entries.DELIVERED:
            return f"delivered a D-Mail to checkpoint {details.get('checkpoint_id')}"
        case _:
            return f"rewrote the session ({entry.kind})"


def _created_in(entries: list[TimelineEntry], rewrites: Rewrites, target: Target) -> int:
    if target.at is not None:
        return target.at.generation
    for generation, entry in rewrites.items():
        if new_checkpoint(entry) == target.id:
            return generation
    return NextCheckpointIds(entries).assigned_in(target.id)


def _keeps(entry: TimelineEntry, checkpoint_id: int) -> bool:
    match entry.kind:
        case timeline_entries.CLEARED:
            return False
        case timeline_entries.REVERTED | timeline_entries.DELIVERED:
            return checkpoint_id < whole_number(entry.details.get("checkpoint_id"))
        case _:
            return True


def _is_only_in_lineage(entry: TimelineEntry, checkpoint_id: int) -> bool:
    """Whether a compaction left the line of an earlier checkpoint in its source only."""
    own = new_checkpoint(entry) if entry.kind == timeline_entries.COMPACTED else None
    return own is not None and checkpoint_id < own


def _source(entry: TimelineEntry) -> int:
    source = entry.details.get("from", entry.generation - 1)
    is_past = isinstance(source, int) and 0 <= source < entry.generation
    return source if is_past else -1
