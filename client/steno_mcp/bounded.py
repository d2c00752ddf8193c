"""Records cut to the size of an answer; pure."""

from typing import Any

import msgspec

from steno_mcp.limits import RECORD_BYTES_MAX, TEXT_CHARS_MAX
from steno_protocol._json import is_array, is_object
from steno_protocol.limits import RECORD_DEPTH_MAX

_encode = msgspec.json.Encoder().encode


class _TooDeepError(Exception):
    """A value is nested deeper than records that steno accepts."""


def bounded(record: dict[str, Any], size: int) -> tuple[dict[str, Any], int, bool]:
    """A record for an answer.

    Args:
        record: the JSON object.
        size: bytes of its line.

    Returns:
        The record with shorter texts, or its role and size alone; its bytes; whether it was cut.
    """
    try:
        cut = _shortened(record, 0)
    except _TooDeepError:
        return _omitted(record, size)
    is_cut = cut != record
    if is_cut:
        size = len(_encode(cut))
    if size > RECORD_BYTES_MAX or not is_object(cut):
        return _omitted(record, size)
    return cut, size, is_cut


def around(line: str, start: int, end: int, room: int) -> str:
    """The part of a line around a match, with an ellipsis where it is cut.

    >>> around("a long line with a match in it", 19, 24, 12)
    '…h a match i…'
    """
    if len(line) <= room:
        return line
    first = min(max(0, start - (room - (end - start)) // 2), len(line) - room)
    last = first + room
    left, right = "…" if first else "", "…" if last < len(line) else ""
    return f"{left}{line[first:last][len(left) : room - len(right)]}{right}"


def _shortened(value: object, depth: int) -> object:
    if depth > RECORD_DEPTH_MAX:
        raise _TooDeepError
    if isinstance(value, str):
        return value if len(value) <= TEXT_CHARS_MAX else _cut(value)
    if is_object(value):
        return {name: _shortened(each, depth + 1) for name, each in value.items()}
    if is_array(value):
        return [_shortened(each, depth + 1) for each in value]
    return value


def _cut(text: str) -> str:
    return f"{text[:TEXT_CHARS_MAX]}… ({len(text) - TEXT_CHARS_MAX} more characters)"


def _omitted(record: dict[str, Any], size: int) -> tuple[dict[str, Any], int, bool]:
    role = record.get("role")
    left = {"role": role[:64] if isinstance(role, str) else None, "omitted_bytes": size}
    return left, len(_encode(left)), True
