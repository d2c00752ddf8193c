"""Lines for a reader: on the screen if they fit there, and otherwise through a pager."""

import os
import shlex
import shutil
import subprocess
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from typing import Final

from steno_cli.render.output import Output

_PAGER: Final = "less"

_LESS: Final = "FRX"
"""Options of less: end on a short text, pass colours on, leave the text on the screen."""


class _ReaderLeft(Exception):
    """The reader left the pager before the last line."""


@contextmanager
def paged(output: Output) -> Generator[Callable[[str], None]]:
    """The function that writes the lines of a long text, one or several at a time.

    The pager starts with the first line that does not fit on the screen, and shows the lines before
    the later ones exist. When the reader leaves the pager, or ends the reading with Ctrl-C, the
    block ends there. An error in the block is raised after the lines before it were shown.
    """
    screen = _Screen(output)
    try:
        yield screen.write
    except _ReaderLeft:
        pass
    except KeyboardInterrupt:
        if not screen.has_pager:
            raise
    finally:
        screen.close()


class _Screen:
    """The lines that fit on the screen, and the pager for more."""

    def __init__(self, output: Output) -> None:
        self._output = output
        self._held: list[str] = []
        # The prompt of the shell takes one row.
        self._rows = shutil.get_terminal_size().lines - 1
        self._is_full = False
        self._pager: subprocess.Popen[bytes] | None = None

    @property
    def has_pager(self) -> bool:
        """Whether the pager was started."""
        return self._pager is not None

    def write(self, text: str) -> None:
        """Write lines.

        Raises:
            _ReaderLeft: the reader left the pager.
        """
        for line in text.split("\n"):
            self._write_line(line)

    def _write_line(self, line: str) -> None:
        if not self._is_full:
            self._held.append(line)
            if len(self._held) < self._rows:
                return
            self._is_full = True
            self._pager = _started(self._output)
            self._show_held()
            return
        self._put(line)

    def close(self) -> None:
        """Show the lines that fit on the screen, or wait until the reader leaves the pager."""
        if self._pager is None:
            self._show_held()
            return
        assert self._pager.stdin is not None
        with suppress(BrokenPipeError):
            self._pager.stdin.close()
        while True:
            try:
                self._pager.wait()
            except KeyboardInterrupt:
                # Ctrl-C reaches the pager too, which decides what it means.
                continue
            return

    def _show_held(self) -> None:
        for line in self._held:
            self._put(line)
        self._held.clear()
        if self._pager is not None and self._pager.stdin is not None:
            self._flush()

    def _put(self, line: str) -> None:
        if self._pager is None:
            self._output.write(line)
            return
        assert self._pager.stdin is not None
        try:
            self._pager.stdin.write(self._output.encoded(line))
        except BrokenPipeError:
            raise _ReaderLeft from None

    def _flush(self) -> None:
        assert self._pager is not None
        assert self._pager.stdin is not None
        try:
            self._pager.stdin.flush()
        except BrokenPipeError:
            raise _ReaderLeft from None


def _started(output: Output) -> "subprocess.Popen[bytes] | None":
    """The running pager; None if there is none, which is reported if the reader named it."""
    named = os.environ.get("PAGER")
    if not named and os.environ.get("TERM") == "dumb":
        return None
    command = named or _PAGER
    words = shlex.split(command)
    if not words or shutil.which(words[0]) is None:
        if named:
            output.say(f"the pager {named} cannot be run: it is not on the PATH")
        return None
    output.flush()
    environment = {"LESS": _LESS, **os.environ}
    return subprocess.Popen(words, stdin=subprocess.PIPE, env=environment)  # noqa: S603
