"""Untrusted JSON of a model's server: its errors and token counts."""

from typing import Any, cast

import msgspec

from steno.llm._provider import Unusable
from steno.llm.limits import MODEL_COMPLAINT_CHARS_MAX
from steno_protocol import limits

_decode = msgspec.json.Decoder().decode


def refuse_error(body: bytes) -> None:
    """Raise Unusable when a body is no JSON object, or contains an error."""
    value = _object(body)
    if value is None:
        raise Unusable("its answer is no JSON object")
    if value.get("error"):
        raise Unusable(f"it answered with an error: {complaint(body)}")


def complaint(body: bytes) -> str:
    """Return the error message in a body: the one in its JSON, else the beginning of its text."""
    value = _object(body) or {}
    match value.get("error"):
        case {"message": str(message)}:
            text = message
        case str(message):
            text = message
        case _:
            shown = value.get("message", value.get("detail"))
            text = shown if isinstance(shown, str) else body.decode(errors="replace")
    return " ".join(text.split())[:MODEL_COMPLAINT_CHARS_MAX]


def tokens_at(value: object, *path: str) -> int | None:
    """The number of tokens at `path` of nested objects, None when there is none."""
    found = value
    for name in path:
        found = cast("dict[str, object]", found).get(name) if isinstance(found, dict) else None
    return found if type(found) is int and 0 <= found <= limits.COUNT_MAX else None


def _object(body: bytes) -> dict[str, Any] | None:
    try:
        value = _decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    return cast("dict[str, Any]", value) if isinstance(value, dict) else None
