"""Bundles: requests, or replies, in one frame, as lines.

Requests:  STENO/1 LF [[request id, how many records, command], ...] LF record LF record LF ...
Replies:   STENO/1 LF [reply, reply, ...]              each with its request id in `id`

Four frames in and three out cost a small request more than all that is said in them, and a frame a
record costs a batch as much again as its check.
"""

from collections.abc import Sequence
from typing import Annotated, Final

import msgspec

from steno_protocol import limits
from steno_protocol.commands import AnyCommand
from steno_protocol.errors import BadRequest, Incompatible, StenoError, TooLarge
from steno_protocol.frames import (
    HEADER_FRAMES,
    Request,
    Unreadable,
    check_records,
    decode_header,
)
from steno_protocol.version import PROTOCOL_MAGIC

_RequestId = Annotated[str, msgspec.Meta(pattern=r"^[A-Za-z0-9_.:-]{1,64}\Z")]
_RecordCount = Annotated[int, msgspec.Meta(ge=0, le=limits.BATCH_RECORDS_MAX)]


class _Entry(msgspec.Struct, frozen=True, array_like=True, gc=False):
    id: _RequestId
    records: _RecordCount
    command: AnyCommand


class _Envelope(msgspec.Struct, frozen=True, array_like=True, gc=False):
    id: _RequestId
    records: _RecordCount
    command: msgspec.Raw


# As a number: to look for one is four times as quick as for a piece of bytes.
_NEWLINE: Final = ord("\n")

_decode_entries = msgspec.json.Decoder(list[_Entry]).decode
_decode_envelopes = msgspec.json.Decoder(list[_Envelope]).decode


def can_be_bundled(frames: Sequence[bytes]) -> bool:
    """Whether the frames of a request can go as lines: no record spans several."""
    return not [record for record in frames[HEADER_FRAMES:] if _NEWLINE in record]


def encode_bundle(requests: Sequence[Sequence[bytes]]) -> bytes:
    """One frame for several requests, each given as its frames, all of which can be bundled."""
    entries = [b'["%b",%d,%b]' % (each[1], len(each) - HEADER_FRAMES, each[2]) for each in requests]
    records = [record for each in requests for record in each[HEADER_FRAMES:]]
    # An empty piece at the end, so that the last record's line ends, too.
    return b"\n".join([PROTOCOL_MAGIC, b"[%b]" % b",".join(entries), *records, b""])


def decode_bundle(frame: bytes) -> list[Request | Unreadable]:
    """Take a bundle of requests apart: each is a request, or what is wrong with it.

    Raises:
        Incompatible: it begins with another version of the protocol.
        TooLarge, BadRequest: nobody can be told what is wrong, because its requests cannot be told
            apart.
    """
    magic, header, body = _parts(frame)
    if magic != PROTOCOL_MAGIC:
        raise Incompatible(f"a message of one frame begins with the line {PROTOCOL_MAGIC.decode()}")
    if len(header) > limits.HEADER_BYTES_MAX:
        raise TooLarge(f"the headers of a bundle have {len(header)} bytes")
    try:
        entries: Sequence[_Entry | _Envelope] = _decode_entries(header)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        entries = _envelopes(header)
    try:
        records = _records(body, sum([entry.records for entry in entries]))
        if len(entries) > limits.BUNDLE_REQUESTS_MAX:
            raise TooLarge(
                f"the bundle has {len(entries)} requests, at most {limits.BUNDLE_REQUESTS_MAX} are"
                " allowed: send several bundles"
            )
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


def _parts(frame: bytes) -> list[bytes]:
    parts = frame.split(b"\n", 2)
    return [*parts, b"", b""][:3]


def _envelopes(header: bytes) -> list[_Envelope]:
    try:
        return _decode_envelopes(header)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        raise BadRequest(
            "the second line of a bundle is no JSON array of [request id, records, command]"
        ) from None


def _records(body: bytes, count: int) -> list[bytes]:
    """The records of all requests, one a line."""
    *records, unfinished = body.split(b"\n")
    if len(records) != count or unfinished:
        raise BadRequest(
            f"the requests of the bundle have {count} records, and {len(records)} lines that end"
            f" follow{', and one that does not' if unfinished else ''}: send each record as a line"
            " that ends with a newline"
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
