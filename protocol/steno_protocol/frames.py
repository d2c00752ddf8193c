"""Messages as frames: what each frame is, and how a message is built and taken apart.

Request:   b"STENO/1", request id, header, record, record, ...
Answer:    b"STENO/1", request id, header [, block]
Answers:   b"STENO/1", b"",        [reply, reply, ...]  several replies for one peer, without blocks

A message of one frame is a bundle (`bundles`).
"""

import re
from collections.abc import Sequence
from typing import Final

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
from steno_protocol.replies import AnyReply, Reply
from steno_protocol.version import PROTOCOL_MAGIC

_ID = re.compile(rb"[A-Za-z0-9_.:-]{1,64}")

_decode_reply = msgspec.json.Decoder[AnyReply | AnyEvent](AnyReply | AnyEvent).decode
_decode_replies = msgspec.json.Decoder(list[AnyReply]).decode
_encode = msgspec.json.Encoder().encode

HEADER_FRAMES: Final = 3
"""Frames before the records: magic, request id, header."""


class _Probe(msgspec.Struct):
    command: str | None = None


_probe = msgspec.json.Decoder(_Probe).decode


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


def encode_request(request_id: bytes, command: Command, records: Sequence[bytes]) -> list[bytes]:
    """The frames of one request."""
    return [PROTOCOL_MAGIC, request_id, encode_command(command), *records]


def request_id_of(frames: Sequence[bytes]) -> bytes | None:
    """The request id, when the frames are formed well enough for an answer to be sent at all."""
    if len(frames) < HEADER_FRAMES or frames[0] != PROTOCOL_MAGIC:
        return None
    return frames[1] if _ID.fullmatch(frames[1]) else None


def decode_request(frames: Sequence[bytes]) -> Request:
    """Take one request apart.

    Raises:
        Incompatible: the first frame is another version of the protocol.
        TooLarge: the header or the batch is over its limit.
        BadRequest: there are too few frames, or the header is not a command.
    """
    if not frames or frames[0] != PROTOCOL_MAGIC:
        first = frames[0][:16] if frames else b""
        raise Incompatible(f"the first frame is {first!r}, this daemon speaks {PROTOCOL_MAGIC!r}")
    if len(frames) < HEADER_FRAMES:
        raise BadRequest(
            f"the message has {len(frames)} frames: send {PROTOCOL_MAGIC!r}, a request id, a"
            " header, then the records"
        )
    request_id, header = frames[1], frames[2]
    if _ID.fullmatch(request_id) is None:
        raise BadRequest("the request id has to be 1 to 64 of A-Z a-z 0-9 _ . : -")
    command = decode_header(header)
    records = frames[HEADER_FRAMES:]
    check_records(command, records)
    return Request(request_id, command, records)


def decode_message(frames: Sequence[bytes]) -> Request | Unreadable:
    """Decode a request; an error is returned as a value if its sender can get a reply.

    Raises:
        Incompatible, BadRequest: without a request id there is no sender to reply to.
    """
    try:
        return decode_request(frames)
    except StenoError as error:
        request_id = request_id_of(frames)
        if request_id is None:
            raise
        return Unreadable(request_id, error)


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
    if len(records) > limits.BATCH_RECORDS_MAX:
        raise TooLarge(
            f"the batch has {len(records)} records, at most {limits.BATCH_RECORDS_MAX} are allowed:"
            " send several batches"
        )
    total = sum(map(len, records))
    if total > limits.BATCH_BYTES_MAX:
        raise TooLarge(
            f"the batch has {total} bytes, at most {limits.BATCH_BYTES_MAX} are allowed: send"
            " several batches"
        )


def encode_answer(
    request_id: bytes, body: Reply | Event, block: bytes | None = None
) -> list[bytes]:
    """The frames of one reply or event."""
    return frame_answer(request_id, _encode(body), block)


def encode_body(body: Reply | Event) -> bytes:
    """A reply or event without its frames, for `frame_answer` to send to several."""
    return _encode(body)


def frame_answer(request_id: bytes, body: bytes, block: bytes | None) -> list[bytes]:
    """The frames of one reply or event that is encoded already."""
    if block is None:
        return [PROTOCOL_MAGIC, request_id, body]
    return [PROTOCOL_MAGIC, request_id, body, block]


def encode_together(answers: Sequence[tuple[bytes, Reply]]) -> list[bytes]:
    """The frames of several replies without blocks to one peer; each is given its id as a field."""
    return [PROTOCOL_MAGIC, b"", _array(answers)]


def bundle_answers(answers: Sequence[tuple[bytes, Reply]]) -> list[bytes]:
    """As `encode_together`, as the one frame of a bundle."""
    return [b"%b\n%b" % (PROTOCOL_MAGIC, _array(answers))]


def _array(answers: Sequence[tuple[bytes, Reply]]) -> bytes:
    bodies = [b'{"id":"%b",%b' % (request_id, _encode(body)[1:]) for request_id, body in answers]
    return b"[" + b",".join(bodies) + b"]"


def _answer_of(reply: AnyReply) -> Answer:
    """A reply that brought its request id along; without it, it is what it is in its own frames."""
    request_id = (reply.id or "").encode()
    msgspec.structs.force_setattr(reply, "id", None)
    return Answer(request_id, reply, b"")


def decode_answers(frames: Sequence[bytes]) -> list[Answer]:
    """Take apart what the daemon sent.

    Raises:
        Incompatible: it is not of this protocol; the daemon and this client differ in version.
    """
    try:
        if len(frames) == 1:
            magic, _, header = frames[0].partition(b"\n")
            frames = [magic, b"", header]
        if frames[0] != PROTOCOL_MAGIC:
            raise Incompatible(f"the daemon speaks {frames[0][:16]!r}, not {PROTOCOL_MAGIC!r}")
        request_id, header = frames[1], frames[2]
        if not request_id:
            return [_answer_of(reply) for reply in _decode_replies(header)]
        block = frames[HEADER_FRAMES] if len(frames) > HEADER_FRAMES else b""
        return [Answer(request_id, _decode_reply(header), block)]
    except (msgspec.DecodeError, UnicodeError, RecursionError, IndexError) as error:
        raise Incompatible(
            f"the daemon sent what this client cannot read ({_cut(error)}): restart it, so that"
            " both are of one version"
        ) from None
