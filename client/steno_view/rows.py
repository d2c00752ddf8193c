"""Records as rows of the page; pure.

A row is a JSON object. Its texts are trees of elements (see `markup`) or plain texts:

    {"line": 12, "kind": "message", "role": "assistant", "by": "planner", "time": 1763730245.1,
     "parts": [{"kind": "text", "trees": [["p", {}, "Let me look."]]},
               {"kind": "call", "id": "call_1", "name": "Shell", "hint": "command=ls",
                "trees": ["{", ...]}]}
"""

import base64
import binascii
import json
from dataclasses import dataclass
from itertools import chain, islice
from typing import Any, Final
from urllib.parse import unquote_to_bytes

from steno.parts import THOUGHTS
from steno.values import Record
from steno_present.messages import (
    answers_of,
    arguments_of,
    calls_of,
    described,
    folded,
    text_of,
    written_at,
)
from steno_present.safe_text import without_ansi
from steno_protocol._json import is_array, is_object
from steno_view.limits import (
    CALLS_KEPT_MAX,
    FOLDED_LINES_MAX,
    IMAGE_BYTES_MAX,
    PARTS_MAX,
    TEXT_CHARS_MAX,
    WHOLE_TEXT_CHARS_MAX,
)
from steno_view.markup import Budget, Clock, code, markdown

Row = dict[str, Any]
"""One row, ready to be encoded as JSON."""

IMAGE_TYPES: Final = frozenset({"image/png", "image/jpeg", "image/gif", "image/webp"})
"""Images that a browser shows and that contain no program."""

_HINT_CHARS: Final = 120


@dataclass(frozen=True, slots=True)
class Call:
    """A call of a tool: its name, and Unix time in seconds of the record with it."""

    name: str
    at: float | None


class Rows:
    """Makes the rows of one range; the lines before it are shown to `note` first.

    Args:
        clock: limits the time for the colours of code.
        is_whole: cut no text and no parts, for one row that the reader unfolds.
    """

    def __init__(self, clock: Clock, *, is_whole: bool = False) -> None:
        self._clock = clock
        self._budget = Budget(clock)
        self._calls: dict[str, Call] = {}
        self._chars_max = WHOLE_TEXT_CHARS_MAX if is_whole else TEXT_CHARS_MAX
        self._parts_max = None if is_whole else PARTS_MAX

    def note(self, record: dict[str, Any]) -> None:
        """Remember the tool calls of a record."""
        at = written_at(record)
        for call_id, name, _ in calls_of(record):
            self._calls[call_id] = Call(name, at)
        while len(self._calls) > CALLS_KEPT_MAX:
            del self._calls[next(iter(self._calls))]

    def row(self, record: Record) -> Row:
        """The row of one record."""
        value = record.record
        self.note(value)
        self._budget = Budget(self._clock)
        row: Row = {"line": record.cursor.line, "time": written_at(value)}
        if isinstance(by := value.get("_by"), str):
            row["by"] = by
        match value.get("role"):
            case "_checkpoint":
                return {**row, "kind": "checkpoint", "id": text_of(value.get("id"))}
            case "_usage":
                return {**row, "kind": "usage", "tokens": text_of(value.get("token_count"))}
            case "_system_prompt":
                parts = [self._text(text_of(value.get("content")))]
                return {**row, "kind": "message", "role": "system prompt", "parts": parts}
            case role:
                return self._message(row, text_of(role), value)

    def _message(self, row: Row, role: str, value: dict[str, Any]) -> Row:
        is_result = role == "tool"
        calls = value.get("tool_calls")
        content, calls = _parts(value.get("content")), list(calls) if is_array(calls) else []
        parts = chain(
            (self._part(*each, is_result=is_result) for each in enumerate(content)),
            map(self._call, calls),
        )
        row = {**row, "kind": "message", "role": role, "parts": [*islice(parts, self._parts_max)]}
        if more := len(content) + len(calls) - len(row["parts"]):
            row["more"] = more
        if answered := list(answers_of(value)):
            row["answers"] = answered
        if is_result:
            self._join(row, value)
        return row

    def _join(self, row: Row, value: dict[str, Any]) -> None:
        """Give a result the name and the duration of its call."""
        call = self._calls.get(str(value.get("tool_call_id")))
        if call is None:
            return
        row["name"] = call.name
        if call.at is not None and row["time"] is not None:
            row["duration"] = round(row["time"] - call.at, 3)

    def _part(self, number: int, part: object, *, is_result: bool) -> Row:
        if not is_object(part):
            return self._json("part", part)
        kind = part.get("type")
        if kind == "text":
            text = text_of(part.get("text"))
            return self._result(text) if is_result else self._text(text)
        if isinstance(kind, str) and kind in THOUGHTS:
            return self._thought(part, kind)
        if kind == "tool_use":
            return self._called(
                text_of(part.get("id")), text_of(part.get("name")), part.get("input")
            )
        if image_type(part) is not None:
            return {"kind": "image", "part": number, "text": described(_key_of(part), part)}
        return self._json(described(text_of(kind), part), part)

    def _text(self, text: str) -> Row:
        text = without_ansi(text)
        shown, more = self._cut(text)
        return {"kind": "text", "trees": markdown(shown, self._budget), "more": more}

    def _thought(self, part: dict[str, Any], kind: str) -> Row:
        text = without_ansi(text_of(part.get(kind, part.get("text", ""))))
        shown, more = self._cut(text)
        return {
            "kind": "thought", "chars": len(text), "hint": folded(text),
            "trees": markdown(shown, self._budget), "more": more,
        }  # fmt: skip

    def _result(self, text: str) -> Row:
        text = without_ansi(text)
        shown, more = self._cut(text)
        lines = shown.count("\n") + 1
        folds = lines > FOLDED_LINES_MAX + 2
        return {
            "kind": "result", "lines": lines, "text": shown, "more": more,
            "head": "\n".join(shown.split("\n", FOLDED_LINES_MAX)[:FOLDED_LINES_MAX])
            if folds else None,
        }  # fmt: skip

    def _call(self, call: object) -> Row:
        function = call.get("function") if is_object(call) else None
        if not is_object(call) or not is_object(function):
            return self._json("tool call", call)
        return self._called(
            text_of(call.get("id")), text_of(function.get("name")), function.get("arguments")
        )

    def _called(self, call_id: str, name: str, arguments: object) -> Row:
        text, more = self._cut(_sound(indented(arguments)))
        hint = _sound(arguments_of(arguments, quoted=False))[: _HINT_CHARS + 1]
        return {
            "kind": "call", "id": call_id, "name": name,
            "hint": hint if len(hint) <= _HINT_CHARS else f"{hint[:_HINT_CHARS]}…",
            "trees": code(text, "json", self._budget), "more": more,
        }  # fmt: skip

    def _json(self, title: str, value: object) -> Row:
        shown, more = self._cut(json.dumps(value, ensure_ascii=False, indent=2))
        return {
            "kind": "json",
            "title": title,
            "trees": code(shown, "json", self._budget),
            "more": more,
        }

    def _cut(self, text: str) -> tuple[str, int]:
        """The part of a text that is shown, and how many characters are not."""
        return text[: self._chars_max], max(0, len(text) - self._chars_max)


def _parts(content: object) -> list[object]:
    """The parts of a message; a text is one."""
    if is_array(content):
        return list(content)
    return [] if content is None or content == "" else [{"type": "text", "text": content}]


def hole(line: int) -> Row:
    """The row of a line that is blank or damaged."""
    return {"line": line, "kind": "hole", "time": None}


def indented(arguments: object) -> str:
    """The arguments of a call as indented JSON, or as they are if they are no JSON."""
    value = arguments
    if isinstance(arguments, str):
        try:
            value = json.loads(arguments)
        except (ValueError, RecursionError):
            return arguments
    return json.dumps(value, ensure_ascii=False, indent=2)


def _sound(text: str) -> str:
    """A text without halves of surrogate pairs, which arguments may have and no answer can."""
    return text.encode("utf-8", "backslashreplace").decode()


def image_type(part: dict[str, Any]) -> str | None:
    """The media type of an image inside a part, if it is one that the page shows."""
    found = _image(part)
    return None if found is None else found[0]


def image_of(record: dict[str, Any], number: int) -> tuple[str, bytes] | None:
    """Media type and bytes of the image in a part of a record; None if there is none."""
    content = record.get("content")
    if not is_array(content) or not 0 <= number < len(content) or not is_object(content[number]):
        return None
    found = _image(content[number])
    if found is None or len(found[1]) > 4 * IMAGE_BYTES_MAX // 3:
        return None
    try:
        return found[0], base64.b64decode(unquote_to_bytes(found[1]), validate=False)
    except (binascii.Error, ValueError):
        return None


def _image(part: dict[str, Any]) -> tuple[str, str] | None:
    """Media type and base64 text of an image, as one of the two common shapes has it."""
    source = part.get("source")
    if is_object(source) and source.get("type") == "base64":
        media, data = source.get("media_type"), source.get("data")
        is_shown = media in IMAGE_TYPES and isinstance(data, str)
        return (str(media), str(data)) if is_shown else None
    value = part.get(_key_of(part))
    url = value.get("url") if is_object(value) else value
    if not isinstance(url, str) or not url.startswith("data:"):
        return None
    head, _, data = url[len("data:") :].partition(",")
    media, _, encoding = head.partition(";")
    return (media, data) if media in IMAGE_TYPES and encoding.endswith("base64") else None


def _key_of(part: dict[str, Any]) -> str:
    return text_of(part.get("type"))
