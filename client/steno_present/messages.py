"""The parts of a message as text: calls, thoughts, attachments, and its time; pure."""

import json
from collections.abc import Iterator
from typing import Any, Final, NamedTuple
from urllib.parse import unquote_to_bytes

from steno.parts import INTRODUCTION
from steno_present.wording import size
from steno_protocol._json import is_array, is_object
from steno_protocol.paths import UUID_CHARS, key_time_ms

FOLDED_CHARS: Final = 60
"""Characters of a folded text that are shown."""


def written_at(record: dict[str, Any]) -> float | None:
    """Unix time in seconds of the request that wrote a line, from its key; None if unknown.

    Only keys made by steno's clients contain a time. The keys of other callers and the lines of
    other programs do not.
    """
    stamp = record.get("_id")
    if not isinstance(stamp, str):
        return None
    milliseconds = key_time_ms(stamp[:UUID_CHARS])
    return None if milliseconds is None else milliseconds / 1000


def is_summary(record: dict[str, Any]) -> bool:
    """Whether a message is the summary of a compaction by steno."""
    content = record.get("content")
    first = content[0] if is_array(content) and content else None
    return is_object(first) and first.get("text") == INTRODUCTION


def text_of(value: object) -> str:
    """A text as it is, any other value as JSON."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def folded(text: str) -> str:
    """The beginning of a text on one line."""
    # So many words are longer than what is shown.
    flat = " ".join(text.split(maxsplit=FOLDED_CHARS))
    return flat if len(flat) <= FOLDED_CHARS else f"{flat[: FOLDED_CHARS - 1].rstrip()}…"


def arguments_of(arguments: object, *, quoted: bool = True) -> str:
    """The arguments of a call as `name=value, ...`; other text than a JSON object is unchanged.

    Args:
        arguments: as they are in the record, usually JSON text.
        quoted: texts have quotes and escapes; without them a path reads as it is typed.
    """
    if not isinstance(arguments, str):
        return "" if arguments is None else json.dumps(arguments, ensure_ascii=False)
    try:
        value = json.loads(arguments)
    except (ValueError, RecursionError):
        return arguments
    if not is_object(value):
        return arguments
    shown = {
        name: each if isinstance(each, str) and not quoted else json.dumps(each, ensure_ascii=False)
        for name, each in value.items()
    }
    return ", ".join(f"{name}={each}" for name, each in shown.items())


class CallArguments(NamedTuple):
    """The arguments of a call for a reader.

    Attributes:
        short: all but `texts` as JSON on one line; empty if there are no others.
        long: the same on several lines.
        texts: the arguments that are texts of several lines, by name.
    """

    short: str
    long: str
    texts: dict[str, str]


def split_arguments(arguments: object) -> CallArguments | None:
    """The arguments of a call, split for a reader; None if they are no JSON object."""
    try:
        value = json.loads(arguments) if isinstance(arguments, str) else arguments
        if not is_object(value):
            return None
        texts = {
            name: each for name, each in value.items() if isinstance(each, str) and "\n" in each
        }
        rest = {name: each for name, each in value.items() if name not in texts}
        short = json.dumps(rest, ensure_ascii=False) if rest or not texts else ""
        return CallArguments(short, json.dumps(rest, ensure_ascii=False, indent=2), texts)
    except (ValueError, RecursionError):
        return None


def calls_of(record: dict[str, Any]) -> Iterator[tuple[str, str, object]]:
    """The tool calls of a record, also those among its content: id, name and arguments."""
    calls = record.get("tool_calls")
    for call in calls if is_array(calls) else []:
        function = call.get("function") if is_object(call) else None
        if is_object(call) and is_object(function):
            yield str(call.get("id")), text_of(function.get("name")), function.get("arguments")
    for part in _parts(record, "tool_use"):
        yield str(part.get("id")), text_of(part.get("name")), part.get("input")


def answers_of(record: dict[str, Any]) -> Iterator[str]:
    """The ids of the calls that a record has results of."""
    if record.get("role") == "tool":
        yield str(record.get("tool_call_id"))
    for part in _parts(record, "tool_result"):
        yield str(part.get("tool_use_id"))


def _parts(record: dict[str, Any], kind: str) -> Iterator[dict[str, Any]]:
    content = record.get("content")
    for part in content if is_array(content) else []:
        if is_object(part) and part.get("type") == kind:
            yield part


def texts_of(record: dict[str, Any]) -> Iterator[str]:
    """The searchable texts of a record: content, thoughts, and tool calls as `name(arguments)`."""
    content = record.get("content")
    if isinstance(content, str):
        yield content
    for part in content if is_array(content) else []:
        for value in (part.get("text"), part.get("think")) if is_object(part) else ():
            if isinstance(value, str):
                yield value
    calls = record.get("tool_calls")
    for call in calls if is_array(calls) else []:
        function = call.get("function") if is_object(call) else None
        if is_object(function):
            arguments = arguments_of(function.get("arguments"), quoted=False)
            yield f"{function.get('name')}({arguments})"


def described(kind: str, part: dict[str, Any]) -> str:
    """A part that cannot be shown: its type and its size, or its URL."""
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
