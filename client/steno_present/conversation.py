"""A conversation as text: one record in, its lines out; pure.

user · planner                         2026-11-21 15:04:05  0:3
  What is in this image?
  [image/png, 1.2 MB]
assistant                              2026-11-21 15:04:09  0:5
  ▸ thought, 212 characters: It seems to show a small scene …
  → Shell(command="ls")
tool · Shell                           2026-11-21 15:04:10  0:6
  a.txt
"""

import json
import textwrap
from collections.abc import Callable, Iterable, Iterator
from typing import Final, Protocol

from steno.values import Record
from steno_present.limits import LINE_WRAPPED_CHARS_MAX, RESULT_LINE_CHARS_MAX, RESULT_LINES_MAX
from steno_present.messages import (
    FOLDED_CHARS,
    arguments_of,
    described,
    folded,
    is_summary,
    split_arguments,
    text_of,
    written_at,
)
from steno_present.open_calls import OpenCall
from steno_present.safe_text import is_plain, printable, without_ansi
from steno_present.wording import count, moment
from steno_protocol._json import is_array, is_object

_HARNESS_MARKS: Final = (
    ("<system>", "</system>"),
    ("<system-reminder>", "</system-reminder>"),
)
"""Ends of texts by the program around the model, which are no Markdown."""

Style = Callable[..., str]
"""Adds colours to a text or returns it unchanged: `style(text, "bold", "cyan")`."""

_INDENT: Final = "  "

_RULE_CHARS: Final = 60
"""Length of a rule without a terminal width."""

_TIME_CHARS: Final = 19
"""Characters of a date and time, which a narrow terminal omits."""

_ROLE_STYLES: Final = {"user": "green", "assistant": "cyan", "tool": "yellow", "system": "magenta"}


_AS_IT_IS: Final = "▸ shown as it is: too long, too wide or too deep to be laid out"


class Markup(Protocol):
    """Lays out texts for a terminal. Its lines contain nothing that controls one but styles."""

    def begin_record(self) -> None:
        """Count the time for the next texts anew."""
        ...

    def markdown(self, text: str, columns: int) -> list[str] | None:
        """Return the lines of a Markdown text; None if it has to be shown as it is."""
        ...

    def code(self, text: str, language: str, columns: int) -> list[str] | None:
        """Return the lines of a program; None if it has to be shown as it is."""
        ...

    def wrapped(self, line: str, columns: int) -> list[str]:
        """Return a line of text in pieces that fit the columns, wide characters included."""
        ...


class Conversation:
    """Renders the records of one session in order.

    Args:
        width: columns of the terminal, None for lines of any length.
        style: adds colours.
        full: fold nothing.
        markup: lays out texts; None shows them as they are.
    """

    def __init__(
        self, width: int | None, style: Style, *, full: bool = False, markup: Markup | None = None
    ) -> None:
        self._width = None if width is None else max(width, 20)
        self._style = style
        self._full = full
        self._markup = markup
        self._called: dict[str, str] = {}

    def record(self, record: Record) -> list[str]:
        """The lines that show one record."""
        if self._markup is not None:
            self._markup.begin_record()
        value = record.record
        match value.get("role"):
            case "_system_prompt":
                body = self._prose(text_of(value.get("content")))
                return [self._heading("system prompt", "magenta", record), *body, ""]
            case "_checkpoint":
                return self.rule(f"checkpoint {value.get('id')}")
            case "_usage":
                tokens = value.get("token_count")
                return self.rule(count(tokens, "token") if isinstance(tokens, int) else "tokens ?")
            case role:
                return self._message(str(role), record)

    def rule(self, text: str) -> list[str]:
        """A horizontal rule with a text."""
        shown = f"── {printable(text, one_line=True)} "
        length = min(self._width or _RULE_CHARS, _RULE_CHARS)
        return [self._style(shown.ljust(length, "─"), "dim"), ""]

    def open_calls(self, calls: Iterable[OpenCall]) -> list[str]:
        """A rule for each call that has no result."""
        return [
            line
            for call in calls
            for line in self.rule(f"no result of {call.name}, called at {call.cursor}")
        ]

    def _message(self, role: str, record: Record) -> list[str]:
        value = record.record
        author = "summary" if is_summary(value) else role
        if role == "tool" and (name := self._called.get(str(value.get("tool_call_id")))):
            author = f"tool · {name}"
        if role == "tool" and value.get("is_error") is True:
            author = f"{author} · failed"
        body = self._content(value.get("content"), is_result=role == "tool")
        calls = value.get("tool_calls")
        if self._markup is not None and body and calls:
            body.append("")
        for call in calls if is_array(calls) else []:
            body += self._call(call)
        return [self._heading(author, _ROLE_STYLES.get(role, "bold"), record), *body, ""]

    def _heading(self, author: str, colour: str, record: Record) -> str:
        by = record.record.get("_by")
        plain = f"{author} · {by}" if isinstance(by, str) else author
        plain = printable(plain, one_line=True)
        cursor = str(record.cursor)
        room = min(self._width or _RULE_CHARS, _RULE_CHARS) - len(plain) - len(cursor)
        at = written_at(record.record)
        if at is not None and room > _TIME_CHARS + 4:
            cursor = f"{moment(at)}  {cursor}"
            room -= _TIME_CHARS + 2
        return self._style(plain, "bold", colour) + " " * max(2, room) + self._style(cursor, "dim")

    def _content(self, content: object, *, is_result: bool) -> list[str]:
        if isinstance(content, str):
            return self._result(content) if is_result else self._prose(content)
        lines: list[str] = []
        for part in content if is_array(content) else []:
            lines += self._part(part, is_result=is_result)
        return lines

    def _part(self, part: object, *, is_result: bool) -> list[str]:
        if not is_object(part):
            return self._text(str(part))
        match part.get("type"):
            case "text":
                text = text_of(part.get("text"))
                return self._result(text) if is_result else self._prose(text)
            case "think":
                return self._thought(text_of(part.get("think")))
            case kind:
                return self._text(f"[{described(str(kind), part)}]", "blue")

    def _prose(self, text: str) -> list[str]:
        """The lines of a text that people and models write as Markdown."""
        if self._markup is not None:
            if any(text.startswith(begin) and text.endswith(end) for begin, end in _HARNESS_MARKS):
                return self._text(text, "dim")
            lines = self._markup.markdown(_with_escapes(text), self._room or _RULE_CHARS)
            if lines is not None:
                return _indented(lines)
            return [*self._text(text), *self._text(_AS_IT_IS, "dim")]
        return self._text(text)

    def _thought(self, text: str) -> list[str]:
        if self._full:
            return [*self._text("▸ thought", "dim"), *self._text(text, "dim")]
        return self._text(f"▸ thought, {count(len(text), 'character')}: {folded(text)}", "dim")

    def _call(self, call: object) -> list[str]:
        function = call.get("function") if is_object(call) else None
        if not is_object(call) or not is_object(function):
            return self._text(f"→ {json.dumps(call, ensure_ascii=False)}", "yellow")
        name = str(function.get("name"))
        self._called[str(call.get("id"))] = name
        if self._markup is not None:
            lines = self._laid_out_call(self._markup, name, function.get("arguments"))
            if lines is not None:
                return lines
        arguments = arguments_of(function.get("arguments"))
        if not self._full and len(arguments) > 4 * FOLDED_CHARS:
            arguments = f"{arguments[: 4 * FOLDED_CHARS]}…"
        return self._text(f"→ {name}({arguments})", "yellow")

    def _laid_out_call(self, markup: Markup, name: str, arguments: object) -> list[str] | None:
        """A call with its arguments as JSON, and texts of several lines below; None if neither."""
        given = split_arguments(arguments)
        if given is None:
            return None
        head = f"→ {printable(name, one_line=True)}"
        styled = self._style(head, "bold", "yellow")
        columns = (self._room or _RULE_CHARS) - len(_INDENT)
        fits = len(head) + 1 + len(given.short) <= columns
        form = given.short if fits else given.long
        lines = markup.code(_with_escapes(form), "json", columns)
        if lines is None:
            return None
        beside, below = ([styled, *lines], []) if fits else ([styled], self._folded(lines))
        shown = [" ".join(beside), *_indented(below)]
        for label, text in given.texts.items():
            shown.append(_INDENT + self._style(f"{printable(label, one_line=True)}:", "dim"))
            shown += _indented(self._folded(self._text(text.rstrip("\n")), indent=_INDENT))
        return _indented(shown)

    def _result(self, text: str) -> list[str]:
        hidden = 0
        if not self._full:
            lines = _with_escapes(text).split("\n")
            if self._width is None:
                # Without a width a line stays one line, so those that are left out need no layout.
                hidden = len(lines[RESULT_LINES_MAX:])
                lines = lines[:RESULT_LINES_MAX]
            text = "\n".join(map(_folded_line, lines))
        return self._folded(self._text(text), hidden, indent=_INDENT)

    def _folded(self, lines: list[str], hidden: int = 0, indent: str = "") -> list[str]:
        """The lines, folded if there are too many, with those that are `hidden` already."""
        rest = len(lines) + hidden - RESULT_LINES_MAX + 1
        if self._full or rest <= 1:
            return lines
        more = f"… {count(rest, 'more line')}, shown with --full"
        return [*lines[: RESULT_LINES_MAX - 1], indent + self._style(more, "dim")]

    def _text(self, text: str, *styles: str) -> list[str]:
        lines = _with_escapes(text).expandtabs(4).split("\n")
        if self._width is not None:
            lines = [piece for line in lines for piece in self._wrapped(line)]
        if styles:
            lines = [self._style(line, *styles) for line in lines]
        return _indented(lines)

    @property
    def _room(self) -> int | None:
        return None if self._width is None else self._width - len(_INDENT)

    def _wrapped(self, line: str) -> list[str]:
        room = self._room
        if room is None or len(line) <= room // 2:
            return [line]
        if len(line) > LINE_WRAPPED_CHARS_MAX:
            return [*_cut(line, room)]
        if self._markup is not None and not line.isascii():
            return self._markup.wrapped(line, room)
        if len(line) <= room:
            return [line]
        # A continuation has the indentation of its line, so that code and lists stay readable.
        indent = line[: len(line) - len(line.lstrip())][: room // 2]
        return textwrap.wrap(
            line, room, replace_whitespace=False, break_on_hyphens=False, subsequent_indent=indent
        ) or [""]  # fmt: skip


def _folded_line(line: str) -> str:
    rest = len(line) - RESULT_LINE_CHARS_MAX
    if rest <= 0:
        return line
    more = count(rest, "more character")
    return f"{line[:RESULT_LINE_CHARS_MAX]}… {more}, shown with --full"


def _with_escapes(text: str) -> str:
    """A text that cannot control a terminal; colours of a tool are no part of it.

    The line ends of other systems are line ends.
    """
    return text if is_plain(text) else printable(without_ansi(text).replace("\r\n", "\n"))


def _cut(line: str, room: int) -> Iterator[str]:
    for start in range(0, len(line), room):
        yield line[start : start + room]


def _indented(lines: list[str]) -> list[str]:
    return [(_INDENT + line).rstrip() for line in lines]
