"""Markdown and highlighted code as lines for a terminal, laid out by rich.

A text of a transcript is never rich's own markup, never HTML, and never a link that a terminal
follows: the target of a link is shown as text.
"""

import signal
import threading
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import lru_cache
from types import FrameType
from typing import ClassVar, Final

from markdown_it import MarkdownIt
from markdown_it.token import Token
from rich import box
from rich.color import ColorSystem
from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.constrain import Constrain
from rich.markdown import (
    CodeBlock,
    Heading,
    ListItem,
    Markdown,
    MarkdownElement,
    Paragraph,
    TableElement,
)
from rich.padding import Padding
from rich.segment import Segment
from rich.syntax import Syntax
from rich.table import Table
from rich.text import Text
from rich.theme import Theme

from steno_cli.command_limits import CODE_CHARS_MAX, MARKDOWN_CHARS_MAX, RECORD_RENDER_S_MAX
from steno_present.lexers import lexer_named
from steno_present.safe_text import printable

# Without HTML: a tag in a text is text.
_PARSER: Final = MarkdownIt("commonmark", {"html": False}).enable(["table", "strikethrough"])

_THEME: Final = Theme(
    {
        # The colours of the terminal, which its owner can read; no backgrounds.
        **{f"markdown.h{level}": "bold" for level in range(1, 7)},
        "markdown.code": "cyan",
        "markdown.block_quote": "dim",
        "markdown.item.bullet": "bold",
        "markdown.item.number": "bold",
        "markdown.hr": "dim",
        "markdown.link": "underline",
        "markdown.address": "blue",
        "markdown.s": "strike",
    }
)

_REPEAT_S: Final = 0.1
"""Between two interruptions: the first is lost if it hits a callback that ignores exceptions."""

_CODE_THEME: Final = "ansi_dark"
"""The sixteen colours of the terminal."""

_PROSE_COLUMNS_MAX: Final = 100
"""Longest line of a paragraph: longer ones are hard to read."""

_CODE_INDENT: Final = 2
_LEVEL_COLUMNS: Final = 4
"""Columns that a level of nesting takes at most: the bar of a quotation."""

_TEXT_COLUMNS_MIN: Final = 10
"""Columns that the innermost text needs."""

_CELL_COLUMNS_MIN: Final = 6
"""Columns that a cell of a table needs, its border included."""

_WIDTHS_KEPT_MAX: Final = 4
"""Consoles that are kept: one is built as slowly as a short text is laid out."""

Limit = Callable[[], AbstractContextManager[None]]
"""Makes the limit for the time of one text: a context manager that interrupts its block."""


class TimeIsUp(BaseException):
    """The work took longer than its limit; no `except Exception` of a library catches it."""


@contextmanager
def time_limit(seconds: float) -> Generator[None]:
    """End the block after this time, also within a regular expression.

    Only a signal interrupts a search of `re`, and only the main thread receives signals: another
    thread has no limit. A timer that runs already is continued afterwards.

    Raises:
        TimeIsUp: the block was interrupted.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    handler = signal.signal(signal.SIGALRM, _end)
    timer = signal.setitimer(signal.ITIMER_REAL, seconds, _REPEAT_S)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        signal.signal(signal.SIGALRM, handler)
        signal.setitimer(signal.ITIMER_REAL, *timer)


def _end(number: int, frame: FrameType | None) -> None:  # noqa: ARG001  # the handler of a signal
    raise TimeIsUp


class NotRendered(Exception):
    """A text has no rendering within the limits."""


class RichMarkup:
    """Renders texts as lines of a terminal."""

    def __init__(self, *, has_colours: bool, limit: Limit = nullcontext) -> None:
        self._colours = ColorSystem.STANDARD if has_colours else None
        self._limit = limit
        self._spent_s = 0.0

    def begin_record(self) -> None:
        """The texts that follow are those of another record."""
        self._spent_s = 0.0

    def markdown(self, text: str, columns: int) -> list[str] | None:
        """The lines of a Markdown text; None if it has to be shown as it is."""
        if len(text) > MARKDOWN_CHARS_MAX:
            return None
        return self._lines(lambda: _Document(text, columns), columns)

    def code(self, text: str, language: str, columns: int) -> list[str] | None:
        """The lines of a program or of data; None if they have to be shown as they are."""
        if len(text) > CODE_CHARS_MAX:
            return None
        return self._lines(lambda: highlighted(text, language), columns)

    def wrapped(self, line: str, columns: int) -> list[str]:
        """A line of text in pieces that fit; wide characters take two columns."""
        return [piece.plain for piece in Text(line).wrap(_console(columns), columns)]

    def _lines(self, make: Callable[[], RenderableType], columns: int) -> list[str] | None:
        if self._spent_s > RECORD_RENDER_S_MAX:
            return None
        begun = time.monotonic()
        try:
            with self._limit():
                lines = _console(columns).render_lines(make(), pad=False)
                shown = [self._styled(line).rstrip() for line in lines]
        except (Exception, TimeIsUp):
            # Whatever three libraries make of a hostile text: the text itself can be shown.
            return None
        finally:
            self._spent_s += time.monotonic() - begun
        return _without_blank_ends(shown)

    def _styled(self, line: Iterable[Segment]) -> str:
        return "".join(self._piece(segment) for segment in line if not segment.control)

    def _piece(self, segment: Segment) -> str:
        # Escaped here and not before: a reference such as &#27; is a character only now.
        text = printable(segment.text, one_line=True)
        if segment.style is None or not text.strip():
            return text
        return segment.style.render(text, color_system=self._colours)


@lru_cache(_WIDTHS_KEPT_MAX)
def _console(columns: int) -> Console:
    """A console that looks at nothing but its arguments."""
    return Console(
        width=columns, height=1, force_terminal=True, color_system="standard",
        legacy_windows=False, theme=_THEME, emoji=False, markup=False, highlight=False,
        _environ={},
    )  # fmt: skip


def highlighted(text: str, language: str) -> Text:
    """A program in colours; in an unknown language without."""
    lexer = lexer_named(language)
    text = text.expandtabs(4)
    if lexer is None or len(text) > CODE_CHARS_MAX:
        return Text(text)
    shown = Syntax(text, lexer, theme=_CODE_THEME, word_wrap=True).highlight(text)
    shown.rstrip()
    return shown


class _Paragraph(Paragraph):
    """A paragraph that is no wider than a page of a book; code and tables take all columns."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        yield Constrain(self.text, _PROSE_COLUMNS_MAX)


class _Heading(Heading):
    """A heading with its marks, which show its level; rich centres it and draws a box."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        yield Text.assemble((f"{'#' * int(self.tag[1:])} ", "dim"), self.text)


class _Code(CodeBlock):
    """A block of code, indented and without a background."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        code = highlighted(str(self.text).rstrip("\n"), self.lexer_name)
        yield Padding(code, (0, 0, 0, _CODE_INDENT))


class _Item(ListItem):
    """An item of a list, whose number has its dot."""

    def render_number(
        self, console: Console, options: ConsoleOptions, number: int, last_number: int
    ) -> RenderResult:
        numeral = f"{number}. ".rjust(len(str(last_number)) + 2)
        pieces = super().render_number(console, options, number, last_number)
        for place, piece in enumerate(pieces):
            if place == 0 and isinstance(piece, Segment):
                yield Segment(numeral, piece.style)
            else:
                yield piece


class _Table(TableElement):
    """A table whose cells are wrapped; rich cuts long words."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        titles = [] if self.header is None or self.header.row is None else self.header.row.cells
        if len(titles) * _CELL_COLUMNS_MIN > options.max_width:
            raise NotRendered
        table = Table(box=box.SIMPLE, header_style="bold", show_edge=False)
        for title in titles:
            justify = title.content.justify or "default"
            table.add_column(title.content, justify=justify, overflow="fold")
        for row in [] if self.body is None else self.body.rows:
            table.add_row(*(cell.content for cell in row.cells))
        yield table


class _Document(Markdown):
    """A Markdown text as rich lays it out, with our elements for headings, code and tables."""

    elements: ClassVar[dict[str, type[MarkdownElement]]] = {
        **Markdown.elements,
        "paragraph_open": _Paragraph,
        "heading_open": _Heading,
        "fence": _Code,
        "code_block": _Code,
        "list_item_open": _Item,
        "table_open": _Table,
    }
    inlines = Markdown.inlines | {"link", "address"}

    def __init__(self, text: str, columns: int) -> None:
        super().__init__("")
        tokens = _PARSER.parse(text)
        deepest = max((token.level for token in tokens), default=0)
        if deepest * _LEVEL_COLUMNS + _TEXT_COLUMNS_MIN > columns:
            raise NotRendered
        self.parsed = [_prepared(token) for token in tokens]


def _prepared(token: Token) -> Token:
    if token.children:
        token.children = [*_shown(token.children)]
    return token


def _shown(tokens: Sequence[Token]) -> Iterator[Token]:
    """The tokens of a line of text, with line breaks as they are, and links and images as text."""
    targets: list[str] = []
    written = ""
    for token in tokens:
        match token.type:
            case "softbreak":
                # Agents write lines as they mean them.
                yield Token("hardbreak", "br", 0)
            case "image":
                yield _text(f"[image: {token.content}]")
                yield from _address(str(token.attrs.get("src", "")), "")
            case "link_open":
                targets.append(str(token.attrs.get("href", "")))
                written = ""
                yield Token("link_open_shown", "link", 1)
            case "link_close":
                yield Token("link_close_shown", "link", -1)
                yield from _address(targets.pop() if targets else "", written)
            case _:
                written += token.content
                yield token


def _address(target: str, written: str) -> Iterator[Token]:
    """The target of a link, unless it is the text of the link."""
    if target in {written, f"mailto:{written}"}:
        return
    yield Token("address_open", "address", 1)
    yield _text(f" <{target}>")
    yield Token("address_close", "address", -1)


def _text(content: str) -> Token:
    return Token("text", "", 0, content=content)


def _without_blank_ends(lines: list[str]) -> list[str]:
    first, last = 0, len(lines)
    while first < last and not lines[first]:
        first += 1
    while last > first and not lines[last - 1]:
        last -= 1
    return lines[first:last]
