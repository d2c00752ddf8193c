"""Messages of the protocol: a header frame, then at most one frame of lines.

Requests:  STENO/2 LF [[request id, number of records, command], ...]    record LF record LF ...
Answers:   STENO/2 LF [[request id, reply or event], ...]                block of lines

Each frame costs an allocation and a call on both sides, so several requests or replies travel in
one header, and all records of a message in one frame.
"""

import re
from collections.abc import Callable, Sequence
from typing import Annotated, Final

import msgspec

from steno_protocol import limits
from steno_protocol.commands import (
    COMMANDS,
    AnyCommand,
    Append,
    AppendWire,
    Command,
    CompactCommit,
    decode_command,
    encode_command,
)
from steno_protocol.errors import BadRequest, Incompatible, StenoError, TooLarge
from steno_protocol.events import AnyEvent, Event
from steno_protocol.replies import AnyReply, ErrorReply, Reply
from steno_protocol.version import PROTOCOL_MAGIC, PROTOCOL_VERSION

# As a number: to look for one is four times as quick as for a piece of bytes.
NEWLINE: Final = ord("\n")

_FRAMES_MAX: Final = 2

_RequestId = Annotated[str, msgspec.Meta(pattern=r"^[A-Za-z0-9_.:-]{1,64}\Z")]
_RecordCount = Annotated[int, msgspec.Meta(ge=0, le=limits.COUNT_MAX)]


# A fourth element would be a promise that is not kept, as an unknown field of a command.
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


_FIRST_ID = re.compile(rb'\[\s*\[\s*"([A-Za-z0-9_.:-]{1,64})"\s*,')
"""The id of the first request of a header that cannot be decoded as a whole."""


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
        """Its bytes, but for what separates them."""
        return len(self.command) + sum(map(len, self.records))


class Request(msgspec.Struct, frozen=True):
    """One request: its id, its command and the records that came with it."""

    id: bytes
    command: AnyCommand
    records: Sequence[bytes]


class Unreadable(msgspec.Struct, frozen=True):
    """A request that cannot be served, and the error for its sender."""

    id: bytes
    error: StenoError


class Answer(msgspec.Struct, frozen=True):
    """One reply or event: the id of its request, and a block of lines or nothing."""

    id: bytes
    body: AnyReply | AnyEvent
    block: bytes


# --- requests ----------------------------------------------------------------------------------


def encode_requests(requests: Sequence[OutgoingRequest]) -> list[bytes]:
    """The message of some requests; none of their records may contain a newline."""
    entries = [b'["%b",%d,%b]' % (each.id, len(each.records), each.command) for each in requests]
    header = b"%b\n[%b]" % (PROTOCOL_MAGIC, b",".join(entries))
    records = [record for each in requests for record in each.records]
    # An empty piece at the end, so that the last record's line ends, too.
    return [header, b"\n".join([*records, b""])] if records else [header]


def encode_request(request_id: bytes, command: Command, records: Sequence[bytes]) -> list[bytes]:
    """The message of one request."""
    return encode_requests([OutgoingRequest(request_id, encode_command(command), records)])


def decode_requests(frames: Sequence[bytes]) -> list[Request | Unreadable]:
    """Take a message of requests apart: each is a request, or what is wrong with it.

    Raises:
        Incompatible: it begins with another version of the protocol.
        TooLarge, BadRequest: no reply is possible, because not even the first request has an id.
    """
    magic, _, header = frames[0].partition(b"\n") if frames else (b"", b"", b"")
    if magic != PROTOCOL_MAGIC:
        raise Incompatible(
            f"a message begins with the line {PROTOCOL_MAGIC.decode()}, this one with"
            f" {magic[:16]!r}"
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


def decode_header(header: bytes) -> AnyCommand:
    """The command of a request.

    Raises:
        TooLarge: it is over its limit.
        BadRequest: it is not a command.
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


def check_records(command: AnyCommand, records: Sequence[bytes]) -> None:
    """Refuse records that a command does not take, or too many of them.

    Raises:
        TooLarge: the batch is over its limit.
        BadRequest: there are none, or there may be none.
    """
    if isinstance(command, (Append, AppendWire, CompactCommit)):
        # A single record is bounded by the gate, and most appends are one.
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
            # One by one, so that a bad command is no reason to refuse the others.
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
    """The records of all requests, one a line."""
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
    # Not cut further than the header says: millions of newlines would become as many objects.
    *records, rest = body.split(b"\n", count)
    if len(records) != count or rest:
        is_unfinished = not body.endswith(b"\n") and body
        raise BadRequest(
            f"the requests of the message have {count} records, and its second frame has"
            f" {body.count(NEWLINE)} lines that end"
            f"{', and one that does not' if is_unfinished else ''}: send each record as a line that"
            " ends with a newline"
        )
    return records


def _request(entry: _Entry | _Envelope, records: Sequence[bytes]) -> Request | Unreadable:
    request_id = entry.id.encode()
    try:
        command = entry.command
        if isinstance(command, msgspec.Raw):
            command = decode_header(bytes(command))
        check_records(command, records)
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
        return BadRequest(
            f"the command {command[:40]!r} is unknown: use one of {', '.join(COMMANDS)}"
        )
    return BadRequest(
        f"the command {command!r} is malformed: {_cut(error)}; its fields are"
        f" {', '.join(COMMANDS[command].__struct_fields__)}"
    )


def _cut(error: Exception) -> str:
    # It can quote a field name or a tag, which is as long as the other side wants, and holds what
    # it wants: what is not printable would reach a log or a terminal.
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
    """A reply or event as JSON, for `encode_answer` to send to several clients."""
    return _encode(body)


def encode_answer(request_id: bytes, body: bytes, block: bytes | None = None) -> list[bytes]:
    """The message of one reply or event that is JSON already, and its block."""
    header = b'%b\n[["%b",%b]]' % (PROTOCOL_MAGIC, request_id, body)
    return [header] if block is None else [header, block]


def encode_replies(replies: Sequence[tuple[bytes, Reply]]) -> list[bytes]:
    """The message of several replies without blocks to one client."""
    entries: list[bytes] = []
    for request_id, body in replies:
        entries.append(b'["%b",%b]' % (request_id, _encode(body)))  # a call less
    return [b"%b\n[%b]" % (PROTOCOL_MAGIC, b",".join(entries))]


def decode_answers(frames: Sequence[bytes]) -> list[Answer]:
    """Take apart what the daemon sent.

    The refusal of a greeting in version 1 is no answer: a client sends that greeting to a daemon
    that is slow to reply, and its refusal may arrive after the welcome.

    Raises:
        Incompatible: it is not of this protocol; the daemon and this client differ in version.
    """
    magic, _, header = frames[0].partition(b"\n") if frames else (b"", b"", b"")
    if list(frames[:2]) == [MAGIC_1, GREETING_ID]:
        return []
    if magic != PROTOCOL_MAGIC:
        raise Incompatible(f"the daemon speaks {magic[:16]!r}, not {PROTOCOL_MAGIC!r}")
    block = frames[1] if len(frames) > 1 else b""
    try:
        return [
            Answer(request_id.encode(), body, block) for request_id, body in _decode_answers(header)
        ]
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        raise Incompatible(
            f"the daemon sent what this client cannot read ({_cut(error)}): restart it, so that"
            " both are of one version"
        ) from None


# --- version 1 ---------------------------------------------------------------------------------

GREETING_ID: Final = b"hello"
"""The id of the request by which a client greets a daemon, in either version."""

MAGIC_1: Final = b"STENO/1"
"""The first frame of version 1, whose messages had the request id and the command in two more."""

_ID_1 = re.compile(rb"[A-Za-z0-9_.:-]{1,64}")
_FRAMES_1: Final = 3


def encode_request_1(request_id: bytes, command: Command) -> list[bytes]:
    """A request without records as a daemon of version 1 reads it."""
    return [MAGIC_1, request_id, encode_command(command)]


def refuse_version_1(frames: Sequence[bytes]) -> list[bytes] | None:
    """The answer to a client of version 1, which it can read; None if it is no such message."""
    if len(frames) < _FRAMES_1 or frames[0] != MAGIC_1 or _ID_1.fullmatch(frames[1]) is None:
        return None
    error = Incompatible(
        f"this client speaks protocol 1, the daemon speaks {PROTOCOL_VERSION}: update steno in the"
        " client's environment"
    )
    return [MAGIC_1, frames[1], _encode(ErrorReply.of(error))]
