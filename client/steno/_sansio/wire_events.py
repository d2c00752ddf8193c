"""Events of a session's wire file, encoded for sending and decoded from lines.

`steno_protocol.wire` defines the events and the lines of the file.
"""

import time
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from steno._sansio.messages import JsonObject, Message, encode_messages, is_message
from steno._sansio.reading import LineReader
from steno._sansio.requests import PositionLike, position_text
from steno.values import Turn, WireRecord, wire_record
from steno_protocol import paths, wire
from steno_protocol.commands import ReadWire
from steno_protocol.errors import BadRequest, Corrupt
from steno_protocol.positions import Position

Payload = JsonObject
"""The contents of an event."""

WireEvent = (
    tuple[str, Payload] | tuple[str, Payload, float | None] | WireRecord | Payload | bytes
)  # fmt: skip
"""One event: its type, payload and optional timestamp; a `WireRecord`; or a whole record."""

TURN_BEGIN = "TurnBegin"


def encode_events(
    event: str | Sequence[WireEvent], payload: Payload | None, timestamp: float | None
) -> list[bytes]:
    """The records of one append to a wire file, as bytes.

    Args:
        event: the type of one event, or a sequence of events, which becomes one atomic batch.
        payload: of the one event; None is an empty one.
        timestamp: Unix time in seconds of the events that have none; None is now.

    Raises:
        BadRequest: an event cannot be written as JSON without loss, or the batch is empty.
        TooLarge: an event or the batch is over its limit.
    """
    at = time.time() if timestamp is None else timestamp
    if isinstance(event, str):
        record = _record(event, {} if payload is None else payload, at)
        return encode_messages(record, "event")
    if is_message(event) or payload is not None:
        raise BadRequest(
            "an append to the wire file takes a type and a payload, or a sequence of events"
        )
    # What callers give without a type checker may be anything.
    if not hasattr(event, "__iter__"):
        raise BadRequest(f"an event is a type, or a sequence of events, not {event!r:.80}")
    return encode_messages([_event(each, at) for each in event], "event")


def header_fields(header: Payload | None) -> dict[str, Any] | None:
    """The fields of a header line as they are sent.

    Raises:
        BadRequest: it is no object.
    """
    if header is None:
        return None
    # What callers give without a type checker may be anything.
    if isinstance(header, bytes) or not is_message(header):
        raise BadRequest(
            f"the header of a wire file is an object, not of the type {type(header).__name__}"
        )
    [data] = encode_messages(header, "header")
    fields: dict[str, Any] = msgspec.json.decode(data)
    return fields


def _event(event: WireEvent, now: float) -> Message:
    match event:
        case WireRecord():
            return _record(event.type, event.payload, event.timestamp)
        case (kind, payload):
            return _record(kind, payload, now)
        case (kind, payload, timestamp):
            return _record(kind, payload, now if timestamp is None else timestamp)
        case _ if is_message(event):
            return event
        case _:
            raise BadRequest(
                f"an event is (type, payload) or (type, payload, timestamp), not a"
                f" {type(event).__name__}"
            )


def _record(kind: str, payload: Payload, timestamp: float) -> dict[str, Any]:
    return {"timestamp": timestamp, "message": {"type": kind, "payload": payload}}


class WireReader(LineReader):
    """The lines of a wire file, in order.

    Args:
        session: its id.
        after: begin here.
        until: end here.
    """

    def __init__(
        self, session: str, after: PositionLike | None, until: PositionLike | None = None
    ) -> None:
        super().__init__(session, after, until)
        self._read_to = Position(0, 0) if after is None else Position.parse(position_text(after))

    def next_command(self) -> ReadWire | None:
        """The command that requests the next block, or None at the end."""
        command = super().next_command()
        return None if command is None else ReadWire(**msgspec.structs.asdict(command))

    def events(self, *, strict: bool) -> Iterator[WireRecord]:
        """Yield the events of the received lines.

        Raises:
            Corrupt: `strict`, and the next line is neither an event, a header nor blank.
        """
        if strict and self.damaged:
            # The daemon skipped a line before all received lines.
            raise self._no_event(self._read_to, "longer than a line may be")
        while self.lines:
            cursor, line = self.lines.popleft()
            self._read_to = Position(cursor.generation, cursor.line + 1)
            parsed = wire.parse_wire_line(line)
            if isinstance(parsed, wire.WireRecord):
                yield wire_record(cursor, line, parsed)
            elif isinstance(parsed, wire.DamagedLine):
                if strict:
                    raise self._no_event(cursor, parsed.reason)
                self.damaged += 1

    def _no_event(self, cursor: Position, why: str) -> Corrupt:
        return Corrupt(
            f"the line at {cursor} of {paths.WIRE} is no event ({why}): read on behind it, or"
            " without strict, which skips such lines;"
            f" `steno verify {self._session}` shows details",
            session=self._session,
        )

    def version(self) -> str | None:
        """The version in the first line, or None while only blank lines have arrived."""
        while self.lines:
            match wire.parse_wire_line(self.lines.popleft()[1]):
                case wire.BlankLine():
                    continue
                case wire.Metadata(version):
                    return version
                case _:
                    return wire.LEGACY_VERSION
        return None

    def has_content(self) -> bool:
        """True when a line has come that is neither blank nor the header."""
        while self.lines:
            parsed = wire.parse_wire_line(self.lines.popleft()[1])
            if not isinstance(parsed, (wire.BlankLine, wire.Metadata)):
                return True
        return False


def turn_of(record: WireRecord) -> Turn | None:
    """The turn that an event begins, if it begins one."""
    if record.type != TURN_BEGIN:
        return None
    return Turn(record.cursor, record.timestamp, record.at, record.payload.get("user_input"))
