"""Decoded JSON under static types: what a value is, said once."""

from typing import Any, TypeGuard


def is_object(value: object) -> TypeGuard[dict[str, Any]]:
    """True for a JSON object; its keys can only be strings."""
    return isinstance(value, dict)


def is_array(value: object) -> TypeGuard[list[Any]]:
    """True for a JSON array."""
    return isinstance(value, list)


def is_number(value: object) -> TypeGuard[float]:
    """True for a JSON number; Python counts true and false as integers, JSON does not."""
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def whole_number(value: object) -> int:
    """The integer that a value is, 0 for any other: another program may have written it."""
    return value if isinstance(value, int) else 0


def json_type(value: object) -> str:
    """What JSON calls the type of a decoded value."""
    match value:
        case dict():
            return "object"
        case list():
            return "array"
        case str():
            return "string"
        case bool():
            return "boolean"
        case None:
            return "null"
        case _:
            return "number"
