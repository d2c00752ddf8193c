"""Long text for a terminal: through the pager once it is higher than the screen."""

import os
import shlex
import shutil
from collections.abc import Generator
from contextlib import contextmanager

from steno.cli.render.output import Output
from steno.cli.stdin import is_typed
from steno_protocol.errors import StenoError


class Screen:
    """Lines that are paged if they do not fit on the screen.

    Args:
        output: where they go if they fit.
    """

    def __init__(self, output: Output) -> None:
        self._output = output
        self._lines: list[str] = []

    def write(self, line: str) -> None:
        """One line."""
        self._lines.append(self._output.fitted(line))

    def close(self) -> None:
        """Show the lines; return when the user has left the pager."""
        pager = os.environ.get("PAGER", "less")
        # One row is left for the prompt of the shell.
        is_long = len(self._lines) >= shutil.get_terminal_size().lines - 1
        if is_long and os.environ.get("PAGER") and not _is_there(pager):
            self._output.say(f"the pager {pager} cannot be run: it is not on the PATH")
        if not (is_long and _is_there(pager)):
            for line in self._lines:
                self._output.write(line)
            return
        # Imported only now: it takes as long as a short command.
        import pydoc  # noqa: PLC0415

        # The text has colours, which `less` passes on only with an option.
        os.environ.setdefault("LESS", "FRX")
        self._output.flush()
        pydoc.pager("".join(f"{line}\n" for line in self._lines))


@contextmanager
def paged(output: Output, *, wanted: bool) -> Generator[Screen | Output]:
    """What to write the lines of a long text to.

    Output is not paged when the user declines, when a program reads it, or without a keyboard.
    """
    if not (wanted and output.is_terminal and is_typed()):
        yield output
        return
    screen = Screen(output)
    try:
        yield screen
    except StenoError:
        # What came before it is worth a look, too.
        screen.close()
        raise
    screen.close()


def _is_there(pager: str) -> bool:
    words = shlex.split(pager)
    return bool(words) and shutil.which(words[0]) is not None
