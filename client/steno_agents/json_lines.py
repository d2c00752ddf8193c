"""The JSON objects in a line of any program, damaged lines included."""

import re
from collections.abc import Callable
from typing import Any, Final, NamedTuple

from steno.values import decode_object
from steno_agents.limits import FOLLOWED_LINE_BYTES, LINE_VALUES_MAX
from steno_protocol._json import replace_lone_surrogates
from steno_protocol.record_salvage import is_well_formed, whole_records

_VALUE_MARKS: Final = (b"{", b"[", b",")

_TEXT: Final = re.compile(rb'"[^"\\]*+(?:\\.?[^"\\]*+)*+(?:"|\Z)', re.DOTALL)
"""A text, or what is left of the line."""

_BEYOND_16_BITS: Final = re.compile(rb"[\xf0-\xf4]|\\u[dD][89abAB]")
_BEYOND_8_BITS: Final = re.compile(rb"[\xc4-\xef]|\\u(?!00)")


class Placed(NamedTuple):
    """A record in a line.

    Attributes:
        start: the offset of its first byte in the line.
        end: the offset behind its last byte.
        value: the record.
    """

    start: int
    end: int
    value: dict[str, Any]


def objects_of(line: bytes, is_own: Callable[[dict[str, Any]], bool]) -> list[Placed]:
    """The JSON objects of a line: one, or none, or the whole ones in a damaged line.

    Two writers without a lock leave lines that contain the rest of one record and all of another.

    Args:
        line: the line with its newline.
        is_own: whether an object behind damaged bytes is a record, and no part of the damaged one.
    """
    value = lenient_object(line)
    if value is not None:
        return [Placed(0, len(line), value)]
    if not _is_decodable(line) or is_well_formed(line):
        return []

    def is_whole(data: bytes) -> bool:
        found = lenient_object(data)
        return found is not None and is_own(found)

    spans = whole_records(line.rstrip(b"\r\n"), is_whole, ended=line.endswith(b"\n"))
    placed = [(span, lenient_object(line[span.start : span.end])) for span in spans]
    return [Placed(span.start, span.end, each) for span, each in placed if each is not None]


def lenient_object(line: bytes) -> dict[str, Any] | None:
    """The JSON object of a line of any program, None if it is none.

    U+FFFD takes the place of half a surrogate pair, for which strict readers refuse a line.
    """
    if not _is_decodable(line):
        return None
    record = decode_object(line)
    if record is not None:
        return record
    replaced = replace_lone_surrogates(line)
    return None if replaced == line else decode_object(replaced)


def _is_decodable(line: bytes) -> bool:
    """Whether the values of a line fit into memory; counting their marks overestimates them."""
    if len(line) <= LINE_VALUES_MAX:
        return True
    return sum(map(line.count, _VALUE_MARKS)) <= LINE_VALUES_MAX and (
        4 * len(line) <= FOLLOWED_LINE_BYTES
        or (line.count(b'"') <= LINE_VALUES_MAX and _text_bytes(line) <= FOLLOWED_LINE_BYTES)
    )


def _text_bytes(line: bytes) -> int:
    """The memory that the texts of a line take at most while they are decoded.

    A text takes as much for each of its bytes as for its widest character: an emoji makes its own
    text four times as large, and not the Base64 of an image beside it.
    """
    if line.isascii() and b"\\u" not in line:
        return len(line)
    spans = (found.span() for found in _TEXT.finditer(line))
    return sum((end - begin) * _width(line, begin, end) for begin, end in spans)


def _width(line: bytes, begin: int, end: int) -> int:
    """The bytes of each character of a text."""
    if _BEYOND_16_BITS.search(line, begin, end):
        return 4
    return 2 if _BEYOND_8_BITS.search(line, begin, end) else 1
