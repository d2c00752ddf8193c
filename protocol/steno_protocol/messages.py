"""Messages of the protocol: a header and at most one block.

Requests:  STENO/2 LF [[request id, number of records, command], ...]    record LF record LF ...
Answers:   STENO/2 LF [[request id, reply or event], ...]                block of lines

Parts:     STENO/2 LF {"part":id,"offset":N}                             bytes of the block
Last part: STENO/2 LF {"part":id,"offset":N,"requests":[...]}            the rest of the block

Each frame costs an allocation and a call on both sides. A header therefore contains several
requests or replies, and one frame all records of a message.
"""

import re
from collections.abc import Callable, Sequence
from typing import Annotated, Final

import msgspec

from steno_protocol import PROTOCOL_MAGIC, PROTOCOL_VERSION, limits
from steno_protocol.commands import (
    COMMANDS,
    AnyCommand,
    Append,
    AppendStream,
    AppendWire,
    Command,
    CompactCommit,
    decode_command,
    encode_command,
)
from steno_protocol.errors import BadRequest, Incompatible, StenoError, TooLarge
from steno_protocol.events import AnyEvent, Event
from steno_protocol.replies import AnyReply, Reply

# A number, since searching bytes for a number is four times as fast as for bytes.
_NEWLINE: Final = ord("\n")

_FRAMES_MAX: Final = 2

_RequestId = Annotated[str, msgspec.Meta(pattern=r"^[A-Za-z0-9_.:-]{1,64}\Z")]
_RecordCount = Annotated[int, msgspec.Meta(ge=0, le=limits.COUNT_MAX)]


# A fourth element is refused, as an unknown field of a command is: it would be ignored silently.
class _Entry(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True, gc=False):
    id: _RequestId
    records: _RecordCount
    command: AnyCommand


class _Envelope(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True, gc=False):
    id: _RequestId
    records: _RecordCount
    command: msgspec.Raw


_Refusable = msgspec.Meta(max_length=limits.MESSAGE_REFUSALS_MAX)
_Entries = Annotated[list[_Entry], _Refusable]
_Envelopes = Annotated[list[_Envelope], _Refusable]
_decode_entries: Callable[[bytes], list[_Entry]] = msgspec.json.Decoder(_Entries).decode
_decode_envelopes: Callable[[bytes], list[_Envelope]] = msgspec.json.Decoder(_Envelopes).decode

_Answers = list[tuple[str, AnyReply | AnyEvent]]
_decode_answers: Callable[[bytes], _Answers] = msgspec.json.Decoder(_Answers).decode
_encode = msgspec.json.Encoder().encode


class Part(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True, gc=False):
    """The header of one part of a message whose records exceed a frame.

    Attributes:
        part: the id of the message's first request.
        offset: the number of bytes in the parts before it.
        requests: in the last part, the requests of the message.
    """

    part: _RequestId
    offset: Annotated[int, msgspec.Meta(ge=0, le=limits.COUNT_MAX)]
    requests: msgspec.Raw = msgspec.Raw()


_decode_part: Callable[[bytes], Part] = msgspec.json.Decoder(Part).decode

_PART_START: Final = PROTOCOL_MAGIC + b"\n{"
_PART_START_BYTES: Final = len(_PART_START)

_FIRST_ID = re.compile(rb'\[\s*\[\s*"([A-Za-z0-9_.:-]{1,64})"\s*,')
"""The id of the first request in a header that does not decode."""


class _Probe(msgspec.Struct):
    command: str | None = None


_probe = msgspec.json.Decoder(_Probe).decode


class OutgoingRequest(msgspec.Struct, frozen=True, gc=False):
    """A request before it is sent.

    Attributes:
        id: the request id.
        command: the command, as JSON.
        records: its records, each on one line, without the newline.
    """

    id: bytes
    command: bytes
    records: Sequence[bytes] = ()

    @property
    def size(self) -> int:
        """Its bytes without separators."""
        return len(self.command) + sum(map(len, self.records))


class Request(msgspec.Struct, frozen=True):
    """One request: its id, its command and the records that came with it."""

    id: bytes
    command: AnyCommand
    records: Sequence[bytes]


class Unreadable(msgspec.Struct, frozen=True):
    """A malformed request, and the error reply to it."""

    id: bytes
    error: StenoError


class Answer(msgspec.Struct, frozen=True):
    """One reply or event: the id of its request, and a block of lines or nothing."""

    id: bytes
    body: AnyReply | AnyEvent
    block: bytes


# --- requests ----------------------------------------------------------------------------------


def encode_requests(requests: Sequence[OutgoingRequest]) -> list[bytes]:
    """Encode several requests as one message; no record may contain a newline."""
    entries = [b'["%b",%d,%b]' % (each.id, len(each.records), each.command) for each in requests]
    header = b"%b\n[%b]" % (PROTOCOL_MAGIC, b",".join(entries))
    records = [record for each in requests for record in each.records]
    # The empty element ends the last record's line.
    return [header, b"\n".join([*records, b""])] if records else [header]


def encode_request(request_id: bytes, command: Command, records: Sequence[bytes]) -> list[bytes]:
    """Encode one request as a message."""
    return encode_requests([OutgoingRequest(request_id, encode_command(command), records)])


def split_message(frames: list[bytes]) -> Sequence[list[bytes]]:
    """Return the messages that carry a message: the message itself, or its parts."""
    if len(frames) < _FRAMES_MAX or len(frames[1]) <= limits.PART_BYTES:
        return (frames,)
    header, body = frames
    requests = header.partition(b"\n")[2]
    first = _FIRST_ID.match(requests)
    assert first is not None, "a message of requests begins with a request"
    parts: list[list[bytes]] = []
    for offset in range(0, len(body), limits.PART_BYTES):
        data = body[offset : offset + limits.PART_BYTES]
        is_last = offset + len(data) == len(body)
        last = b',"requests":%b' % requests if is_last else b""
        start = b'%b\n{"part":"%b","offset":%d%b}' % (PROTOCOL_MAGIC, first[1], offset, last)
        parts.append([start, data])
    return parts


def part_of(frames: Sequence[bytes]) -> Part | None:
    """Return the header of a part; None for any other message, an unreadable one included."""
    if frames[0][:_PART_START_BYTES] != _PART_START or len(frames) != _FRAMES_MAX:
        return None
    try:
        return _decode_part(frames[0][_PART_START_BYTES - 1 :])
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None


def join_parts(part: Part, data: Sequence[bytes]) -> list[bytes]:
    """Return the message of a last part, given the data of all parts."""
    return [b"%b\n%b" % (PROTOCOL_MAGIC, bytes(part.requests)), b"".join(data)]


def request_ids(part: Part) -> list[bytes]:
    """Return the ids of the requests of a last part, as far as they are readable."""
    return _ids(bytes(part.requests)) if part.requests else []


def header_ids(frames: Sequence[bytes]) -> list[bytes]:
    """Return the ids of the requests of a message, or of a last part, without its records."""
    part = part_of(frames)
    return _ids(frames[0].partition(b"\n")[2]) if part is None else request_ids(part)


def _ids(requests: bytes) -> list[bytes]:
    try:
        return [each.id.encode() for each in _decode_envelopes(requests)]
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return []


def decode_requests(frames: Sequence[bytes]) -> list[Request | Unreadable]:
    """Decode a message of requests; a malformed request becomes `Unreadable`.

    Raises:
        Incompatible: the message has another version of the protocol.
        TooLarge, BadRequest: no reply is possible, because the first request has no id.
    """
    magic, _, header = frames[0].partition(b"\n") if frames else (b"", b"", b"")
    if magic != PROTOCOL_MAGIC:
        raise Incompatible(
            f"the message begins with {magic[:16]!r} instead of the line"
            f" {PROTOCOL_MAGIC.decode()}: use a client of this protocol version"
        )
    try:
        entries = _entries(header)
    except StenoError as error:
        first = _FIRST_ID.match(header)
        if first is None:
            raise
        return [Unreadable(first[1], error)]
    try:
        records = _records(frames, entries)
    except StenoError as error:
        return [Unreadable(entry.id.encode(), error) for entry in entries]
    if len(entries) == 1:
        return [_request(entries[0], records)]
    found: list[Request | Unreadable] = []
    start = 0
    for entry in entries:
        found.append(_request(entry, records[start : start + entry.records]))
        start += entry.records
    return found


def _decode_header(header: bytes) -> AnyCommand:
    """Decode the command of a request.

    Raises:
        TooLarge: the header is over its limit.
        BadRequest: the header is not a command.
    """
    if len(header) > limits.HEADER_BYTES_MAX:
        raise TooLarge(
            f"the header has {len(header)} bytes, at most {limits.HEADER_BYTES_MAX} are allowed:"
            " shorten its longest field"
        )
    try:
        return decode_command(header)
    except msgspec.ValidationError as error:
        raise _explain(header, error) from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise BadRequest(f"the header is not JSON in UTF-8: {_cut(error)}") from None


def _check_records(command: AnyCommand, records: Sequence[bytes]) -> None:
    """Check the number and size of the records of a command.

    Raises:
        TooLarge: the batch is over its limit.
        BadRequest: the command needs records and has none, or takes none.
    """
    if isinstance(command, (Append, AppendWire, AppendStream, CompactCommit)):
        # The check of records bounds a single one, and most appends have one.
        if len(records) != 1:
            _check_batch(records)
    elif records:
        raise BadRequest(
            f"{len(records)} records follow a command that takes none: send the command only"
        )


def _entries(header: bytes) -> Sequence[_Entry | _Envelope]:
    if len(header) > limits.MESSAGE_HEADER_BYTES_MAX:
        raise TooLarge(f"the header of the message has {len(header)} bytes")
    if len(header) <= limits.HEADER_BYTES_MAX:
        try:
            return _decode_entries(header)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            # Decode one by one, so that a malformed command does not affect the others.
            return _envelopes(header)
    return _envelopes(header)


def _envelopes(header: bytes) -> list[_Envelope]:
    try:
        return _decode_envelopes(header)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise BadRequest(
            "the second line of the message is not JSON in UTF-8 of the form [[request id, number"
            f" of records, command], ...], at most {limits.MESSAGE_REFUSALS_MAX} of them:"
            f" {_cut(error)}"
        ) from None


def _records(frames: Sequence[bytes], entries: Sequence[_Entry | _Envelope]) -> list[bytes]:
    """Split the frame of lines into the records of all requests."""
    if len(entries) > limits.MESSAGE_REQUESTS_MAX:
        raise TooLarge(
            f"the message has {len(entries)} requests, at most {limits.MESSAGE_REQUESTS_MAX}"
            " are allowed: send several messages"
        )
    count = 0
    for entry in entries:
        if entry.records > limits.BATCH_RECORDS_MAX:
            raise TooLarge(
                f"a request of the message has {entry.records} records, at most"
                f" {limits.BATCH_RECORDS_MAX} are allowed: send several batches"
            )
        count += entry.records
    if len(frames) > _FRAMES_MAX:
        raise BadRequest(
            f"the message has {len(frames)} frames: send a header, and all records in one frame,"
            " one a line"
        )
    body = frames[1] if len(frames) == _FRAMES_MAX else b""
    # Split no further than the header declares: millions of newlines would become as many objects.
    *records, rest = body.split(b"\n", count)
    if len(records) != count or rest:
        is_unfinished = not body.endswith(b"\n") and body
        raise BadRequest(
            f"the requests of the message have {count} records, and its second frame has"
            f" {body.count(_NEWLINE)} lines that end"
            f"{', and one that does not' if is_unfinished else ''}: send each record as a line that"
            " ends with a newline"
        )
    return records


def _request(entry: _Entry | _Envelope, records: Sequence[bytes]) -> Request | Unreadable:
    request_id = entry.id.encode()
    try:
        command = entry.command
        if isinstance(command, msgspec.Raw):
            command = _decode_header(bytes(command))
        _check_records(command, records)
    except StenoError as error:
        return Unreadable(request_id, error)
    return Request(request_id, command, records)


def _explain(header: bytes, error: msgspec.ValidationError) -> StenoError:
    try:
        command = _probe(header).command
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        command = None
    if command is None:
        return BadRequest(f'the header has no "command": use one of {", ".join(COMMANDS)}')
    if command not in COMMANDS:
        return BadRequest(f"the command {command[:40]!r} is unknown: use {', '.join(COMMANDS)}")
    return BadRequest(
        f"the command {command!r} is malformed: {_cut(error)}; its fields are"
        f" {', '.join(COMMANDS[command].__struct_fields__)}"
    )


def _cut(error: Exception) -> str:
    # The error may quote a field name of the sender, of any length and with control characters,
    # which must not reach a log or a terminal.
    text = str(error)[:200]
    return "".join(each if each.isprintable() else ascii(each)[1:-1] for each in text)


def _check_batch(records: Sequence[bytes]) -> None:
    if not records:
        raise BadRequest("an append needs at least one record after its command")
    total = sum(map(len, records))
    if total > limits.BATCH_BYTES_MAX:
        raise TooLarge(
            f"the batch has {total} bytes, at most {limits.BATCH_BYTES_MAX} are allowed: send"
            " several batches"
        )


# --- answers -----------------------------------------------------------------------------------


def encode_body(body: Reply | Event) -> bytes:
    """Encode a reply or event once, for `encode_answer` to several clients."""
    return _encode(body)


def encode_answer(request_id: bytes, body: bytes, block: bytes | None = None) -> list[bytes]:
    """Return the message of one encoded reply or event and its block."""
    header = b'%b\n[["%b",%b]]' % (PROTOCOL_MAGIC, request_id, body)
    return [header] if block is None else [header, block]


def encode_replies(replies: Sequence[tuple[bytes, Reply]]) -> list[bytes]:
    """Encode several replies without blocks as one message."""
    entries: list[bytes] = []
    for request_id, body in replies:
        entries.append(b'["%b",%b]' % (request_id, _encode(body)))  # one call fewer
    return [b"%b\n[%b]" % (PROTOCOL_MAGIC, b",".join(entries))]


def decode_answers(frames: Sequence[bytes]) -> list[Answer]:
    """Decode a message of replies and events.

    Raises:
        Incompatible: the message is not of this protocol version.
    """
    magic, _, header = frames[0].partition(b"\n") if frames else (b"", b"", b"")
    if magic != PROTOCOL_MAGIC:
        raise Incompatible(
            f"the daemon speaks {magic[:16]!r}, not {PROTOCOL_MAGIC!r}: {_older(magic)}"
        )
    block = frames[1] if len(frames) > 1 else b""
    try:
        return [
            Answer(request_id.encode(), body, block) for request_id, body in _decode_answers(header)
        ]
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        raise Incompatible(
            f"the daemon sent a message that this client cannot decode ({_cut(error)}): restart the"
            " daemon, so that both have one version"
        ) from None


def _older(magic: bytes) -> str:
    """Return which side to update, given the magic of a daemon of another version."""
    number = magic.removeprefix(PROTOCOL_MAGIC.partition(b"/")[0] + b"/")
    if number.isdigit() and int(number[:9]) > PROTOCOL_VERSION:
        return "this client is too old: update steno in the client's environment"
    return "the daemon is too old: run `steno restart`"
