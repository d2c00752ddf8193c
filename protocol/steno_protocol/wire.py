"""The lines of `wire.jsonl`: a metadata header, then timestamped events.

    {"type":"metadata","protocol_version":"1.10"}
    {"timestamp":1730000000.12,"message":{"type":"TurnBegin","payload":{"user_input":"hi"}},
     "_at":"0:12","_id":"0199f1c2-5b1e-7a90-8000-3d1c5e9b7a11"}

`_at` is the synced head of the context at that time, so that both files can be cut at the same
instant. Types and payloads are the agents' own; steno does not interpret or change them.
"""

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from steno_protocol._json import is_number, is_object, json_type
from steno_protocol.errors import BadRequest
from steno_protocol.records import compact, decode_object

WIRE_VERSION: Final = "1.10"
"""The version in the header of a new file: kimi-cli 1.52 writes it."""

LEGACY_VERSION: Final = "1.1"
"""The version of a file without a header."""

TYPE_CHARS_MAX: Final = 128
"""Characters of an event's type; kimi-cli's longest has 21."""

_decode = msgspec.json.Decoder().decode
_encode = msgspec.json.Encoder().encode


class Metadata(msgspec.Struct, frozen=True):
    """The header of a wire file."""

    version: str


class WireRecord(msgspec.Struct, frozen=True):
    """One event.

    Attributes:
        timestamp: Unix time in seconds, from the client.
        type: the type of the event.
        payload: its contents.
        at: head of the context at the time of writing, None if another program wrote the event.
    """

    timestamp: float
    type: str
    payload: dict[str, Any]
    at: str | None = None


class BlankLine(msgspec.Struct, frozen=True):
    """A line of whitespace."""


class DamagedLine(msgspec.Struct, frozen=True):
    """A line that readers skip and count, and the reason."""

    reason: str


WireLine = Metadata | WireRecord | BlankLine | DamagedLine


def metadata_line(fields: Mapping[str, Any] | None = None) -> bytes:
    """Return the header of a new wire file, with its newline.

    Args:
        fields: further fields, such as `session_id` or `app_version`; a `protocol_version` among
            them replaces `WIRE_VERSION`.

    Raises:
        BadRequest: a field is reserved or has the wrong type.
    """
    given = fields or {}
    reserved = [name for name in given if name == "type" or name.startswith("_")]
    if reserved:
        raise BadRequest(
            f"the field {reserved[0]!r} of a wire file's header is reserved: use another name"
        )
    if not isinstance(given.get("protocol_version", ""), str):
        raise BadRequest("the header's protocol_version is not text: use one such as '1.10'")
    header = {"type": "metadata", "protocol_version": WIRE_VERSION, **given}
    return _encode(header) + b"\n"


def check_event(data: bytes) -> bytes:
    """Check one event and return it as a compact line without newline.

    Raises:
        TooLarge: the event is over `RECORD_BYTES_MAX`.
        BadRequest: the event is not JSON, not an object, too deep, or lacks a field.
    """
    record = decode_object(data)
    if not is_number(record.get("timestamp")):
        raise BadRequest('the event has no "timestamp": use Unix time in seconds, as a number')
    message = record.get("message")
    if not is_object(message):
        raise BadRequest(
            f'the event\'s "message" is a JSON {json_type(message)}: use'
            ' {"type": ..., "payload": {...}}'
        )
    _check_message(message)
    return compact(data, record)


def parse_wire_line(data: bytes) -> WireLine:
    """Parse one line of a wire file; an unreadable line is `DamagedLine`, not an error."""
    if not data.strip():
        return BlankLine()
    try:
        record = _decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        return DamagedLine(f"not JSON: {error}")
    if not is_object(record):
        return DamagedLine("not an object")
    return wire_line_of(record)


def wire_line_of(record: dict[str, Any]) -> Metadata | WireRecord | DamagedLine:
    """Return the meaning of a decoded line of a wire file."""
    if record.get("type") == "metadata" and isinstance(record.get("protocol_version"), str):
        return Metadata(record["protocol_version"])
    timestamp, message = record.get("timestamp"), record.get("message")
    if not is_number(timestamp) or not is_object(message):
        return DamagedLine("no timestamp or no message")
    event_type, payload = message.get("type"), message.get("payload")
    if not isinstance(event_type, str) or not is_object(payload):
        return DamagedLine("a message without type or payload")
    at = record.get("_at")
    return WireRecord(timestamp, event_type, payload, at if isinstance(at, str) else None)


def _check_message(message: dict[str, Any]) -> None:
    event_type = message.get("type")
    if not isinstance(event_type, str) or not 0 < len(event_type) <= TYPE_CHARS_MAX:
        raise BadRequest(
            f'the event\'s "type" has to be a text of 1 to {TYPE_CHARS_MAX} characters'
        )
    if not is_object(message.get("payload")):
        raise BadRequest('the event\'s "payload" has to be an object; {} if it is empty')
