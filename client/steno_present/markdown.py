"""A session as Markdown; pure.

What a record says is quoted: a line that begins with `## ` is always the beginning of a record.

    ## user · planner · 2026-03-01 12:00:00

    > Look at the file.
    > ## assistant
"""

import re
from collections.abc import Iterable, Iterator
from typing import Any, Final

from steno.values import Record
from steno_present.messages import described, text_of, written_at
from steno_present.open_calls import OpenCall
from steno_present.safe_text import without_ansi
from steno_present.wording import count, moment
from steno_protocol._json import is_array, is_object
from steno_protocol.replies import SessionStat


def head_of(stat: SessionStat) -> Iterator[str]:
    """The lines before the first message."""
    yield f"# {_flat(stat.title or stat.session)}"
    yield ""
    parts = [f"session {_span(stat.session)}", f"up to {_span(stat.head)}"]
    if stat.labels:
        parts.append("labels " + ", ".join(map(_flat, stat.labels)))
    if stat.forked_from:
        parts.append(f"forked from {_span(stat.forked_from)}")
    yield ", ".join(parts)
    yield ""


_HTML: Final = re.compile(r"<(?!(?:https?://|mailto:)[^\s<>]*>)[A-Za-z/!?]")
"""The beginning of HTML; a link in angle brackets is none."""

_MARKS: Final = re.compile(r"[\\`*\[\]<>~|&]|(?<!\w)_|_(?!\w)|#+$|^[-+=#]|^\d+(?=[.)])")
"""Characters with a meaning in a line of Markdown."""


class Markdown:
    """Renders the records of one session in order."""

    def __init__(self) -> None:
        self._called: dict[str, str] = {}

    def record(self, record: Record) -> list[str]:
        """The blocks of lines that show one record, the last one blank."""
        value = record.record
        match value.get("role"):
            case "_system_prompt":
                return ["## system prompt", "", *_paragraph(value.get("content"))]
            case "_checkpoint":
                return [f"*checkpoint {_flat(text_of(value.get('id')))}*", ""]
            case "_usage":
                tokens = value.get("token_count")
                shown = count(tokens, "token") if isinstance(tokens, int) else "tokens unknown"
                return [f"*{shown}*", ""]
            case role:
                return self._message(str(role), value)

    def open_calls(self, calls: Iterable[OpenCall]) -> Iterator[str]:
        """The lines that name the calls without a result."""
        for call in calls:
            yield f"No result of {_span(call.name)}, called at {_span(str(call.cursor))}."
            yield ""

    def _message(self, role: str, value: dict[str, Any]) -> list[str]:
        at, by = written_at(value), value.get("_by")
        name = self._called.get(str(value.get("tool_call_id"))) if role == "tool" else None
        failed = "failed" if role == "tool" and value.get("is_error") is True else None
        heading = [role, name, failed, by if isinstance(by, str) else None]
        when = [moment(at)] if at is not None else []
        blocks = ["## " + " · ".join([*(_flat(each) for each in heading if each), *when]), ""]
        blocks += self._content(value.get("content"), is_result=role == "tool")
        calls = value.get("tool_calls")
        for call in calls if is_array(calls) else []:
            blocks += self._call(call)
        return blocks

    def _content(self, content: object, *, is_result: bool) -> Iterator[str]:
        if not is_array(content):
            content = [] if content is None else [{"type": "text", "text": content}]
        for part in content:
            kind = part.get("type") if is_object(part) else None
            if not is_object(part) or not isinstance(kind, str):
                yield from _fenced(text_of(part), "json")
            elif kind == "text":
                text = part.get("text")
                yield from _fenced(str(text)) if is_result else _paragraph(text)
            elif kind == "think":
                yield from _folded(str(part.get("think")))
            else:
                yield _span(f"[{described(kind, part)}]")
                yield ""

    def _call(self, call: object) -> list[str]:
        function = call.get("function") if is_object(call) else None
        if not is_object(call) or not is_object(function):
            return _fenced(text_of(call), "json")
        name = str(function.get("name"))
        self._called[str(call.get("id"))] = name
        return [f"Calls {_span(name)}:", "", *_fenced(text_of(function.get("arguments")), "json")]


def _quoted(text: str) -> list[str]:
    """A text as one block, quoted, so that none of its lines can be a heading of the document.

    A line ends wherever a reader may see an end: Markdown knows three ends, other programs more.
    """
    lines = without_ansi(text).splitlines()
    quoted = "\n".join([f"> {line}" if line.strip() else ">" for line in lines])
    return [quoted, ""] if lines else [""]


def _paragraph(value: object) -> list[str]:
    """The Markdown of a text; one with HTML, which could end a quotation, is shown as it is."""
    text = text_of(value)
    return _quoted(text) if _HTML.search(text) is None else _fenced(text)


def _folded(text: str) -> Iterator[str]:
    yield "<details><summary>thought</summary>"
    yield ""
    yield from _paragraph(text)
    yield "</details>"
    yield ""


def _fenced(text: str, language: str = "") -> list[str]:
    """Unchanged text, quoted, in a fence that is longer than any fence in the text."""
    fence = _fence_for(text, at_least=3)
    return _quoted("\n".join((fence + language, text.rstrip("\n"), fence)))


def _fence_for(text: str, at_least: int) -> str:
    # Few texts have one, and the search for a character is far faster than the expression.
    if "`" not in text:
        return "`" * at_least
    return "`" * max(at_least, 1 + max(map(len, re.findall(r"`+", text))))


def _span(text: str) -> str:
    """A text as code on one line."""
    if text.isalnum():
        return f"`{text}`"
    flat = " ".join(without_ansi(text).split())
    fence = _fence_for(flat, at_least=1)
    edge = " " if "`" in flat or not flat else ""
    return f"{fence}{edge}{flat}{edge}{fence}"


def _flat(text: str) -> str:
    """A text on one line, without a meaning of its own as Markdown or HTML."""
    # Nearly every name is one word.
    return text if text.isalnum() else _MARKS.sub(r"\\\g<0>", " ".join(without_ansi(text).split()))
