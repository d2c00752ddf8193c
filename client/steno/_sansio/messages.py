"""Messages of a caller, encoded as JSON objects without loss."""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import Field
from enum import Enum
from math import isfinite
from typing import Any, ClassVar, Final, Protocol, TypeGuard, cast

import msgspec

from steno_protocol import limits
from steno_protocol._json import replace_lone_surrogates
from steno_protocol.errors import BadRequest, TooLarge
from steno_protocol.records import check_record


class ModelLike(Protocol):
    """A pydantic model, or another object that makes JSON values of itself."""

    def model_dump(self, *, mode: str) -> Any:
        """Return the values; `mode="json"` asks for those that JSON can hold."""
        ...


class DataclassLike(Protocol):
    """An object of a dataclass."""

    __dataclass_fields__: ClassVar[dict[str, Field[Any]]]


JsonObject = Mapping[str, Any] | msgspec.Struct | ModelLike | DataclassLike
"""An object that has a form in JSON: a dict, a Struct, a pydantic model, or a dataclass."""

Message = JsonObject | bytes
"""One message: an object, or the bytes of one that is encoded already."""

_SINGLE: Final = (dict, bytes, msgspec.Struct, Mapping)
"""The usual types of one message; a dict first, because a check for a Mapping is slow."""

_TOO_MANY_DIGITS: Final = 10**4300
"""Python refuses to read or write an integer of more digits, as a guard against slow input."""

_Path = tuple["_Path", str | int] | None
"""The place of a value in a message: the place of its container, and its key or index there."""


def encode_messages(records: Message | Sequence[Message], what: str = "message") -> list[bytes]:
    """The records of one append, as bytes.

    Args:
        records: one message, or a sequence of them, which becomes one atomic batch.
        what: the noun for a record in error messages.

    Raises:
        BadRequest: a message cannot be written as JSON without loss, or there is none. The error
            names the message and the field.
        TooLarge: a message or the batch is over its limit.
    """
    if isinstance(records, _SINGLE) or is_message(records):
        return [_encode_message(records, what)]
    if isinstance(records, str | bytearray | memoryview) or not hasattr(records, "__iter__"):
        raise _no_message(records, what)
    given = [*cast("Iterable[Message]", records)]
    _check_count(len(given), what)
    batch = [*_encode_each(given, what)]
    if sum(map(len, batch)) > limits.BATCH_BYTES_MAX:
        raise TooLarge(
            f"the batch has {sum(map(len, batch))} bytes, at most {limits.BATCH_BYTES_MAX} are"
            " allowed: send several batches"
        )
    return batch


def is_message(value: object) -> TypeGuard[Message]:
    """Whether a value is one message; a model can be iterated like a sequence of them."""
    return isinstance(value, _SINGLE) or _is_model(value) or _has_fields(value)


def _encode_each(given: Sequence[Message], what: str) -> Iterator[bytes]:
    for number, each in enumerate(given, 1):
        try:
            if not is_message(each):
                raise _no_message(each, what)
            yield _encode_message(each, what)
        except (BadRequest, TooLarge) as error:
            if len(given) == 1:
                raise
            raise type(error)(f"{what} {number} of {len(given)}: {error.message}") from error


def _encode_message(message: Message, what: str) -> bytes:
    if isinstance(message, bytes):
        data = message
    else:
        try:
            data = _encode(message)
        except (RecursionError, TypeError, ValueError, OverflowError) as error:
            raise _not_encoded(message, error, what) from error
        _check_loss(message, data, what)
    if len(data) > limits.RECORD_BYTES_MAX:
        raise _too_large(data, what)
    return data


def _not_encoded(message: JsonObject, error: Exception, what: str) -> BadRequest:
    """Return the refusal of a message that the encoder does not take.

    A lone surrogate is a UnicodeEncodeError, which is a ValueError.
    """
    try:
        if not isinstance(error, RecursionError):
            _refuse_loss(message, what)
            return BadRequest(f"the {what} cannot be written as JSON: {error!s:.200}")
    except RecursionError:
        pass
    return BadRequest(f"the {what} is nested too deep, or contains itself: flatten it")


def _check_loss(message: JsonObject, data: bytes, what: str) -> None:
    """Raise BadRequest if `data`, the encoded message, holds other values than the message."""
    if not data.startswith(b"{"):
        raise _no_message(message, what)
    try:
        if isinstance(message, Mapping):
            # Decoding and comparing takes less time than a look at every value.
            if _decode(data) != message:
                _refuse_loss(message, what)
        elif b"null" in data:
            _refuse_loss(message, what)
    except RecursionError as error:
        raise _not_encoded(message, error, what) from None


def _simplify(value: Any) -> Any:
    """Make values that the encoder knows of a value that it does not know."""
    if _is_model(value):
        return value.model_dump(mode="json")
    if isinstance(value, Mapping):
        return {**cast("Mapping[str, Any]", value)}
    for kind in (str, int, float):
        if isinstance(value, kind):
            return kind(value)
    raise TypeError(f"a {type(value).__name__} has no form in JSON")


_encode: Final = msgspec.json.Encoder(enc_hook=_simplify).encode
_decode: Final = msgspec.json.Decoder().decode


# --- odd values -----------------------------------------------------------------------------------


def _refuse_loss(message: object, what: str) -> None:
    """Raise BadRequest at the first value that JSON cannot hold, with its path.

    The encoder writes NaN and infinities as null, bytes as base64, a set as an array, a time, a
    Decimal and a UUID as strings, and every key as a string.
    """
    level: list[tuple[_Path, object]] = [(None, message)]
    # The objects stay in it, so that no other object gets the id of one that is gone.
    seen: dict[int, object] = {}
    while level:
        following: list[tuple[_Path, object]] = []
        for path, value in level:
            if id(value) in seen:
                continue
            seen[id(value)] = value
            try:
                following.extend(_children(path, _checked(path, value)))
            except _OddValueError as odd:
                raise BadRequest(_place(what, odd.path) + odd.reason) from None
        level = following


class _OddValueError(Exception):
    """A value that JSON cannot hold."""

    def __init__(self, path: _Path, reason: str) -> None:
        super().__init__(reason)
        self.path = path
        self.reason = reason


def _checked(path: _Path, value: object) -> object:
    """Check one value without the values in it, and return it as a value of JSON."""
    match value:
        case None | bool():
            pass
        case str():
            _check_text(path, value)
        case int() if abs(value) >= _TOO_MANY_DIGITS:
            raise _OddValueError(path, " is an integer of more than 4300 digits: give it as text")
        case float() if not isfinite(value):
            raise _OddValueError(
                path, " is NaN or infinite, which JSON cannot hold: use null or a string"
            )
        case dict():
            _check_keys(path, cast("dict[object, object]", value))
        case int() | float() | list() | tuple():
            pass
        case _:
            return _checked(path, _typed_values(path, value))
    return cast("object", value)


def _children(path: _Path, value: object) -> Iterable[tuple[_Path, object]]:
    match value:
        case dict():
            members = cast("dict[str, object]", value)
            return [((path, key), child) for key, child in members.items()]
        case list() | tuple():
            items = cast("Sequence[object]", value)
            return [((path, index), item) for index, item in enumerate(items)]
        case _:
            return ()


def _check_text(path: _Path, text: str) -> None:
    try:
        text.encode()
    except UnicodeEncodeError:
        raise _OddValueError(
            path, " has a lone surrogate, which UTF-8 cannot encode: replace it"
        ) from None


def _check_keys(path: _Path, members: dict[object, object]) -> None:
    for key in members:
        if not isinstance(key, str):
            raise _OddValueError(
                path,
                f" has the key {key!r:.40}, and JSON knows only strings as keys: make it one",
            )
        _check_text(path, key)


def _typed_values(path: _Path, value: object) -> object:
    """The values of an object whose type defines its form in JSON."""
    is_typed = _has_fields(value) or _is_model(value)
    if not (is_typed or isinstance(value, msgspec.Struct | Enum | Mapping)):
        raise _OddValueError(
            path,
            f" is a {type(value).__name__}, which JSON cannot hold: give it as text, as a number,"
            " or as a list or dict of them",
        )
    try:
        return msgspec.to_builtins(value, str_keys=is_typed, enc_hook=_simplify)
    except (TypeError, ValueError, OverflowError) as error:
        raise _OddValueError(path, f" cannot be written as JSON: {error!s:.200}") from error


def _is_model(value: object) -> TypeGuard[ModelLike]:
    return hasattr(value, "model_dump") and not isinstance(value, type)


def _has_fields(value: object) -> TypeGuard[DataclassLike]:
    """Whether a value is an object of a dataclass, or of a class of attrs."""
    is_class_of_fields = hasattr(value, "__dataclass_fields__") or hasattr(value, "__attrs_attrs__")
    return is_class_of_fields and not isinstance(value, type)


# --- error messages -------------------------------------------------------------------------------


def _place(what: str, path: _Path) -> str:
    """The place of a value in words, such as `the message's field content[0].text`."""
    keys: list[str | int] = []
    while path is not None:
        path, key = path
        keys.append(key)
    text = ""
    for key in reversed(keys):
        if isinstance(key, int):
            text += f"[{key}]"
        elif key.isidentifier():
            text += f".{key}" if text else key
        else:
            text += f"[{key!r:.40}]"
    return f"the {what}'s field {text}" if text else f"the {what}"


def _no_message(value: object, what: str) -> BadRequest:
    return BadRequest(
        f"a {what} is a dict, a msgspec.Struct, a pydantic model, a dataclass or the bytes of a"
        f" JSON object, and this is of the type {type(value).__name__}"
    )


def _check_count(count: int, what: str) -> None:
    if not count:
        raise BadRequest(f"an append needs at least one {what}")
    if count > limits.BATCH_RECORDS_MAX:
        raise TooLarge(
            f"the batch has {count} {what}s, at most {limits.BATCH_RECORDS_MAX} are allowed: send"
            " several batches"
        )


def _too_large(data: bytes, what: str) -> TooLarge:
    return TooLarge(
        f"the {what} has {len(data)} bytes, at most {limits.RECORD_BYTES_MAX} are"
        f" allowed{_largest_text(data, what)}: split it, or store the large part elsewhere and"
        " refer to it"
    )


def _largest_text(data: bytes, what: str) -> str:
    """The place of the longest text of an encoded message, as a part of a sentence."""
    try:
        level: list[tuple[_Path, object]] = [(None, _decode(data))]
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return ""
    largest: tuple[int, _Path] = (0, None)
    while level:
        for path, value in level:
            if isinstance(value, str) and len(value) > largest[0]:
                largest = (len(value), path)
        level = [child for path, value in level for child in _children(path, value)]
    length, path = largest
    return f", and {_place(what, path)} alone has {length} characters" if length else ""


EXACT: Final = "steno:exact"
"""The key of the exact JSON, in ASCII, of a record that is shown with U+FFFD."""


def encode_exactly(records: Sequence[Mapping[str, Any]], what: str = "record") -> list[bytes]:
    """Return the records of one batch as bytes.

    The daemon makes the same checks. They are made here first, so that a bad record leaves no empty
    session behind.

    Args:
        records: the records.
        what: the noun for a record in error messages.

    Raises:
        BadRequest, TooLarge: a record is not JSON, too deep or too large; the error names it.
    """
    try:
        encoded = encode_messages(records, what)
    except BadRequest:
        encoded = encode_messages([_shown(each) for each in records], what)
    return [check_record(data) for data in encoded]


def original(record: dict[str, Any]) -> dict[str, Any]:
    """Return a stored record as it was given."""
    exact = record.get(EXACT)
    if not isinstance(exact, str):
        return record
    found: dict[str, Any] = json.loads(exact)
    return found


def _shown(record: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a record with U+FFFD for halves of surrogate pairs, and with its exact JSON."""
    try:
        exact = json.dumps(record, allow_nan=False, separators=(",", ":")).encode()
    except (ValueError, TypeError, RecursionError):
        # The encoder names the reason.
        return record
    shown = replace_lone_surrogates(exact)
    return record if shown == exact else {**json.loads(shown), EXACT: exact.decode()}
