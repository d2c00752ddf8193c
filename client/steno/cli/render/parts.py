"""The parts of a message in words: calls, thoughts, and what cannot be shown; pure."""

import json
from typing import Any, Final
from urllib.parse import unquote_to_bytes

from steno.cli.render.wording import size
from steno_protocol._json import is_object

FOLDED_CHARS: Final = 60
"""Characters of a folded text that are shown."""


def text_of(value: object) -> str:
    """A text, or what stands in its place as JSON."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def folded(text: str) -> str:
    """The beginning of a text on one line."""
    flat = " ".join(text.split())
    return flat if len(flat) <= FOLDED_CHARS else f"{flat[: FOLDED_CHARS - 1].rstrip()}…"


def arguments_of(arguments: object) -> str:
    """A call's arguments as a call is written; what is no JSON object is shown as it is."""
    if not isinstance(arguments, str):
        return "" if arguments is None else json.dumps(arguments, ensure_ascii=False)
    try:
        value = json.loads(arguments)
    except (ValueError, RecursionError):
        return arguments
    if not is_object(value):
        return arguments
    return ", ".join(
        f"{name}={json.dumps(each, ensure_ascii=False)}" for name, each in value.items()
    )


def described(kind: str, part: dict[str, Any]) -> str:
    """What a part is that cannot be shown: its type and its size, or where it lies."""
    url = _url_of(part.get(kind))
    if url is None:
        return f"{kind}, {size(len(json.dumps(part, ensure_ascii=False)))}"
    if not url.startswith("data:"):
        return f"{kind.removesuffix('_url')}: {folded(url)}"
    head, _, payload = url[len("data:") :].partition(",")
    media = head.partition(";")[0] or "text/plain"
    if head.endswith(";base64"):
        length = len(payload.rstrip("=")) * 3 // 4
    else:
        length = len(unquote_to_bytes(payload))
    return f"{media}, {size(length)}"


def _url_of(value: object) -> str | None:
    url = value.get("url") if is_object(value) else value
    return url if isinstance(url, str) else None
