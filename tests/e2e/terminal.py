"""A program on a terminal of its own that redraws its whole screen."""

import fcntl
import os
import re
import select
import signal
import struct
import subprocess
import termios
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Self

from support.daemon_log import WAIT_S

_HOME = "\x1b[H"
_COLOURS = re.compile(r"\x1b\[[\d;]*m")


class TerminalProgram:
    """A program that draws each screen from the top left corner, as rich's Live does.

    Args:
        words: its command line.
        environment: its environment.
        columns: the width of the terminal.
        lines: its height.

    Attributes:
        written: everything that it wrote so far.
    """

    def __init__(
        self,
        words: Sequence[str],
        environment: Mapping[str, str],
        columns: int = 80,
        lines: int = 24,
    ) -> None:
        self.written = ""
        self._controller, self._terminal = os.openpty()
        self.resize(columns, lines)
        self.modes = self._modes
        kept = {name: value for name, value in environment.items() if name not in _SIZES}
        # In a session of its own, whose terminal sends it the signals of keys and sizes.
        self._process = subprocess.Popen(
            ["setsid", "--ctty", *words], env={**kept, "TERM": "xterm-256color"},
            stdin=self._terminal, stdout=self._terminal, stderr=self._terminal,
        )  # fmt: skip

    @property
    def pid(self) -> int:
        """Its process."""
        return self._process.pid

    @property
    def _modes(self) -> list[Any]:
        return termios.tcgetattr(self._terminal)

    @property
    def are_modes_restored(self) -> bool:
        """Whether the terminal has the modes of the beginning."""
        return self._modes == self.modes

    @property
    def screen(self) -> str:
        """The last whole screen without colours."""
        frames = self.written.split(_HOME)
        # The last one may not be whole yet.
        shown = frames[-2] if len(frames) > 2 else ""
        return "\n".join(line.rstrip() for line in _COLOURS.sub("", shown).splitlines())

    def wait_for(self, fact: Callable[[str], object]) -> str:
        """Return the first screen for which the fact holds."""
        deadline = time.monotonic() + WAIT_S
        while not fact(self.screen):
            assert time.monotonic() < deadline, self.written[-4000:]
            self._read()
        return self.screen

    def wait_for_text(self, text: str) -> None:
        """Wait until it has written a text."""
        deadline = time.monotonic() + WAIT_S
        while text not in self.written:
            assert time.monotonic() < deadline, self.written[-4000:]
            self._read()

    def press(self, keys: str) -> None:
        """Type keys."""
        os.write(self._controller, keys.encode())

    def resize(self, columns: int, lines: int) -> None:
        """Change the size of the terminal."""
        size = struct.pack("HHHH", lines, columns, 0, 0)
        fcntl.ioctl(self._controller, termios.TIOCSWINSZ, size)

    def wait(self) -> int:
        """Wait for its end; returns its exit code."""
        deadline = time.monotonic() + WAIT_S
        while self._process.poll() is None:
            assert time.monotonic() < deadline, self.written[-4000:]
            self._read()
        while self._read():
            pass
        return self._process.returncode

    def _read(self) -> bool:
        """Take in what it has written; False if that is nothing for a moment."""
        readable, _, _ = select.select([self._controller], [], [], 0.05)
        if readable:
            self.written += os.read(self._controller, 1 << 16).decode(errors="replace")
        return bool(readable)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGKILL)
            self._process.wait()
        os.close(self._terminal)
        os.close(self._controller)


_SIZES = frozenset({"COLUMNS", "LINES"})
"""Variables that would hide the size of the terminal."""
