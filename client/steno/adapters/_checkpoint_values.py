"""Serialized values of LangGraph as JSON that people can read, without loss."""

import binascii
from typing import Any, Final

import msgspec

from steno.adapters._optional import framework

READABLE_BYTES_MAX: Final = 64 * 1024
"""Bytes of a value that is stored as JSON; larger ones are base64, which takes less time."""

_DEPTH_MAX: Final = 80
"""Nesting of a value that is stored as JSON: a record may have 100 levels, its frame included."""

Stored = dict[str, Any]
"""A value in a record: its `type`, and its contents as `json` or as `base64`."""


def stored(kind: str, data: bytes) -> Stored:
    """Return the JSON form of a value that the framework serialized.

    MessagePack becomes JSON if exactly the same bytes can be made of it again. An extension of it,
    an object of Python, becomes `{"ext": code, "value": ...}`.
    """
    if kind == "msgpack" and len(data) <= READABLE_BYTES_MAX:
        try:
            value = _unpacked(data)
            if _packed(msgspec.json.decode(msgspec.json.encode(value))) == data:
                return {"type": kind, "json": value}
        except (ValueError, TypeError, RecursionError):
            # No JSON: a number that is not finite, a key that is no text, bytes, deep nesting.
            pass
    return {"type": kind, "base64": binascii.b2a_base64(data, newline=False).decode()}


def serialized(value: Stored) -> tuple[str, bytes]:
    """Return the type and the bytes of which `stored` made this value."""
    if "json" in value:
        return value["type"], _packed(value["json"])
    return value["type"], binascii.a2b_base64(value["base64"])


def _unpacked(data: bytes) -> Any:
    return _msgpack().unpackb(data, ext_hook=_extension)


def _extension(code: int, data: bytes) -> dict[str, Any]:
    return {"ext": code, "value": _unpacked(data)}


def _packed(value: Any) -> bytes:
    packed: bytes = _msgpack().packb(_with_extensions(value, _DEPTH_MAX))
    return packed


def _with_extensions(value: Any, levels: int) -> Any:
    if not levels:
        raise ValueError("the value is nested too deep")
    match value:
        case [*items]:
            return [_with_extensions(each, levels - 1) for each in items]
        case {"ext": int(code), "value": inner, **others} if not others:
            return _msgpack().Ext(code, _packed(inner))
        case {**members}:
            return {name: _with_extensions(each, levels - 1) for name, each in members.items()}
        case _:
            return value


def _msgpack() -> Any:
    return framework("ormsgpack", "langgraph")
