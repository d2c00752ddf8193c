"""Whole lines of a file that its program writes, of which each is in memory once."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, Final

from steno_agents.following import Reading
from steno_follow.limits import TRANSCRIPT_LINE_BYTES_MAX
from steno_protocol.errors import TooLarge
from steno_protocol.limits import MIB

_PIECE_BYTES: Final = MIB
"""Bytes of one piece of a long line."""


def whole_lines(
    content: BinaryIO, path: Path, begin: int = 0, end: int | None = None
) -> Iterator[bytes]:
    """Yield the whole lines from the present place of a file on.

    Args:
        content: the open file.
        path: its path, for messages.
        begin: the offset of the present place.
        end: the offset up to which lines are whole; None for the end of the file.

    Raises:
        TooLarge: a line is too long to be kept in memory.
    """
    while end is None or begin < end:
        line = line_within(content, TRANSCRIPT_LINE_BYTES_MAX)
        if line is None:
            raise too_long_line(path, begin)
        if not line.endswith(b"\n") or (end is not None and begin + len(line) > end):
            return
        yield line
        begin += len(line)


def line_within(content: BinaryIO, bytes_max: int) -> bytes | None:
    """The next line; None if it is longer, of which no more than the bound is read.

    The pieces of a long line would need its memory twice, so that its end is looked for first.
    """
    first = content.readline(min(_PIECE_BYTES, bytes_max))
    if first.endswith(b"\n") or len(first) < min(_PIECE_BYTES, bytes_max):
        return first
    if not content.seekable():
        return _joined(content, first, bytes_max)
    begin, size = content.tell() - len(first), len(first)
    del first
    while size < bytes_max:
        piece = content.readline(min(_PIECE_BYTES, bytes_max - size))
        size += len(piece)
        if piece.endswith(b"\n") or not piece:
            content.seek(begin)
            return content.read(size)
    return None


def _joined(content: BinaryIO, first: bytes, bytes_max: int) -> bytes | None:
    pieces, left = [first], bytes_max - len(first)
    while left:
        piece = content.readline(min(_PIECE_BYTES, left))
        pieces.append(piece)
        left -= len(piece)
        if piece.endswith(b"\n") or not piece:
            return b"".join(pieces)
    return None


def too_long_line(path: Path, offset: int) -> TooLarge:
    """The error for a line that is longer than any that an agent writes."""
    return TooLarge(
        f"the line at byte {offset} of {path} has more than {TRANSCRIPT_LINE_BYTES_MAX} bytes, more"
        " than steno reads: remove the line from a copy of the file, and import the copy"
    )


class LineLength:
    """Refuses a file with a line that is too long, block by block."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._offset = 0
        self._line = 0

    def feed(self, block: bytes) -> None:
        """Look at the next block.

        Raises:
            TooLarge: a line has become too long.
        """
        last = block.rfind(b"\n") + 1
        longest = self._offset - self._line + (block.find(b"\n") if last else len(block))
        if longest > TRANSCRIPT_LINE_BYTES_MAX:
            raise too_long_line(self._path, self._line)
        self._line = self._offset + last if last else self._line
        self._offset += len(block)


def still_has(file: BinaryIO, reading: Reading) -> bool:
    """Whether a file has what was read last, at the same place; its buffer is not asked."""
    begin = reading.offset - len(reading.tail)
    return os.pread(file.fileno(), len(reading.tail), begin) == reading.tail
