"""A line as the program it is for would have written it: without what steno adds; pure."""

from collections.abc import Callable
from typing import Final

import msgspec

from steno_protocol.records import RESERVED_KEYS

_decode_parts: Callable[[bytes], dict[str, msgspec.Raw]] = msgspec.json.Decoder(
    dict[str, msgspec.Raw]
).decode
_encode: Final = msgspec.json.Encoder().encode


def unstamped(line: bytes) -> bytes | None:
    """A line without `_id`, `_by` and `_at`, or None when it is no JSON object.

    A line that has none of them stays byte for byte what it is, and so does each value of others.
    """
    try:
        parts = _decode_parts(line)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    if parts.keys().isdisjoint(RESERVED_KEYS):
        return line if line.endswith(b"\n") else line + b"\n"
    return _encode({key: value for key, value in parts.items() if key not in RESERVED_KEYS}) + b"\n"
