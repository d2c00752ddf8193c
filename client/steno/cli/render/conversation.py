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
from collections.abc import Callable
from typing import Final

from steno.cli.render.messages import (
    FOLDED_CHARS,
    arguments_of,
    described,
    folded,
    text_of,
    written_at,
)
from steno.cli.render.output import printable
from steno.cli.render.wording import count, moment
from steno.values import Record
from steno_protocol._json import is_array, is_object

Style = Callable[..., str]
"""Adds colours to a text or returns it unchanged: `style(text, "bold", "cyan")`."""

_INDENT: Final = "  "
_RESULT_LINES: Final = 12
"""A longer result of a tool is folded."""

_RULE_CHARS: Final = 60
"""Length of a rule without a terminal width."""

_TIME_CHARS: Final = 19
"""Characters of a date and time, which a narrow terminal omits."""

_ROLE_STYLES: Final = {"user": "green", "assistant": "cyan", "tool": "yellow", "system": "magenta"}


class Conversation:
    """Renders the records of one session in order.

    Args:
        width: columns of the terminal, None for lines of any length.
        style: adds colours.
        full: fold nothing.
    """

    def __init__(self, width: int | None, style: Style, *, full: bool = False) -> None:
        self._width = None if width is None else max(width, 20)
        self._style = style
        self._full = full
        self._called: dict[str, str] = {}

    def record(self, record: Record) -> list[str]:
        """The lines that show one record."""
        value = record.record
        match value.get("role"):
            case "_system_prompt":
                body = self._text(text_of(value.get("content")))
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

    def _message(self, role: str, record: Record) -> list[str]:
        value = record.record
        author = role
        if role == "tool" and (name := self._called.get(str(value.get("tool_call_id")))):
            author = f"tool · {name}"
        body = self._content(value.get("content"), is_result=role == "tool")
        calls = value.get("tool_calls")
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
            return self._result(content) if is_result else self._text(content)
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
                return self._result(text) if is_result else self._text(text)
            case "think":
                return self._thought(text_of(part.get("think")))
            case kind:
                return self._text(f"[{described(str(kind), part)}]", "blue")

    def _thought(self, text: str) -> list[str]:
        if self._full:
            return self._text(text, "dim")
        return self._text(f"▸ thought, {count(len(text), 'character')}: {folded(text)}", "dim")

    def _call(self, call: object) -> list[str]:
        function = call.get("function") if is_object(call) else None
        if not is_object(call) or not is_object(function):
            return self._text(f"→ {json.dumps(call, ensure_ascii=False)}", "yellow")
        name = str(function.get("name"))
        self._called[str(call.get("id"))] = name
        arguments = arguments_of(function.get("arguments"))
        if not self._full and len(arguments) > 4 * FOLDED_CHARS:
            arguments = f"{arguments[: 4 * FOLDED_CHARS]}…"
        return self._text(f"→ {name}({arguments})", "yellow")

    def _result(self, text: str) -> list[str]:
        lines = self._text(text)
        if self._full or len(lines) <= _RESULT_LINES:
            return lines
        rest = len(lines) - _RESULT_LINES + 1
        more = f"… {count(rest, 'more line')}, shown with --full"
        return [*lines[: _RESULT_LINES - 1], *self._text(more, "dim")]

    def _text(self, text: str, *styles: str) -> list[str]:
        lines = [piece for line in printable(text).split("\n") for piece in self._wrapped(line)]
        return [
            (_INDENT + (self._style(line, *styles) if styles else line)).rstrip() for line in lines
        ]

    def _wrapped(self, line: str) -> list[str]:
        line = line.expandtabs(4)
        room = None if self._width is None else self._width - len(_INDENT)
        if room is None or len(line) <= room:
            return [line]
        # A continuation has the indentation of its line, so that code and lists stay readable.
        indent = line[: len(line) - len(line.lstrip())][: room // 2]
        return textwrap.wrap(
            line, room, replace_whitespace=False, break_on_hyphens=False, subsequent_indent=indent
        ) or [""]  # fmt: skip
