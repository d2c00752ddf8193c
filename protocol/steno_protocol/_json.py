"""Type guards for decoded JSON."""

from typing import Any, TypeGuard


def is_object(value: object) -> TypeGuard[dict[str, Any]]:
    """Whether a value is a JSON object; its keys are strings."""
    return isinstance(value, dict)


def is_array(value: object) -> TypeGuard[list[Any]]:
    """Whether a value is a JSON array."""
    return isinstance(value, list)


def is_number(value: object) -> TypeGuard[float]:
    """Whether a value is a JSON number; Python counts true and false as integers, JSON does not."""
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def whole_number(value: object) -> int:
    """Return an integer value as it is, and 0 for any other value of another program."""
    return value if isinstance(value, int) else 0


def json_type(value: object) -> str:
    """Return JSON's name for the type of a decoded value."""
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
