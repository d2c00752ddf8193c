"""Bundles: requests, or replies, in one frame, as lines.

Requests:  STENO/1 LF [[request id, how many records, command], ...] LF record LF record LF ...
Replies:   STENO/1 LF [reply, reply, ...]              each with its request id in `id`

Four frames in and three out cost a small request more than all that is said in them, and a frame a
record costs a batch as much again as its check.
"""

from collections.abc import Callable, Sequence
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


# A fourth element would be a promise that is not kept, as an unknown field of a command.
class _Entry(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True, gc=False):
    id: _RequestId
    records: _RecordCount
    command: AnyCommand


class _Envelope(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True, gc=False):
    id: _RequestId
    records: _RecordCount
    command: msgspec.Raw


# As a number: to look for one is four times as quick as for a piece of bytes.
_NEWLINE: Final = ord("\n")

_Refusable = msgspec.Meta(max_length=limits.BUNDLE_REFUSALS_MAX)
_Entries = Annotated[list[_Entry], _Refusable]
_Envelopes = Annotated[list[_Envelope], _Refusable]
_decode_entries: Callable[[bytes], list[_Entry]] = msgspec.json.Decoder(_Entries).decode
_decode_envelopes: Callable[[bytes], list[_Envelope]] = msgspec.json.Decoder(_Envelopes).decode


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
        TooLarge, BadRequest: no reply is possible, because its requests cannot be told
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
        # First, so that their number bounds the lines that are looked for.
        if len(entries) > limits.BUNDLE_REQUESTS_MAX:
            raise TooLarge(
                f"the bundle has {len(entries)} requests, at most {limits.BUNDLE_REQUESTS_MAX} are"
                " allowed: send several bundles"
            )
        records = _records(body, sum([entry.records for entry in entries]))
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
            f"the second line of a bundle is no JSON array of up to {limits.BUNDLE_REFUSALS_MAX}"
            " times [request id, records, command]"
        ) from None


def _records(body: bytes, count: int) -> list[bytes]:
    """The records of all requests, one a line."""
    # Not cut further than the sizes say: millions of newlines would become as many objects.
    *records, rest = body.split(b"\n", count)
    if len(records) != count or rest:
        is_unfinished = not body.endswith(b"\n") and body
        raise BadRequest(
            f"the requests of the bundle have {count} records, and {body.count(_NEWLINE)} lines"
            f" that end follow{', and one that does not' if is_unfinished else ''}: send each"
            " record as a line that ends with a newline"
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
