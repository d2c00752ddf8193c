"""Messages as records: encoded once, and checked against the limits before they are sent.

A frame over the daemon's limit would not be refused but end the connection without a word, so the
sizes are checked here, where the caller gets the error.
"""

from collections.abc import Iterable, Mapping, Sequence
from enum import Enum
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
_decode = msgspec.json.Decoder().decode


def encode_messages(records: Message | Sequence[Message]) -> list[bytes]:
    """The records of one append, as bytes.

    Args:
        records: one message, or a sequence of them, which becomes one atomic batch.

    Raises:
        BadRequest: a message cannot be written as JSON without loss, or there is none.
        TooLarge: a message or the batch is over its limit.
    """
    if isinstance(records, _SINGLE):
        frames = [records if isinstance(records, bytes) else _encode_message(records)]
        _check_size(len(frames[0]))
        return frames
    if isinstance(records, str | bytearray | memoryview) or not hasattr(records, "__iter__"):
        raise BadRequest(
            f"a message is a dict or the bytes of a JSON object, not a {type(records).__name__}"
        )
    frames = [each if isinstance(each, bytes) else _encode_message(each) for each in records]
    _check_batch(frames)
    _check_size(max(map(len, frames)))
    return frames


def _encode_message(record: Mapping[str, Any] | msgspec.Struct) -> bytes:
    try:
        data = _encode(record)
        _check_loss(record, data)
    except RecursionError:
        raise BadRequest("the message is nested too deep, or contains itself: flatten it") from None
    except (TypeError, ValueError, OverflowError) as error:
        # UnicodeEncodeError, for a lone surrogate, is a ValueError.
        raise BadRequest(f"the message cannot be written as JSON: {error}") from error
    return data


def _check_loss(record: Mapping[str, Any] | msgspec.Struct, data: bytes) -> None:
    if isinstance(record, dict):
        # Most messages are texts under texts, and then nothing else can be in them. For the others
        # what is read back says whether anything was lost, at the speed of the decoder.
        members = cast("dict[object, object]", record)
        if not _holds_texts(members) and _decode(data) != members:
            _refuse_loss(members)
    elif b"null" in data:
        _refuse_loss(msgspec.to_builtins(record))


def _holds_texts(record: dict[object, object]) -> bool:
    # A loop, because `all` of a generator takes three times as long.
    for key, value in record.items():
        if type(value) is not str or type(key) is not str:
            return False
    return True


def _refuse_loss(value: object) -> None:
    """Raise if there is anything that JSON has no value for; the encoder finds one for nearly all.

    It writes NaN and infinities as null, bytes as base64, a set as an array, a time, a Decimal and
    a UUID as strings, and every key as one.
    """
    level = [value]
    while level:
        level = [child for item in level for child in _children(item)]


def _children(value: object) -> Iterable[object]:
    match value:
        case None | str() | int():
            return ()
        case float():
            if not isfinite(value):
                raise BadRequest(
                    "the message has a number that is NaN or infinite, which JSON cannot hold: use"
                    " null or a string"
                )
            return ()
        case dict():
            members = cast("dict[object, object]", value)
            for key in members:
                if not isinstance(key, str):
                    raise BadRequest(
                        f"the message has an object with the key {key!r:.40}, and JSON knows only"
                        " strings as keys: make it one"
                    )
            return members.values()
        case list() | tuple():
            return cast("Iterable[object]", value)
        case _ if _is_typed(value):
            # Its own type says what it is in JSON.
            return (msgspec.to_builtins(value),)
        case _:
            raise BadRequest(
                f"the message has a {type(value).__name__}, which JSON cannot hold: give it as"
                " text, as a number, or as a list or dict of them"
            )


def _is_typed(value: object) -> bool:
    is_class_of_fields = hasattr(value, "__dataclass_fields__") or hasattr(value, "__attrs_attrs__")
    return is_class_of_fields or isinstance(value, msgspec.Struct | Enum)


def _check_size(largest: int) -> None:
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
