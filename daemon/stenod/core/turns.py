"""Turns in the lines of a session's wire file and context.

A turn of a wire file begins with a `TurnBegin` event, a turn of a context with a user message that
is not a checkpoint notice. `_at` in each event joins the two files.
"""

import hashlib
from collections.abc import Iterator
from typing import Any, Final

import msgspec

from steno_protocol._json import is_array, is_number, is_object
from steno_protocol.errors import BadRequest
from steno_protocol.positions import Position
from steno_protocol.records import Stamp, shows_checkpoint, stamp_of
from stenod.core.lines import Blocks, lines_of

_TURN: Final = "TurnBegin"


class Turn(msgspec.Struct):
    """The beginning of a turn in a wire file.

    Attributes:
        offset: the offset of its first event.
        line: the number of lines before it.
        stamp: the stamp of that event.
        at: the head of the context at that event; None if it is not recorded.
        before: the head of the context at the next event that records it.
        began: the event's Unix time in seconds; None if it has none.
        content: digest of the user's input; None if it is empty.
    """

    offset: int
    line: int
    stamp: Stamp | None
    at: Position | None
    before: Position | None = None
    began: float | None = None
    content: bytes | None = None


class UserMessage(msgspec.Struct, frozen=True):
    """A user message in a context.

    Attributes:
        offset: its offset.
        line: the number of lines before it.
        content: digest of its content; None if it is empty.
    """

    offset: int
    line: int
    content: bytes | None


class WireScan(msgspec.Struct):
    """The turns of a wire file, and its cut at an instant.

    Attributes:
        turns: its turns.
        later: offset and line of the first event after the wanted instant.
        joined: offset behind the last event that is known to be not later.
        joined_lines: the number of lines up to there.
        unjoined: an event has no recorded position in the context.
        size: bytes of all lines.
        lines: the number of all lines.
    """

    turns: list[Turn]
    later: tuple[int, int] | None = None
    joined: int = 0
    joined_lines: int = 0
    unjoined: bool = False
    size: int = 0
    lines: int = 0


class _Message(msgspec.Struct, gc=False):
    type: str
    payload: msgspec.Raw = msgspec.Raw(b"")


class _Event(msgspec.Struct, gc=False):
    """The fields of an event that place it in time."""

    message: _Message
    timestamp: Any = None
    at: Any = msgspec.field(name="_at", default=None)


_decode_event = msgspec.json.Decoder(_Event).decode
_decode = msgspec.json.Decoder().decode
_encode = msgspec.json.Encoder().encode


def scan_wire(blocks: Blocks, until: Position | None = None) -> WireScan:
    """Scan a wire file.

    Args:
        blocks: its lines.
        until: a position of the context; the scan finds the first event after it.
    """
    scan = WireScan([])
    waiting: list[Turn] = []
    for offset, line in lines_of(blocks):
        event = _event_of(line)
        if event is not None:
            at = _position_of(event.at)
            if event.message.type == _TURN:
                began, content = _time_of(event.timestamp), _input_of(event.message.payload)
                turn = Turn(offset, scan.lines, stamp_of(line), at, began=began, content=content)
                scan.turns.append(turn)
                waiting.append(scan.turns[-1])
            _place(scan, at, until, offset, len(line))
            if at is not None:
                for turn in waiting:
                    turn.before = at
                waiting.clear()
        scan.lines += 1
        scan.size = offset + len(line)
    return scan


def user_messages(blocks: Blocks) -> Iterator[UserMessage]:
    """Yield each user message of a context that is not a checkpoint notice, in order."""
    for number, (offset, line) in enumerate(lines_of(blocks)):
        record = _user_record(line) if b'"user"' in line else None
        if record is not None:
            yield UserMessage(offset, number, _digest(record.get("content")))


def _place(
    scan: WireScan, at: Position | None, until: Position | None, offset: int, size: int
) -> None:
    """Note an event at an offset, with the context's head at that event."""
    if at is None:
        scan.unjoined = True
    elif until is not None and scan.later is None:
        if at > until:
            scan.later = (offset, scan.lines)
        else:
            scan.joined, scan.joined_lines = offset + size, scan.lines + 1


def _event_of(line: bytes) -> _Event | None:
    try:
        return _decode_event(line)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None


def _position_of(text: object) -> Position | None:
    try:
        return Position.parse(text) if isinstance(text, str) else None
    except BadRequest:
        return None


def _time_of(value: object) -> float | None:
    return value if is_number(value) else None


def _input_of(payload: msgspec.Raw) -> bytes | None:
    try:
        given: Any = _decode(payload)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    return _digest(given.get("user_input")) if is_object(given) else None


def _digest(content: object) -> bytes | None:
    """Return a digest that is equal for a text and for a list with that text as its only part."""
    parts: list[tuple[object, object]] = []
    if isinstance(content, str):
        parts = [("text", content)]
    elif is_array(content):
        parts = [(part.get("type"), part.get("text")) for part in content if is_object(part)]
    if not parts or parts == [("text", "")]:
        return None
    return hashlib.blake2b(_encode(parts), digest_size=16).digest()


def _user_record(line: bytes) -> dict[str, Any] | None:
    """Return the record of a user message that is not a checkpoint notice, else None."""
    try:
        record: Any = _decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    is_message = is_object(record) and record.get("role") == "user"
    return record if is_message and not shows_checkpoint(record) else None
