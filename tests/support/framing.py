"""Messages of the protocol as tests write and read them."""

import json
from collections.abc import Sequence
from typing import Any

from steno_protocol import PROTOCOL_MAGIC
from steno_protocol.events import Event
from steno_protocol.messages import (
    OutgoingRequest,
    Request,
    Unreadable,
    decode_requests,
    encode_answer,
    encode_body,
    encode_requests,
)
from steno_protocol.replies import Reply


def request_frames(name: bytes, header: bytes, *records: bytes) -> list[bytes]:
    """The message of one request with a header of any bytes."""
    return encode_requests([OutgoingRequest(name, header, records)])


def command_frames(name: bytes, command: str, *records: bytes, **fields: object) -> list[bytes]:
    """The message of one request, its command given by name and fields."""
    return request_frames(name, json.dumps({"command": command, **fields}).encode(), *records)


def answer_frames(name: bytes, body: Reply | Event, block: bytes | None = None) -> list[bytes]:
    """The message of one reply or event."""
    return encode_answer(name, encode_body(body), block)


def only_request(frames: Sequence[bytes]) -> Request:
    """The only request of a message; raises its error if it cannot be served."""
    [request] = decode_requests(frames)
    if isinstance(request, Unreadable):
        raise request.error
    return request


def answers_of(frames: Sequence[bytes]) -> list[tuple[bytes, dict[str, Any]]]:
    """The request ids and the bodies of a message of the daemon."""
    magic, _, header = frames[0].partition(b"\n")
    assert magic == PROTOCOL_MAGIC
    return [(name.encode(), body) for name, body in json.loads(header)]
