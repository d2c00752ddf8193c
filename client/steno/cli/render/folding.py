"""A text beside its name: what a narrow terminal has no room for goes on below, under the text."""

import textwrap
from collections.abc import Iterator
from typing import Final

from steno.cli.render.output import printable

_ROOM_COLUMNS: Final = 20
"""With less room than this beside the name, folding would be harder to read than a long line."""


def beside(name: str, text: str, margin: int, width: int | None) -> Iterator[str]:
    """The lines of `text`, the first with `name` before it.

    Args:
        name: what it is called, with what separates it; may bear colours, which take no room.
        text: in one line.
        margin: columns that `name` takes.
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
