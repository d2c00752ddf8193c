"""Lines of `timeline.jsonl`: history and intents of rewrites.

The entry of a rewrite is written before the rewrite, with the fingerprints of the old and the new
file; a `voided` entry cancels it.
"""

import zlib
from collections.abc import Iterable
from typing import Any

import msgspec

from steno_protocol import limits, timeline_entries
from steno_protocol._json import whole_number
from steno_protocol.positions import Position
from steno_protocol.timeline_entries import TimelineEntry
from stenod.core.checkpoint_survival import new_checkpoint
from stenod.core.keys import Applied, fingerprint_of_entry

Fingerprint = tuple[int, int]
"""A file's length in bytes and the CRC-32 of its last `FINGERPRINT_BYTES`."""


_encode = msgspec.json.Encoder().encode
_decoder = msgspec.json.Decoder(TimelineEntry)


def fingerprint(size: int, tail: bytes) -> Fingerprint:
    """Return the fingerprint of a file of `size` bytes that ends with `tail`."""
    return size, zlib.crc32(tail[-limits.FINGERPRINT_BYTES :])


def encode(entry: TimelineEntry) -> bytes:
    """Encode one line of the timeline."""
    return _encode(entry) + b"\n"


def decode(data: bytes) -> list[TimelineEntry]:
    """Decode all readable entries, oldest first, without voided rewrites."""
    entries: list[TimelineEntry] = []
    for line in data.split(b"\n"):
        entry = _decode(line)
        if entry is None:
            continue
        if entry.kind == timeline_entries.VOIDED:
            entries = [other for other in entries if other.generation != entry.generation
                       or other.kind not in timeline_entries.REWRITES]  # fmt: skip
        else:
            entries.append(entry)
    return entries


def _decode(line: bytes) -> TimelineEntry | None:
    try:
        return _decoder.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None


def in_doubt(data: bytes) -> TimelineEntry | None:
    """Return the newest rewrite of a timeline, the only one that a crash can have left in doubt.

    Earlier rewrites were settled before it began, so later damage to a file does not cast doubt on
    them. Returns None if the newest one was voided, or if a later entry follows it: the writer of
    that entry had recovered the session and found that the rewrite took place.
    """
    found = None
    for line in data.split(b"\n"):
        entry = _decode(line)
        if entry is not None and entry.kind in timeline_entries.REWRITES:
            found = entry
        elif entry is not None and found is not None and entry.generation >= found.generation:
            # A `voided` entry has the rewrite's generation, too.
            found = None
    return found


def voided(rewrite: TimelineEntry) -> TimelineEntry:
    """Return the entry that cancels a rewrite which did not take place."""
    return TimelineEntry(
        kind=timeline_entries.VOIDED, generation=rewrite.generation, key=rewrite.key
    )


def with_inferred(entries: list[TimelineEntry], rotated: dict[int, float]) -> list[TimelineEntry]:
    """Add an inferred entry for each unrecorded rotation (kimi-cli's own reverts).

    Args:
        entries: the entries of the timeline.
        rotated: for each generation that began with a rotation, the last change of the file before
            it, in Unix seconds.
    """
    recorded = {entry.generation for entry in entries if entry.kind in timeline_entries.REWRITES}
    inferred = [
        TimelineEntry(kind=timeline_entries.ROTATED, generation=generation, at=at, inferred=True)
        for generation, at in sorted(rotated.items())
        if generation not in recorded
    ]
    merged = list(entries)
    for entry in inferred:
        # Ordered by generation, because a file's time is a few ms behind the clock.
        later = (at for at, each in enumerate(merged) if each.generation >= entry.generation)
        merged.insert(next(later, len(merged)), entry)
    return merged


def fingerprint_of(entry: TimelineEntry, which: str) -> Fingerprint | None:
    """Return the `old` or `new` fingerprint of a rewrite, None if the entry has none."""
    value: Any = entry.details.get(which)
    try:
        size, crc = value
    except (TypeError, ValueError):
        return None
    return (size, crc) if isinstance(size, int) and isinstance(crc, int) else None


def applied_of(entry: TimelineEntry, rotated: str) -> Applied:
    """Return the first answer of a rewrite's command, from its timeline entry."""
    head = Position(entry.generation, whole_number(entry.details.get("lines")))
    line = entry.details.get("checkpoint_line")
    return Applied(
        timeline_entries.REWRITES[entry.kind],
        head,
        0,
        new_checkpoint(entry),
        rotated,
        fingerprint_of_entry(entry),
        Position(entry.generation, line) if isinstance(line, int) else None,
    )


def lineage(
    entries: Iterable[TimelineEntry], present: int, checkpoint_id: int | None = None
) -> list[int]:
    """Return the generations that can contain a checkpoint of the present one, newest first.

    A compaction continues the ids of its source, so the source is searched, too; the sources of a
    revert, a clear or a restore are not. A compaction keeps the checkpoints that were set after it
    began. Their ids are above its own, so they are in its result or were cut since.

    Args:
        entries: the timeline.
        present: the present generation.
        checkpoint_id: the wanted checkpoint; None for any.
    """
    rewrites = {
        entry.generation: entry for entry in entries if entry.kind in timeline_entries.REWRITES
    }
    found, at = [present], present
    while (entry := rewrites.get(at)) is not None and entry.kind != timeline_entries.CLEARED:
        source = entry.details.get("from", at - 1)
        if not isinstance(source, int) or not 0 <= source < at:
            break
        own_id = entry.details.get("checkpoint_id")
        is_above = checkpoint_id is not None and isinstance(own_id, int) and checkpoint_id >= own_id
        if entry.kind == timeline_entries.COMPACTED and not is_above:
            found.append(source)
        at = source
    return found


def unreserved_id(entries: Iterable[TimelineEntry], present: int) -> int:
    """Return the first id that no compaction of a generation has reserved."""
    kept = (
        whole_number(entry.details.get("checkpoint_id")) + 1
        for entry in entries
        if entry.kind == timeline_entries.COMPACTING and entry.generation == present
    )
    return max(kept, default=0)


def first_lines_of(entries: Iterable[TimelineEntry], generation: int) -> int:
    """Return the number of lines with which a rewrite created a generation."""
    for entry in entries:
        if entry.kind in timeline_entries.REWRITES and entry.generation == generation:
            return whole_number(entry.details.get("lines"))
    return 0


class Beginning(msgspec.Struct, frozen=True):
    """The beginning of a generation.

    Attributes:
        at: its Unix time in seconds.
        lines: the number of lines that the rewrite put there.
        is_inferred: another program created it; `at` is the last change of the file before it.
    """

    at: float
    lines: int
    is_inferred: bool


def beginnings(entries: Iterable[TimelineEntry], present: int) -> list[Beginning | None]:
    """Return the beginning of each generation up to the present one; None if it is unknown."""
    found: list[Beginning | None] = [Beginning(0.0, 0, is_inferred=False), *[None] * present]
    for entry in entries:
        if entry.kind in {*timeline_entries.REWRITES, timeline_entries.ROTATED} and (
            0 < entry.generation <= present
        ):
            lines = whole_number(entry.details.get("lines"))
            found[entry.generation] = Beginning(entry.at, lines, is_inferred=entry.inferred)
    return found


def is_inferred(entries: Iterable[TimelineEntry], generation: int) -> bool:
    """Whether a generation has no entry, because another program rotated or kept the file."""
    makers = {*timeline_entries.REWRITES, timeline_entries.FORKED}
    recorded = (entry.generation for entry in entries if entry.kind in makers)
    return generation > 0 and generation not in recorded


def incarnation_of(entries: Iterable[TimelineEntry]) -> str | None:
    """Return the incarnation of the session; None if no entry has it."""
    for entry in entries:
        value = entry.details.get("incarnation")
        if isinstance(value, str):
            return value
    return None
