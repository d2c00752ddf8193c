"""Lookup of idempotency keys in a session's files."""

import re
from collections.abc import Callable, Iterator, Sequence
from itertools import takewhile
from typing import Final

from steno_protocol import limits, paths, timeline_entries
from steno_protocol.blocks import count_lines, split_lines
from steno_protocol.records import stamp_of
from stenod.core import dmail, timeline
from stenod.core.key_replay import applied_in
from stenod.core.keys import Applied, KeyFilter
from stenod.core.lines import whole_lines
from stenod.store.log import Log, View

_FIRST_READ_BYTES: Final = 64 * limits.KIB
"""Bytes of the first read of a command; each further read is four times as long, and rare."""


def build_filter(log: Log) -> KeyFilter:
    """Returns a filter of all keys in the session's files; reads them once."""
    generations = log.generations()
    size = sum(log.length(generation) for generation in generations)
    found = KeyFilter(size // limits.KEY_FILTER_LINE_BYTES, generations[0])
    found.add_timeline(log.timeline())
    for generation, block in _new_blocks(log, generations):
        found.add_lines(block, generation)
    return found


def _new_blocks(log: Log, generations: Sequence[int]) -> Iterator[tuple[int, bytes]]:
    """Yields the blocks of each generation that the one before has not at the same place.

    A revert leaves most of a file as it is, and a comparison is faster than a search for keys.
    """
    before: View | None = None
    try:
        for generation in generations:
            view = log.view(generation)
            try:
                for offset, block in blocks_of(view.read, size=limits.KEY_BLOCK_BYTES):
                    if before is None or before.read(len(block), offset) != block:
                        yield generation, block
            finally:
                if before is not None:
                    before.release()
                before = view
    finally:
        if before is not None:
            before.release()


def look_up(log: Log, path: str, key: str, oldest: int = 0) -> Applied | None:
    """Returns the effect of the command with this key; None if it was never applied.

    The command was applied in the oldest generation that has its key; later ones have copies.

    Args:
        log: the session's files.
        path: the path of the session's folder, for the effect of a rewrite.
        key: the idempotency key.
        oldest: a generation; no older one has the key.
    """
    for entry in timeline.decode(log.timeline()):
        if entry.key == key and entry.kind in timeline_entries.REWRITES:
            return timeline.applied_of(entry, f"{path}/{paths.generation_file(entry.generation)}")
        if entry.key == key and entry.kind == timeline_entries.SENT:
            return dmail.applied_of(entry)
    for generation in log.generations():
        if generation < oldest:
            continue
        applied = _look_up_in(log, generation, key)
        if applied is not None:
            return applied
    return None


def _look_up_in(log: Log, generation: int, key: str) -> Applied | None:
    # A search of bytes first: it is quicker than the expression, which most blocks do not need.
    begin = b'"_id":"%b' % key.encode()
    # Matches the stamp of a command's first line: its own key, or record 0 of a batch.
    wanted = re.compile(begin + rb'(?:"|\.0/)')
    line, counted = 0, 0
    for offset, block in _key_blocks(log, generation):
        for hit in wanted.finditer(block) if begin in block else ():
            start = block.rfind(b"\n", 0, hit.start()) + 1
            # Counted for a hit alone: it takes longer than the search.
            line += _lines_between(log, generation, counted, offset)
            counted, number = offset, line + block.count(b"\n", 0, start)
            applied = _command_at(log, generation, offset + start, number, key)
            if applied is not None:
                return applied
    return None


def _lines_between(log: Log, generation: int, begin: int, end: int) -> int:
    between = takewhile(lambda each: each[0] < end, _key_blocks(log, generation, begin))
    return sum(count_lines(block[: end - offset]) for offset, block in between)


def _command_at(log: Log, generation: int, offset: int, number: int, key: str) -> Applied | None:
    """Returns the command whose first line is at `offset`; its batch may exceed the block."""
    size = _FIRST_READ_BYTES
    while True:
        data = log.read(generation, offset, size)
        lines = split_lines(data[: whole_lines(data)])
        stamp = stamp_of(lines[0]) if lines else None
        if stamp is not None and (stamp.key, stamp.index) != (key, 0):
            return None
        if stamp is not None and len(lines) >= stamp.size:
            is_stream = paths.stream_of(log.name) is not None
            found = applied_in(lines[: stamp.size], generation, number, is_stream=is_stream)
            return next((applied for name, applied in found if name == key), None)
        if len(data) < size or (lines and stamp is None) or size > limits.BATCH_BYTES_MAX * 4:
            return None
        size *= 4


def blocks(log: Log, generation: int, begin: int = 0) -> Iterator[tuple[int, bytes]]:
    """Yields a generation's whole lines from `begin` with their offset, in `BLOCK_BYTES` reads."""
    if generation != log.generation:
        return _viewed_blocks(log, generation, begin)
    return blocks_of(lambda size, offset: log.read(generation, offset, size), begin)


def _key_blocks(log: Log, generation: int, begin: int = 0) -> Iterator[tuple[int, bytes]]:
    return _viewed_blocks(log, generation, begin, limits.KEY_BLOCK_BYTES)


def _viewed_blocks(
    log: Log, generation: int, begin: int, size: int | None = None
) -> Iterator[tuple[int, bytes]]:
    # Opened once, because a compressed one is expanded by each opening.
    view = log.view(generation)
    try:
        yield from blocks_of(view.read, begin, size)
    finally:
        view.release()


def blocks_of(
    read: Callable[[int, int], bytes], begin: int = 0, size: int | None = None
) -> Iterator[tuple[int, bytes]]:
    """Yields whole lines as `blocks` does, with bytes that `read` returns for a size and offset."""
    offset, rest, size = begin, b"", size or limits.BLOCK_BYTES
    # A line of many blocks is read in steps that grow, because each step copies what it has.
    while data := read(max(size, len(rest)), offset + len(rest)):
        data = rest + data
        cut = whole_lines(data)
        if cut:
            yield offset, data[:cut]
        offset, rest = offset + cut, data[cut:]
