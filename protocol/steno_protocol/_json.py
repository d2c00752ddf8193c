"""Type guards for decoded JSON, and lone surrogates in encoded JSON."""

import re
from typing import Any, Final, TypeGuard


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


_SURROGATES: Final = re.compile(
    rb"""(?<!\\)((?:\\\\)*+)\\u(?:  # the backslash is not itself escaped
      [dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}  # a whole pair
    | ([dD][89a-fA-F][0-9a-fA-F]{2})  # one half
    )""",
    re.VERBOSE,
)
"""It matches surrogates only, and not each escape: a long line has millions of them."""


def replace_lone_surrogates(line: bytes) -> bytes:
    """Return a line of JSON with U+FFFD for each half of a pair that stands alone."""
    return _SURROGATES.sub(_sound, line)


def _sound(found: re.Match[bytes]) -> bytes:
    return found[1] + rb"\ufffd" if found[2] else found[0]
