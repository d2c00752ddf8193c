"""Long text for a person: through the pager once it is higher than the screen."""

import os
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager, suppress
from types import FrameType

from steno.cli.render.output import Output
from steno.cli.stdin import is_typed


class Screen:
    """Lines that wait until it is known whether they fit on the screen.

    Args:
        output: where they go if they do.
        command: the pager, for when they do not.
        rows: of the screen.
    """

    def __init__(self, output: Output, command: list[str], rows: int) -> None:
        self._output = output
        self._command = command
        self._rows = rows
        self._waiting: list[str] = []
        self._pager: subprocess.Popen[bytes] | None = None

    def write(self, line: str) -> None:
        """One line.

        Raises:
            BrokenPipeError: the reader has seen enough.
        """
        if self._pager is not None:
            self._to_pager(line)
            return
        self._waiting.append(line)
        # One row is left for the prompt of the shell.
        if len(self._waiting) >= self._rows:
            self._begin()

    def close(self) -> None:
        """Give out what still waits; return when the reader has left the pager."""
        if self._pager is None:
            for line in self._waiting:
                self._output.write(line)
            return
        with suppress(BrokenPipeError):
            assert self._pager.stdin is not None
            self._pager.stdin.close()
        self._pager.wait()
        signal.signal(signal.SIGINT, signal.default_int_handler)

    def _begin(self) -> None:
        # The paged text has colours, which `less` passes on only with an option.
        environment = {"LESS": "FRX", "LV": "-c", **os.environ}
        try:
            self._pager = subprocess.Popen(  # noqa: S603 (the user's own choice)
                self._command, stdin=subprocess.PIPE, env=environment
            )
        except OSError as error:
            self._output.say(f"the pager {self._command[0]} cannot be run: {error.strerror}")
            self._rows = sys.maxsize
            return
        # Ctrl-C is the pager's now: it ends a search there, and must not tear it from the screen.
        signal.signal(signal.SIGINT, _ignore)
        for line in self._waiting:
            self._to_pager(line)

    def _to_pager(self, line: str) -> None:
        assert self._pager is not None
        assert self._pager.stdin is not None
        self._pager.stdin.write(f"{self._output.fitted(line)}\n".encode(errors="backslashreplace"))
        self._pager.stdin.flush()


@contextmanager
def paged(output: Output, *, wanted: bool) -> Generator[Screen | Output]:
    """What to write the lines of a long text to.

    Output is not paged when the user declines, when a program reads it, without a keyboard,
    or when there is no pager.
    """
    command = _command()
    if not (wanted and command and output.is_terminal and is_typed()):
        yield output
        return
    screen = Screen(output, command, shutil.get_terminal_size().lines - 1)
    try:
        with suppress(BrokenPipeError):
            yield screen
    finally:
        screen.close()


def _command() -> list[str]:
    given = os.environ.get("PAGER")
    if given is not None:
        return shlex.split(given)
    return ["less"] if shutil.which("less") else []


def _ignore(_number: int, _frame: FrameType | None) -> None:
    """Not SIG_IGN, which the pager would inherit."""
