"""Pictures of terminals as SVG, drawn by rich with the fonts of their readers.

A page of documentation fetches nothing, so a picture names no font of another machine.
"""

import inspect
import re
from collections.abc import Iterable
from io import StringIO
from typing import Final

from rich.ansi import AnsiDecoder
from rich.console import Console
from rich.text import Text

_FONTS: Final = "ui-monospace, SFMono-Regular, Menlo, Consolas, DejaVu Sans Mono, monospace"


def terminal_picture(
    lines: Iterable[str], columns: int, *, typed: str, name: str, made_by: str
) -> str:
    """The picture of a terminal.

    Args:
        lines: its lines, with the escape sequences of their colours.
        columns: its width.
        typed: the command that was typed, for the first line and the title.
        name: the name of the picture.
        made_by: the command that makes it again.
    """
    console = Console(record=True, width=columns, file=StringIO(), force_terminal=True)
    console.print(Text.assemble(("$ ", "bold green"), (typed, "bold")))
    decoder = AnsiDecoder()
    for line in lines:
        # Within a line the decoder keeps what follows the last return, as a terminal does.
        console.print(decoder.decode_line(line), no_wrap=True)
    picture = console.export_svg(title=typed, code_format=_format(made_by), unique_id=name)
    return "\n".join(line.rstrip() for line in picture.splitlines()) + "\n"


def _format(made_by: str) -> str:
    """rich's picture without the fonts that it fetches and without its advertisement."""
    own = inspect.signature(Console.export_svg).parameters["code_format"].default
    fonts = re.sub(r"@font-face \{\{.*?\}\}\s*", "", own, flags=re.DOTALL)
    named = re.sub(r"font-family: [^;]*;", f"font-family: {_FONTS};", fonts)
    return re.sub(r"<!--.*?-->\s*", f"<!-- Made by: {made_by} -->\n", named, flags=re.DOTALL)
