"""Messages as record frames: encoded once, and checked against the limits before they are sent.

A frame over the daemon's limit would not be refused but end the connection without a word, so the
sizes are checked here, where the caller can be told.
"""

from collections.abc import Iterable, Mapping, Sequence
from math import isfinite
from typing import Any, Final, cast

import msgspec

from steno_protocol import limits
from steno_protocol.errors import BadRequest, TooLarge

Message = Mapping[str, Any] | msgspec.Struct | bytes
"""One message: an object, or the bytes of one that is encoded already."""

_SINGLE: Final = (dict, bytes, msgspec.Struct, Mapping)
"""What is one message; a dict first, because asking for a Mapping is slow."""

_encode = msgspec.json.Encoder().encode


def encode_messages(records: Message | Sequence[Message]) -> list[bytes]:
    """The record frames of one append.

    Args:
        records: one message, or a sequence of them, which becomes one atomic batch.

    Raises:
        BadRequest: a message cannot be written as JSON without loss, or there is none.
        TooLarge: a message or the batch is over its limit.
    """
    if isinstance(records, _SINGLE):
        frames = [records if isinstance(records, bytes) else _encode_message(records)]
        _check_size(frames)
        return frames
    if isinstance(records, str | bytearray | memoryview):
        raise BadRequest(
            f"a message is a dict or the bytes of a JSON object, not a {type(records).__name__}"
        )
    frames = [each if isinstance(each, bytes) else _encode_message(each) for each in records]
    _check_batch(frames)
    _check_size(frames)
    return frames


def _encode_message(record: Mapping[str, Any] | msgspec.Struct) -> bytes:
    try:
        data = _encode(record)
    except RecursionError:
        raise BadRequest("the message is nested too deep, or contains itself: flatten it") from None
    except (TypeError, ValueError, OverflowError) as error:
        # UnicodeEncodeError, for a lone surrogate, is a ValueError.
        raise BadRequest(f"the message cannot be written as JSON: {error}") from error
    # The encoder writes NaN and infinities as null; only a message with a null can hide one.
    if b"null" in data:
        _refuse_not_finite(msgspec.to_builtins(record))
    return data


def _refuse_not_finite(value: object) -> None:
    level = [value]
    while level:
        if any(isinstance(item, float) and not isfinite(item) for item in level):
            raise BadRequest(
                "the message has a number that is NaN or infinite, which JSON cannot hold: use"
                " null or a string"
            )
        level = [child for item in level for child in _children(item)]


def _children(value: object) -> Iterable[object]:
    match value:
        case dict():
            return cast("dict[str, object]", value).values()
        case list() | tuple() | set() | frozenset():
            return cast("Iterable[object]", value)
        case _:
            return ()


def _check_size(frames: Sequence[bytes]) -> None:
    largest = max(map(len, frames))
    if largest > limits.RECORD_BYTES_MAX:
        raise TooLarge(
            f"the message has {largest} bytes, at most {limits.RECORD_BYTES_MAX} are allowed:"
            " split it, or store the large part elsewhere and refer to it"
        )


def _check_batch(frames: Sequence[bytes]) -> None:
    if not frames:
        raise BadRequest("an append needs at least one message")
    if len(frames) > limits.BATCH_RECORDS_MAX:
        raise TooLarge(
            f"the batch has {len(frames)} messages, at most {limits.BATCH_RECORDS_MAX} are allowed:"
            " send several batches"
        )
    total = sum(map(len, frames))
    if total > limits.BATCH_BYTES_MAX:
        raise TooLarge(
            f"the batch has {total} bytes, at most {limits.BATCH_BYTES_MAX} are allowed: send"
            " several batches"
        )
