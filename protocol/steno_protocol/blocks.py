"""Bytes split into lines, and blocks of whole lines read from a file by line number."""

from io import BytesIO
from itertools import islice
from typing import Final, Protocol

import msgspec

from steno_protocol import limits
from steno_protocol.errors import BadRequest

_SAMPLE_BYTES: Final = 4096
_SHORT_LINE_BYTES: Final = 64
"""Average line length below which counting newlines is faster than splitting."""


def split_lines(data: bytes) -> list[bytes]:
    r"""Split `data` into lines with their newlines; the last one may lack it.

    >>> split_lines(b"one\r\ntwo\n\nthree")
    [b'one\r\n', b'two\n', b'\n', b'three']
    """
    return BytesIO(data).readlines()


def count_lines(data: bytes) -> int:
    r"""Count the lines that end in `data`.

    >>> count_lines(b"one\ntwo\nthr")
    2
    """
    shorts = data.count(b"\n", 0, _SAMPLE_BYTES) * _SHORT_LINE_BYTES
    if shorts > min(len(data), _SAMPLE_BYTES):
        return data.count(b"\n")
    return len(BytesIO(data).readlines()) - (not data.endswith(b"\n") and bool(data))


_LINE_BYTES_MAX = limits.RECORD_BYTES_MAX + limits.HEADER_BYTES_MAX
"""Bytes of a line by steno: a record and its stamp. A longer line is another program's and is
skipped."""


class Bytes(Protocol):
    """The readable bytes of a file, which never change."""

    def read(self, size: int, offset: int) -> bytes:
        """Read up to `size` bytes from `offset`, fewer only at the end; blocks."""
        ...


class Block(msgspec.Struct, frozen=True):
    """Whole lines of one generation.

    Attributes:
        first: number of the first line.
        next: number of the line after the last one.
        offset: byte offset of that line.
        data: the lines.
        skipped: lines left out because they are too long for a message.
    """

    first: int
    next: int
    offset: int
    data: bytes
    skipped: int = 0


def read_block(
    view: Bytes, line: int, offset: int | None, bytes_max: int, until: int | None = None
) -> Block:
    """Read whole lines from line number `line` on; empty at the end of the bytes.

    Args:
        view: the readable bytes.
        line: number of the first line.
        offset: the offset of that line, if the caller knows it; otherwise lines are counted.
        bytes_max: bytes of the block; one line is always returned, however long.
        until: number of the line to end before.

    Raises:
        BadRequest: the offset is not the start of a line.
    """
    if offset is None:
        line, offset = seek(view, line)
    elif offset and view.read(1, offset - 1) != b"\n":
        raise BadRequest(f"the offset {offset} is not the start of a line: leave it out")
    data = _whole(view, offset, bytes_max)
    if data is None:
        size = _line_size(view, offset)
        return Block(line, line + 1, offset + size, b"", skipped=1)
    count = count_lines(data)
    if until is not None and line + count > until:
        data = _first_lines(data, max(0, until - line))
        count = max(0, until - line)
    return Block(line, line + count, offset + len(data), data)


def read_lines(
    view: Bytes, line: int, offset: int, bytes_max: int, until: int | None = None
) -> tuple[Block, list[bytes]]:
    """Read as `read_block`, and return the lines one by one beside a block without data."""
    count = None if until is None else max(0, until - line)
    data = BytesIO(view.read(bytes_max, offset))
    lines = [*islice(data, count)]
    end = offset + data.tell()
    if lines and not lines[-1].endswith(b"\n"):
        end -= len(lines.pop())
    if not lines:
        block = read_block(view, line, offset, bytes_max, until)
        return block, split_lines(block.data)
    return Block(line, line + len(lines), end, b""), lines


def seek(view: Bytes, line: int) -> tuple[int, int]:
    """Return number and offset of line `line`, or of the end of the bytes if there are fewer."""
    number, offset = 0, 0
    while number < line:
        data = view.read(limits.BLOCK_BYTES, offset)
        count = count_lines(data)
        if not data:
            break
        if number + count >= line:
            return line, offset + len(_first_lines(data, line - number))
        number += count
        offset += len(data)
    return number, offset


def seek_last(view: Bytes, size: int, count: int) -> int:
    """Return the offset of the line that is `count` lines before the end of whole lines.

    Only the last blocks are read.

    Args:
        view: the readable bytes.
        size: their number.
        count: the number of lines; if there are fewer, the offset is 0.
    """
    wanted, end = count + 1, size
    while end > 0:
        start = max(0, end - limits.BLOCK_BYTES)
        data = view.read(end - start, start)
        found = data.count(b"\n")
        if found >= wanted:
            at = len(data)
            for _ in range(wanted):
                at = data.rfind(b"\n", 0, at)
            return start + at + 1
        wanted, end = wanted - found, start
    return 0


def _whole(view: Bytes, offset: int, bytes_max: int) -> bytes | None:
    """Read whole lines from `offset`; None if the first one is too long for a message."""
    size = bytes_max
    while True:
        data = view.read(size, offset)
        # A read beyond `bytes_max` returns only the one line that is longer than that.
        cut = (data.rfind(b"\n") if size <= bytes_max else data.find(b"\n")) + 1
        if cut or len(data) < size:
            return data[:cut]
        if size >= _LINE_BYTES_MAX:
            return None
        size = min(size * 4, _LINE_BYTES_MAX)


def _line_size(view: Bytes, offset: int) -> int:
    size = 0
    while data := view.read(limits.BLOCK_BYTES, offset + size):
        end = data.find(b"\n") + 1
        if end:
            return size + end
        size += len(data)
    return size


def _first_lines(data: bytes, count: int) -> bytes:
    end = 0
    for _ in range(count):
        end = data.find(b"\n", end) + 1
    return data[:end]
