"""The last keys of a file that is being opened."""

from collections.abc import Sequence

from steno_protocol import limits, paths
from steno_protocol.blocks import split_lines
from steno_protocol.timeline_entries import TimelineEntry
from stenod.core.key_replay import applied_in
from stenod.core.keys import KeyTable
from stenod.core.recovery_point import RecoveryPoint
from stenod.recovery.inspection import has_stamps
from stenod.recovery.opened import Opening
from stenod.store.jsonl import JsonlLog


def recent_keys(
    log: JsonlLog,
    opening: Opening,
    lines: int,
    first_lines: int,
    recovery_point: RecoveryPoint | None,
    entries: Sequence[TimelineEntry],
    *,
    is_stream: bool = False,
) -> KeyTable:
    """Returns the keys of the last lines, except lines that a rewrite copied."""
    begin, known = log.size, 0 if log.size == log.generation == 0 else None
    if recovery_point is not None and recovery_point.lines >= first_lines:
        # If few bytes follow the recovery point, the last lines include them and their keys.
        is_near = log.size - recovery_point.bytes <= limits.UNPROVEN_BYTES_MAX
        begin, known = (
            (recovery_point.bytes, recovery_point.youngest_key_ms) if is_near else (begin, None)
        )
    opened_ms, youngest_ms = int(opening.now * 1000), _youngest_ms(known, log.generation, entries)
    if has_stamps(entries):
        table = KeyTable(opened_ms, youngest_ms)
    else:
        table = KeyTable(opened_ms, youngest_ms, limits.UNSTAMPED_KEYS_MAX)
    found = last_lines(log, begin)
    first = lines - len(found)
    for key, applied in applied_in(found, log.generation, first, is_stream=is_stream):
        if applied.first.line >= first_lines:
            table.add(key, applied)
    return table


def _youngest_ms(
    known: int | None, generation: int, entries: Sequence[TimelineEntry]
) -> int | None:
    """Returns the creation time of the newest key used before the last lines; None if unknown."""
    if known is None:
        return None
    # The timeline is read too: sending a D-Mail uses a key, but writes no line after the recovery
    # point.
    used = [entry.key for entry in entries if entry.key and entry.generation >= generation]
    return max(known, *(paths.key_time_ms(key) or 0 for key in used), 0)


def last_lines(log: JsonlLog, begin: int) -> list[bytes]:
    """Returns the lines in the last block of the present file, and all lines from `begin` on."""
    start = max(0, min(begin, log.size - limits.BLOCK_BYTES))
    if not start:
        return split_lines(log.read(log.generation, 0, log.size))
    # One more byte before: it is a newline if a line begins exactly at `start`.
    data = log.read(log.generation, start - 1, log.size - start + 1)
    return split_lines(data[data.find(b"\n") + 1 :])
