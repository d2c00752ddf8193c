"""Bytes as lines: where they end, how many there are, and which of them a tail may keep."""

from collections.abc import Iterable, Iterator

import msgspec

from steno_protocol.context import Blank, Damaged, parse_line, parse_tolerantly
from steno_protocol.lines import split_lines
from steno_protocol.record_salvage import whole_records
from steno_protocol.records import Stamp, stamp_of
from steno_protocol.wire import Metadata, WireRecord, parse_wire_line

Blocks = Iterable[tuple[int, bytes]]
"""A file's whole lines: blocks of them, each with its offset."""

_decode = msgspec.json.Decoder().decode


class Tail(msgspec.Struct, frozen=True):
    """What recovery may believe of the end of a file.

    Attributes:
        keep: bytes, from the start of the examined region, that are whole batches of whole lines.
        damage: why the rest cannot be kept, or None when everything can.
        unended: the last line is a whole foreign record that only lacks its newline.
    """

    keep: int
    damage: str | None = None
    unended: bool = False


def whole_lines(data: bytes) -> int:
    """Bytes of `data` up to the end of its last whole line."""
    return data.rfind(b"\n") + 1


def lines_of(blocks: Blocks) -> Iterator[tuple[int, bytes]]:
    """Offset and bytes of each line of a file's blocks, in order."""
    for start, block in blocks:
        offset = start
        for line in split_lines(block):
            yield offset, line
            offset += len(line)


def holds_object(line: bytes) -> bool:
    """True when the line is one JSON object, which is all that recovery asks of a line."""
    if b"\0" in line:
        return False
    try:
        return isinstance(_decode(line), dict)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return False


def examine_tail(region: bytes, *, marked: bool) -> Tail:
    """Decide what of a file's last bytes is whole.

    After a power cut a file that was appended to ends early, or has NULs where pages were lost;
    whole lines may follow a lost page, but they were never acknowledged. So the tail is torn from
    the first damage on. What lies behind a line that a foreign program wrote is not cut.

    Args:
        region: bytes from the start of a line to the end of the file.
        marked: the region begins at a length that is known to have been synced. If not, damage
            without NULs may be old, and only the very end counts as torn.
    """
    lines = split_lines(region)
    first_bad, reason = _first_damage(lines, marked=marked)
    if first_bad is not None and any(_is_foreign(line) for line in lines[first_bad + 1 :]):
        first_bad, reason = _damaged_end(lines)
    if first_bad is None:
        return Tail(len(region))
    if first_bad == len(lines) - 1 and _is_unended_foreign(lines[-1]):
        return Tail(len(region), unended=True)
    return Tail(sum(map(len, lines[: _sound_end(lines, first_bad)])), reason)


def _sound_end(lines: list[bytes], end: int) -> int:
    """Where to cut if nothing is left from `end` on: the next opening must find nothing torn."""
    while end:
        last = lines[end - 1]
        stamp = stamp_of(last)
        if _is_settled(last) and (stamp is None or stamp.index + 1 == stamp.size):
            break
        end -= 1
    return end


def _first_damage(lines: list[bytes], *, marked: bool) -> tuple[int | None, str | None]:
    """Index of the first line that may not be kept: a damaged one, or the start of a torn batch."""
    batch_start: int | None = None
    expected: Stamp | None = None
    for index, line in enumerate(lines):
        if _is_damaged(line, marked=marked):
            return (index if batch_start is None else batch_start), "an unfinished or damaged line"
        stamp = stamp_of(line)
        if expected is not None and stamp != expected:
            if marked:
                return batch_start, "a batch without its end"
            batch_start = None
        if stamp is None or stamp.index + 1 == stamp.size:
            batch_start, expected = None, None
        else:
            batch_start = index if batch_start is None else batch_start
            expected = Stamp(stamp.key, stamp.index + 1, stamp.size)
    if batch_start is not None:
        return batch_start, "a batch without its end"
    return _damaged_end(lines)


def _damaged_end(lines: list[bytes]) -> tuple[int | None, str | None]:
    index = len(lines)
    while index and not (lines[index - 1].endswith(b"\n") and _is_settled(lines[index - 1])):
        index -= 1
    return (index, "an unfinished or damaged last line") if index < len(lines) else (None, None)


def _is_damaged(line: bytes, *, marked: bool) -> bool:
    if b"\0" in line or not line.endswith(b"\n"):
        return True
    return marked and not _is_settled(line)


def _is_settled(line: bytes) -> bool:
    """True for a line that no crash has left like this."""
    return not line.strip() or holds_object(line) or _is_odd(line) or _is_welded(line)


def _is_foreign(line: bytes) -> bool:
    if not line.endswith(b"\n") or not line.strip() or stamp_of(line) is not None:
        return False
    return holds_object(line) or _is_odd(line) or _is_welded(line)


def _is_odd(line: bytes) -> bool:
    """True for another program's whole line that is no strict JSON and that kimi-cli reads.

    Its last brace and newline are there, and nothing was lost: that would have left NULs.
    """
    if b"\0" in line or not line.endswith(b"\n") or stamp_of(line) is not None:
        return False
    return not isinstance(parse_tolerantly(line), Damaged)


def _is_welded(line: bytes) -> bool:
    """True for a line into which another program wrote a whole record behind half a one.

    A crash leaves no newline behind a half line, and NULs where it lost something. What bears our
    stamp was not applied, because that line swallowed it, and is cut with it.
    """
    if b"\0" in line or not line.endswith(b"\n") or stamp_of(line) is not None:
        return False
    spans = whole_records(line[:-1], _is_record, ended=True)
    return any(_is_record(line[span.start : span.end]) for span in spans)


def _is_record(data: bytes) -> bool:
    is_message = not isinstance(parse_line(data), (Blank, Damaged))
    return is_message or isinstance(parse_wire_line(data), (Metadata, WireRecord))


def _is_unended_foreign(line: bytes) -> bool:
    return not line.endswith(b"\n") and stamp_of(line) is None and holds_object(line)
