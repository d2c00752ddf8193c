"""The terminal of a live screen: its picture, its keys and its state before."""

import io
import os
import signal
import sys
import termios
import tty
from typing import Any, Self, cast

import anyio
from rich.console import Console, RenderableType
from rich.live import Live

_KEYS_BYTES = 64
"""Bytes of one read of keys; nobody types faster."""


def new_console() -> Console:
    """The console of this process; it interprets nothing in a text."""
    stdout = cast("object", sys.stdout)
    if isinstance(stdout, io.TextIOWrapper):
        stdout.reconfigure(errors="backslashreplace")
    return Console(markup=False, emoji=False, highlight=False)


class Terminal:
    """A terminal that shows one picture at a time, and is as before at the end of the block."""

    def __init__(self) -> None:
        self._console = new_console()
        self._live = Live(
            console=self._console, screen=True, auto_refresh=False,
            redirect_stdout=False, redirect_stderr=False,
        )  # fmt: skip
        self._modes: list[Any] | None = None

    @property
    def has_keys(self) -> bool:
        """Whether somebody can type."""
        return sys.stdin is not None and sys.stdin.isatty()

    @property
    def size(self) -> tuple[int, int]:
        """Its columns and lines now."""
        return self._console.width, self._console.height

    def __enter__(self) -> Self:
        if self.has_keys:
            self._modes = termios.tcgetattr(sys.stdin)
            tty.setcbreak(sys.stdin)
        self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._live.stop()
        if self._modes is not None:
            # Keys that were typed for the screen are not for the shell.
            termios.tcsetattr(sys.stdin, termios.TCSAFLUSH, self._modes)

    def draw(self, picture: RenderableType) -> None:
        """Show a picture instead of the one before."""
        self._live.update(picture, refresh=True)

    def suspend(self) -> None:
        """Stop the process as Ctrl-Z does; returns when it goes on."""
        self.__exit__(None, None, None)
        os.kill(os.getpid(), signal.SIGSTOP)
        self.__enter__()

    async def keys(self) -> str:
        """Wait for keys, and return them; empty at the end of the terminal."""
        await anyio.wait_readable(sys.stdin)
        return os.read(sys.stdin.fileno(), _KEYS_BYTES).decode(errors="replace")
