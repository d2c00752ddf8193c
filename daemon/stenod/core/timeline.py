"""The lines of `timeline.jsonl`: what happened to a session, and the intent of each rewrite.

The line of a rewrite is written before the rewrite, with the fingerprints of the file before and
after it; a `voided` line takes it back.
"""

import zlib
from collections.abc import Iterable
from typing import Any, Final

import msgspec

from steno_protocol import limits, timeline_entries
from steno_protocol._json import whole_number
from steno_protocol.positions import Position
from steno_protocol.timeline_entries import TimelineEntry
from stenod.core import contents
from stenod.core.keys import Applied

_SETTING_CHECKPOINTS: Final = {timeline_entries.COMPACTED, timeline_entries.DELIVERED}

Fingerprint = tuple[int, int]
"""A file's length in bytes and the CRC-32 of its last `FINGERPRINT_BYTES`."""


_encode = msgspec.json.Encoder().encode
_decoder = msgspec.json.Decoder(TimelineEntry)


def fingerprint(size: int, tail: bytes) -> Fingerprint:
    """The fingerprint of a file of `size` bytes whose end is `tail`."""
    return size, zlib.crc32(tail[-limits.FINGERPRINT_BYTES :])


def encode(happening: TimelineEntry) -> bytes:
    """One line of the timeline."""
    return _encode(happening) + b"\n"


def decode(data: bytes) -> list[TimelineEntry]:
    """Every entry that can be read, oldest first, the ones taken back left out."""
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
    """The newest rewrite of a timeline, the only one that a crash can have left in doubt.

    None when that one was taken back: those before it were settled before it was begun, and a file
    that has come to harm since says nothing against them. Nor against one behind which something
    has a later entry: the writer of that entry had recovered it and found that it took place.
    """
    found = None
    for line in data.split(b"\n"):
        entry = _decode(line)
        if entry is not None and entry.kind in timeline_entries.REWRITES:
            found = entry
        elif entry is not None and found is not None and entry.generation >= found.generation:
            # What takes it back is of its generation, too.
            found = None
    return found


def voided(rewrite: TimelineEntry) -> TimelineEntry:
    """What takes a rewrite back that did not take place."""
    return TimelineEntry(
        kind=timeline_entries.VOIDED, generation=rewrite.generation, key=rewrite.key
    )


def with_inferred(entries: list[TimelineEntry], rotated: dict[int, float]) -> list[TimelineEntry]:
    """The entries, with an inferred one for each unrecorded rotation (kimi-cli's own reverts).

    Args:
        entries: what the timeline has.
        rotated: for each generation that began with a rotation, when the file before it last
            changed, in Unix seconds.
    """
    recorded = {entry.generation for entry in entries if entry.kind in timeline_entries.REWRITES}
    inferred = [
        TimelineEntry(kind=timeline_entries.ROTATED, generation=generation, at=at, inferred=True)
        for generation, at in sorted(rotated.items())
        if generation not in recorded
    ]
    merged = list(entries)
    for entry in inferred:
        # Not by their times: a file's time is a few ms behind the clock.
        later = (at for at, each in enumerate(merged) if each.generation >= entry.generation)
        merged.insert(next(later, len(merged)), entry)
    return merged


def fingerprint_of(entry: TimelineEntry, which: str) -> Fingerprint | None:
    """The `old` or `new` fingerprint of a rewrite, None if the entry has none."""
    value: Any = entry.details.get(which)
    try:
        size, crc = value
    except (TypeError, ValueError):
        return None
    return (size, crc) if isinstance(size, int) and isinstance(crc, int) else None


def applied_of(entry: TimelineEntry, rotated: str) -> Applied:
    """The answer that a rewrite's command got."""
    head = Position(entry.generation, whole_number(entry.details.get("lines")))
    # Only these set a checkpoint; a revert's is the one that it went back to.
    number = entry.details.get("checkpoint_id") if entry.kind in _SETTING_CHECKPOINTS else None
    checkpoint_id = number if isinstance(number, int) else None
    asked = contents.of_entry(entry)
    return Applied(timeline_entries.REWRITES[entry.kind], head, 0, checkpoint_id, rotated, asked)


def lineage(
    entries: Iterable[TimelineEntry], present: int, checkpoint_id: int | None = None
) -> list[int]:
    """The generations in which a checkpoint of the present one can lie, the present one first.

    A compaction continues the ids of the generation that it left behind, so that one is searched
    too; what a revert, a clear or a restore left behind is not. It keeps what was set since it
    began: such an id, which is above its own, lies in what it made, or was cut since.

    Args:
        entries: of the timeline.
        present: the generation.
        checkpoint_id: the one that is looked for; None for any.
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
    """The first id that no compaction of a generation keeps for its own checkpoint."""
    kept = (
        whole_number(entry.details.get("checkpoint_id")) + 1
        for entry in entries
        if entry.kind == timeline_entries.COMPACTING and entry.generation == present
    )
    return max(kept, default=0)


def first_lines_of(entries: Iterable[TimelineEntry], generation: int) -> int:
    """Lines that a generation had when a rewrite made it; lines below were written before."""
    for entry in entries:
        if entry.kind in timeline_entries.REWRITES and entry.generation == generation:
            return whole_number(entry.details.get("lines"))
    return 0


class Beginning(msgspec.Struct, frozen=True):
    """How a generation began.

    Attributes:
        at: when, in Unix seconds.
        lines: how many the rewrite that made it put there.
        is_inferred: another program made it; `at` is when the file before it last changed.
    """

    at: float
    lines: int
    is_inferred: bool


def beginnings(entries: Iterable[TimelineEntry], present: int) -> list[Beginning | None]:
    """The entries that began the generations up to the present one; None where there is none."""
    found: list[Beginning | None] = [Beginning(0.0, 0, is_inferred=False), *[None] * present]
    for entry in entries:
        if entry.kind in {*timeline_entries.REWRITES, timeline_entries.ROTATED} and (
            0 < entry.generation <= present
        ):
            lines = whole_number(entry.details.get("lines"))
            found[entry.generation] = Beginning(entry.at, lines, is_inferred=entry.inferred)
    return found


def is_inferred(entries: Iterable[TimelineEntry], generation: int) -> bool:
    """True when a generation has no entry: another program rotated or kept the file."""
    makers = {*timeline_entries.REWRITES, timeline_entries.FORKED}
    recorded = (entry.generation for entry in entries if entry.kind in makers)
    return generation > 0 and generation not in recorded


def incarnation_of(entries: Iterable[TimelineEntry]) -> str | None:
    """The incarnation of the session; None if no entry has it."""
    for entry in entries:
        value = entry.details.get("incarnation")
        if isinstance(value, str):
            return value
    return None
