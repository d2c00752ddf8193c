"""The loop of `steno top`: ask, compare, draw, and obey keys and signals."""

import os
import re
import signal
import sys
import termios
import time
import tty
from typing import Any, Final, Self

import anyio
import anyio.abc
from rich.live import Live

from steno_cli.exits import Exit
from steno_cli.render.output import Output
from steno_cli.top.activity import SORTS, Report, activity
from steno_cli.top.screen import Screen, new_console
from steno_cli.top.source import Source
from steno_present.wording import moment
from steno_protocol.errors import StenoError

_KEYS_BYTES = 64
"""Bytes of one read of keys; nobody types faster."""

_OTHER_KEYS: Final = re.compile(r"\x1b(?:\[[\d;]*[A-Za-z~]|O.|.)?")
"""Keys such as arrows, which send an escape and several characters."""

_ENDING: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_SIGNALS: Final = (*_ENDING, signal.SIGWINCH, signal.SIGTSTP)


class Terminal:
    """A live screen of rich without echo of keys; the terminal is as before after the block.

    Attributes:
        live: the screen.
        has_keys: whether somebody can type.
    """

    def __init__(self) -> None:
        self.live = Live(
            console=new_console(), screen=True, auto_refresh=False,
            redirect_stdout=False, redirect_stderr=False,
        )  # fmt: skip
        self.has_keys = sys.stdin is not None and sys.stdin.isatty()
        self._modes: list[Any] = []

    def __enter__(self) -> Self:
        if self.has_keys:
            self._modes = termios.tcgetattr(sys.stdin)
            tty.setcbreak(sys.stdin)
        self.live.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.live.stop()
        if self._modes:
            # Keys that were typed for the screen are not for the shell.
            termios.tcsetattr(sys.stdin, termios.TCSAFLUSH, self._modes)

    def suspend(self) -> None:
        """Stop the process as Ctrl-Z does; returns when it goes on."""
        self.__exit__()
        os.kill(os.getpid(), signal.SIGSTOP)
        self.__enter__()


class Watch:
    """A live screen."""

    def __init__(
        self,
        source: Source,
        output: Output,
        interval_s: float,
        order: str,
        sessions_max: int | None,
    ) -> None:
        self._source = source
        self._terminal = Terminal()
        self._output = output
        self._interval_s = interval_s
        self._order = order
        self._sessions_max = sessions_max
        self._before: Report | None = None
        self._last: Report | None = None
        self._away_since: float | None = None
        self._code = Exit.DONE

    async def run(self) -> Exit:
        """Show the screen until a key or a signal ends it.

        Raises:
            StenoError: the daemon refuses to report.
        """
        refused: StenoError | None = None
        async with anyio.create_task_group() as tasks:
            # The signals first: from here on each of them restores the terminal.
            await tasks.start(self._obey_signals, tasks.cancel_scope)
            with self._terminal:
                if self._terminal.has_keys:
                    tasks.start_soon(self._obey_keys, tasks.cancel_scope)
                try:
                    await self._poll()
                except StenoError as error:
                    # Out of the block it would come in a group.
                    refused = error
            tasks.cancel_scope.cancel()
        if refused is not None:
            raise refused
        return self._code

    async def _poll(self) -> None:
        """Ask and draw until the daemon refuses."""
        due = anyio.current_time()
        while True:
            await self._ask()
            self._draw()
            due = max(due + self._interval_s, anyio.current_time())
            await anyio.sleep_until(due)

    async def _ask(self) -> None:
        report = await self._source.report()
        if report is None:
            self._away_since = self._away_since or time.time()
            return
        self._before, self._last, self._away_since = self._last, report, None
        self._source.forget_closed(report)
        await self._source.learn_titles(row.session for row in self._screen(report).sessions)

    def _screen(self, last: Report) -> Screen:
        trouble = ""
        if self._away_since is not None:
            since = moment(self._away_since)[11:]
            trouble = f" no answer since {since}: waiting for the daemon "
        size = self._terminal.live.console.size
        return Screen(
            self._source.daemon, activity(self._before, last, self._order), last.stats,
            self._source.titles, trouble=trouble, order=self._order,
            sessions_max=self._sessions_max,
            keys="q: quit, s: order" if self._terminal.has_keys else "Ctrl-C: quit",
            width=size.width, height=size.height, fitted=self._output.fitted,
        )  # fmt: skip

    def _draw(self) -> None:
        if self._last is not None:
            self._terminal.live.update(self._screen(self._last), refresh=True)

    async def _obey_keys(self, scope: anyio.CancelScope) -> None:
        orders = list(SORTS)
        while True:
            await anyio.wait_readable(sys.stdin)
            typed = os.read(sys.stdin.fileno(), _KEYS_BYTES).decode(errors="replace")
            keys = _OTHER_KEYS.sub("", typed)
            if not typed or "q" in keys:
                break
            at = orders.index(self._order) + keys.count("s")
            self._order = orders[at % len(orders)]
            self._draw()
        scope.cancel()

    async def _obey_signals(
        self,
        scope: anyio.CancelScope,
        *,
        task_status: anyio.abc.TaskStatus[None] = anyio.TASK_STATUS_IGNORED,
    ) -> None:
        with anyio.open_signal_receiver(*_SIGNALS) as signals:
            task_status.started()
            async for number in signals:
                if number in _ENDING:
                    self._code = Exit.INTERRUPTED
                    scope.cancel()
                elif number == signal.SIGTSTP:
                    self._terminal.suspend()
                self._draw()
