"""Columns of text: tables, and a text folded beside its name."""

import textwrap
import unicodedata
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from steno_cli.render.output import Output
from steno_present.safe_text import printable

_ROOM_COLUMNS: Final = 20
"""In less room than this beside the name, a folded text is harder to read than a long line."""


class Column(NamedTuple):
    """A column of a table on a terminal.

    Attributes:
        title: its title in the first line.
        styles: the styles of its cells, see `Output.style`.
        is_right: its cells are right-aligned.
    """

    title: str
    styles: tuple[str, ...] = ()
    is_right: bool = False


def lines_of(
    output: Output, columns: Sequence[Column], rows: Sequence[Sequence[str]]
) -> Iterator[str]:
    """The lines of a table: with titles and colours on a terminal, plain rows in full elsewhere."""
    if not rows:
        return
    if output.is_terminal:
        yield from terminal_table(output, columns, rows)
        return
    right = frozenset(at for at, column in enumerate(columns) if column.is_right)
    yield from table(rows, right)


def terminal_table(
    output: Output, columns: Sequence[Column], rows: Sequence[Sequence[str]]
) -> Iterator[str]:
    """The lines of a table with titles and colours; the terminal's edge cuts its last column."""
    widths = [
        max(columns_of(text) for text in (column.title, *(row[at] for row in rows)))
        for at, column in enumerate(columns)
    ]
    yield _fitted(output, columns, widths, [column.title for column in columns], is_title=True)
    for row in rows:
        yield _fitted(output, columns, widths, row)


def _fitted(
    output: Output,
    columns: Sequence[Column],
    widths: Sequence[int],
    row: Sequence[str],
    *,
    is_title: bool = False,
) -> str:
    """One line of a table, cut at the edge of the terminal; styles take no room."""
    parts: list[str] = []
    room = output.width
    for column, width, text in zip(columns, widths, row, strict=True):
        is_last = len(parts) == len(columns) - 1
        padding = " " * (width - columns_of(text))
        cell = padding + text if column.is_right else text if is_last else text + padding
        cell = shortened(cell, room)
        room = None if room is None else max(0, room - columns_of(cell) - 2)
        styles = ("bold",) if is_title else column.styles
        parts.append(output.style(cell, *styles) if styles else cell)
        if room == 0:
            break
    return "  ".join(parts).rstrip()


def columns_of(text: str) -> int:
    """The columns of a terminal that a text takes.

    >>> columns_of("steno"), columns_of("速記")
    (5, 4)
    """
    if text.isascii():
        return len(text)
    return sum(map(_columns_of_character, text))


def _columns_of_character(character: str) -> int:
    if unicodedata.combining(character) or unicodedata.category(character) in {"Cf", "Me"}:
        return 0
    return 2 if unicodedata.east_asian_width(character) in {"W", "F"} else 1


def table(rows: Sequence[Sequence[str]], right: frozenset[int] = frozenset()) -> list[str]:
    """Rows in columns of equal width, two spaces apart; the columns in `right` are right-aligned.

    >>> table([("a", "1"), ("bcd", "20")], right=frozenset({1}))
    ['a     1', 'bcd  20']
    """
    if not rows:
        return []
    widths = [max(columns_of(row[column]) for row in rows) for column in range(len(rows[0]))]
    return ["  ".join(_padded(row, widths, right)).rstrip() for row in rows]


def _padded(row: Sequence[str], widths: Sequence[int], right: frozenset[int]) -> Iterator[str]:
    for column, (cell, width) in enumerate(zip(row, widths, strict=True)):
        padding = " " * (width - columns_of(cell))
        yield padding + cell if column in right else cell + padding


def shortened(text: str, width: int | None) -> str:
    """`text` in at most `width` columns, with a sign that more follows; None: in full.

    >>> shortened("stenographer", 5), shortened("速記者", 5)
    ('sten…', '速記…')
    """
    if width is None or columns_of(text) <= width:
        return text
    room = width - 1
    for at, character in enumerate(text):
        room -= _columns_of_character(character)
        if room < 0:
            return f"{text[:at]}…" if width > 0 else ""
    return text


def beside(name: str, text: str, margin: int, width: int | None) -> Iterator[str]:
    """The lines of `text`, the first one with `name` before it.

    Args:
        name: the name with its separator; colours in it take no room.
        text: the text, shown on one line if there is room.
        margin: columns of `name`.
        width: columns of the terminal; None folds nothing.
    """
    shown = printable(text, one_line=True)
    room = 0 if width is None else width - margin
    if room < _ROOM_COLUMNS or len(shown) <= room:
        yield name + shown
        return
    first, *rest = textwrap.wrap(shown, room, break_on_hyphens=False)
    yield name + first
    yield from (" " * margin + line for line in rest)
