"""Lookup of idempotency keys in the files of a session."""

import re
from collections.abc import Callable, Iterator
from typing import Final

from steno_protocol import limits, paths, timeline_entries
from steno_protocol.lines import count_lines, split_lines
from steno_protocol.records import stamp_of
from stenod.core import dmail, timeline
from stenod.core.key_replay import applied_in
from stenod.core.keys import Applied, KeyFilter
from stenod.core.lines import whole_lines
from stenod.store.log import Log

_FIRST_READ_BYTES: Final = 64 * limits.KIB
"""Bytes of the first read of a command; most are shorter, and longer ones are read again."""


def build_filter(log: Log) -> KeyFilter:
    """Build a filter with every key in the session's files; reads all of them twice.

    A line has at most one key, so the number of lines determines the size.
    """
    generations = log.generations()
    lines = sum(
        count_lines(block) for generation in generations for _, block in blocks(log, generation)
    )
    found = KeyFilter(2 * lines)
    for generation in generations:
        for _, block in blocks(log, generation):
            found.add_block(block)
    found.add_block(log.timeline())
    return found


def look_up(log: Log, path: str, key: str) -> Applied | None:
    """Find the command of a key; None if no file has all of its records.

    The oldest generation that has it is the one in which it was applied.
    """
    for entry in timeline.decode(log.timeline()):
        if entry.key == key and entry.kind in timeline_entries.REWRITES:
            return timeline.applied_of(entry, f"{path}/{paths.generation_file(entry.generation)}")
        if entry.key == key and entry.kind == timeline_entries.SENT:
            return dmail.applied_of(entry)
    for generation in log.generations():
        applied = _look_up_in(log, generation, key)
        if applied is not None:
            return applied
    return None


def _look_up_in(log: Log, generation: int, key: str) -> Applied | None:
    # The stamp of a command's first line: of a single record, or number 0 of a batch.
    wanted = re.compile(rb'"_id":"%b(?:"|\.0/)' % key.encode())
    line = 0
    for offset, block in blocks(log, generation):
        for hit in wanted.finditer(block):
            start = block.rfind(b"\n", 0, hit.start()) + 1
            number = line + block.count(b"\n", 0, start)
            applied = _command_at(log, generation, offset + start, number, key)
            if applied is not None:
                return applied
        line += count_lines(block)
    return None


def _command_at(log: Log, generation: int, offset: int, number: int, key: str) -> Applied | None:
    """Parse the command with its first line at `offset`; its batch may exceed the block."""
    size = _FIRST_READ_BYTES
    while True:
        data = log.read(generation, offset, size)
        lines = split_lines(data[: whole_lines(data)])
        stamp = stamp_of(lines[0]) if lines else None
        if stamp is not None and (stamp.key, stamp.index) != (key, 0):
            return None
        if stamp is not None and len(lines) >= stamp.size:
            found = applied_in(lines[: stamp.size], generation, number)
            return next((applied for name, applied in found if name == key), None)
        if len(data) < size or (lines and stamp is None) or size > limits.BATCH_BYTES_MAX * 4:
            return None
        size *= 4


def blocks(log: Log, generation: int, begin: int = 0) -> Iterator[tuple[int, bytes]]:
    """Yield offset and bytes of a generation's whole lines from `begin`, a block at a time."""
    return blocks_of(lambda size, offset: log.read(generation, offset, size), begin)


def blocks_of(read: Callable[[int, int], bytes], begin: int = 0) -> Iterator[tuple[int, bytes]]:
    """Yield blocks of whole lines as `blocks`; `read` takes a size and an offset."""
    offset, rest = begin, b""
    while data := read(limits.BLOCK_BYTES, offset + len(rest)):
        data = rest + data
        cut = whole_lines(data)
        if cut:
            yield offset, data[:cut]
        offset, rest = offset + cut, data[cut:]
