"""Whole lines of a file, and the judgement of its tail."""

from collections.abc import Iterable, Iterator

import msgspec

from steno_protocol.blocks import split_lines
from steno_protocol.context import Blank, Damaged, parse_line, parse_tolerantly
from steno_protocol.record_salvage import whole_records
from steno_protocol.records import Stamp, stamp_of
from steno_protocol.wire import Metadata, WireRecord, parse_wire_line

Blocks = Iterable[tuple[int, bytes]]
"""Blocks of a file's whole lines, each with its offset."""

_decode = msgspec.json.Decoder().decode


class Tail(msgspec.Struct, frozen=True):
    """The judgement of a file's tail.

    Attributes:
        keep: bytes from the start of the examined region that are whole batches of whole lines.
        damage: the reason why the rest cannot be kept, None if everything can.
        unended: the last line is another program's whole record without a newline.
    """

    keep: int
    damage: str | None = None
    unended: bool = False


def whole_lines(data: bytes) -> int:
    """Return the number of bytes up to the end of the last whole line."""
    return data.rfind(b"\n") + 1


def lines_of(blocks: Blocks) -> Iterator[tuple[int, bytes]]:
    """Yield offset and bytes of each line of a file's blocks, in order."""
    for start, block in blocks:
        offset = start
        for line in split_lines(block):
            yield offset, line
            offset += len(line)


def holds_object(line: bytes) -> bool:
    """Whether a line is one JSON object, the only condition of recovery on a line."""
    if b"\0" in line:
        return False
    try:
        return isinstance(_decode(line), dict)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return False


def examine_tail(region: bytes, *, marked: bool) -> Tail:
    """Judge the last bytes of a file.

    After a power cut a file that was appended to ends early, or has NULs where pages were lost.
    Whole lines may follow a lost page, but they were never acknowledged, so the tail is torn from
    the first damage on. Damage before a line of another program is not cut.

    Args:
        region: bytes from the start of a line to the end of the file.
        marked: the region begins at a length that is known to have been synced. If not, damage
            without NULs may be old, and only the very end counts as torn.
    """
    if not marked and _ends_soundly(region):
        return Tail(len(region))
    lines = split_lines(region)
    first_bad, reason = _first_damage(lines, marked=marked)
    if first_bad is not None and any(_is_foreign(line) for line in lines[first_bad + 1 :]):
        first_bad, reason = _damaged_end(lines)
    if first_bad is None:
        return Tail(len(region))
    if first_bad == len(lines) - 1 and _is_unended_foreign(lines[-1]):
        return Tail(len(region), unended=True)
    return Tail(sum(map(len, lines[: _sound_end(lines, first_bad)])), reason)


def _ends_soundly(region: bytes) -> bool:
    """Whether no page is lost and the last line is whole and ends its batch.

    Then nothing is torn where older damage counts as old, and no other line has to be read.
    """
    if b"\0" in region or not region.endswith(b"\n"):
        return False
    last = region[region.rfind(b"\n", 0, -1) + 1 :]
    stamp = stamp_of(last)
    return _is_settled(last) and (stamp is None or stamp.index + 1 == stamp.size)


def _sound_end(lines: list[bytes], end: int) -> int:
    """Return the index before which all lines stay, so that the next opening finds no damage."""
    while end:
        last = lines[end - 1]
        stamp = stamp_of(last)
        if _is_settled(last) and (stamp is None or stamp.index + 1 == stamp.size):
            break
        end -= 1
    return end


def _first_damage(lines: list[bytes], *, marked: bool) -> tuple[int | None, str | None]:
    """Return index and reason of the first line to cut: a damaged one or a torn batch's first."""
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
    """Whether a line cannot be the result of a crash."""
    return not line.strip() or holds_object(line) or _is_odd(line) or _is_welded(line)


def _is_foreign(line: bytes) -> bool:
    if not line.endswith(b"\n") or not line.strip() or stamp_of(line) is not None:
        return False
    return holds_object(line) or _is_odd(line) or _is_welded(line)


def _is_odd(line: bytes) -> bool:
    """Whether a line is another program's whole line that only kimi-cli's lenient parser reads.

    It has its last brace and its newline, and no NULs of a lost page.
    """
    if b"\0" in line or not line.endswith(b"\n") or stamp_of(line) is not None:
        return False
    return not isinstance(parse_tolerantly(line), Damaged)


def _is_welded(line: bytes) -> bool:
    """Whether another program wrote a whole record behind a half one into the same line.

    A crash leaves no newline behind a half line, and NULs in place of lost pages. If the line ends
    with a stamp of steno's, that command was not applied, and is cut with the line.
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
