"""The program that wrote a file, found in its first lines."""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, BinaryIO, Final

from steno_agents.detection import Detector, is_record
from steno_agents.json_lines import objects_of
from steno_agents.transcript import ForeignTranscript
from steno_follow.limits import (
    DETECTED_BYTES_MAX,
    DETECTED_LINE_BYTES_MAX,
    DETECTED_LINES_MAX,
)
from steno_protocol import limits

_PIECE_BYTES: Final = limits.MIB
"""Bytes of one piece of a long line."""


def foreign_format(file: Path) -> type[ForeignTranscript] | None:
    """The format of another agent's transcript, from its first records; None if it is no such file.

    Raises:
        OSError: it cannot be read.
    """
    with file.open("rb") as content:
        return detected(first_objects(content)).format


def detected(records: Iterable[dict[str, Any]]) -> Detector:
    """The detection of a format, after the records that it needed."""
    detector = Detector()
    any(map(detector.feed, records))
    detector.finish()
    return detector


def first_objects(content: BinaryIO) -> Iterator[dict[str, Any]]:
    """The JSON objects in the first lines of a file, which show the program that wrote it."""
    for line in _first_lines(content):
        for record in objects_of(line, is_record):
            yield record.value


def _first_lines(content: BinaryIO) -> Iterator[bytes]:
    """The first lines, each of them whole; a line that is too long is passed over."""
    read = 0
    for _ in range(DETECTED_LINES_MAX):
        if read >= DETECTED_BYTES_MAX:
            return
        line = line_within(content, DETECTED_LINE_BYTES_MAX)
        if line is None:
            read += DETECTED_LINE_BYTES_MAX
            # The rest of the line, in pieces.
            while read < DETECTED_BYTES_MAX:
                part = content.readline(min(_PIECE_BYTES, DETECTED_BYTES_MAX - read))
                read += len(part)
                if not part or part.endswith(b"\n"):
                    break
        elif line:
            read += len(line)
            yield line
        else:
            return


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
