"""Columns of text: tables, and a text folded beside its name."""

import textwrap
from collections.abc import Iterator, Sequence
from typing import Final

from steno.cli.render.output import printable

_ROOM_COLUMNS: Final = 20
"""In less room than this beside the name, a folded text is harder to read than a long line."""


def table(rows: Sequence[Sequence[str]], right: frozenset[int] = frozenset()) -> list[str]:
    """Rows in columns of equal width, two spaces apart; the columns in `right` are right-aligned.

    >>> table([("a", "1"), ("bcd", "20")], right=frozenset({1}))
    ['a     1', 'bcd  20']
    """
    if not rows:
        return []
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return [
        "  ".join(
            cell.rjust(width) if column in right else cell.ljust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]


def shortened(text: str, width: int | None) -> str:
    """`text` in at most `width` characters, with a sign that more follows; None: in full.

    >>> shortened("stenographer", 5)
    'sten…'
    """
    if width is None or len(text) <= width:
        return text
    return f"{text[: max(0, width - 1)]}…"


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
