"""The JSON objects in a line of any program, damaged lines included."""

from collections.abc import Callable
from typing import Any, Final, NamedTuple

from steno.values import decode_object
from steno_agents.limits import LINE_VALUES_MAX
from steno_protocol._json import replace_lone_surrogates
from steno_protocol.record_salvage import is_well_formed, whole_records

_VALUE_MARKS: Final = (b"{", b"[", b",")


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
    return len(line) <= LINE_VALUES_MAX or sum(map(line.count, _VALUE_MARKS)) <= LINE_VALUES_MAX
