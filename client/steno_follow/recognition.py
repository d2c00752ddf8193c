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
from steno_follow.lines import line_within
from steno_protocol.limits import MIB

_PIECE_BYTES: Final = MIB
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
