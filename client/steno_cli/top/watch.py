"""The loop of `steno top`: ask, compare, draw, and obey keys and signals."""

import itertools
import re
import signal
import time
from typing import Final

import anyio
import anyio.abc

from steno_cli.exits import Exit
from steno_cli.render.output import Output
from steno_cli.top.activity import SORTS, Report, activity
from steno_cli.top.screen import Frame, picture, room
from steno_cli.top.source import Source
from steno_cli.top.terminal import Terminal
from steno_present.wording import moment
from steno_protocol.errors import StenoError

_OTHER_KEYS: Final = re.compile(r"\x1b(?:\[[\d;]*[A-Za-z~]|O.|.)?")
"""Keys such as arrows, which send an escape and several characters."""

_ENDING: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_SIGNALS: Final = (*_ENDING, signal.SIGWINCH, signal.SIGTSTP)


class Watch:
    """A live screen.

    Args:
        source: the reports.
        terminal: the screen.
        output: of the command; fits texts to the encoding of the terminal.
        interval_s: seconds between two reports.
        order: the order of the sessions.
        sessions_max: session lines; None for as many as fit.
    """

    def __init__(
        self,
        source: Source,
        terminal: Terminal,
        output: Output,
        interval_s: float,
        order: str,
        sessions_max: int | None,
    ) -> None:
        self._source = source
        self._terminal = terminal
        self._output = output
        self._interval_s = interval_s
        self._order = order
        self._sessions_max = sessions_max
        self._before: Report | None = None
        self._last: Report | None = None
        self._away_since: float | None = None
        self._code = Exit.DONE
        self._error: StenoError | None = None

    async def run(self) -> Exit:
        """Show the screen until a key or a signal ends it.

        Raises:
            StenoError: the daemon refuses to report.
        """
        async with anyio.create_task_group() as tasks:
            # The signals first: from here on each of them restores the terminal.
            await tasks.start(self._obey_signals, tasks.cancel_scope)
            with self._terminal:
                if self._terminal.has_keys:
                    tasks.start_soon(self._obey_keys, tasks.cancel_scope)
                await self._poll()
            tasks.cancel_scope.cancel()
        if self._error is not None:
            raise self._error
        return self._code

    async def _poll(self) -> None:
        """Ask and draw until the daemon refuses."""
        due = anyio.current_time()
        while True:
            try:
                await self._ask()
            except StenoError as error:
                self._error = error
                return
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
        frame = self._frame(report)
        shown, _ = room(frame, self._terminal.size[1])
        await self._source.learn_titles(row.session for row in frame.activity.sessions[:shown])

    def _frame(self, last: Report) -> Frame:
        trouble = ""
        if self._away_since is not None:
            since = moment(self._away_since)[11:]
            trouble = f" no answer since {since}: waiting for the daemon "
        return Frame(
            daemon=self._source.daemon,
            activity=activity(self._before, last, self._order),
            titles=self._source.titles,
            trouble=trouble,
            order=self._order,
            sessions_max=self._sessions_max,
            keys="q: quit, s: order" if self._terminal.has_keys else "Ctrl-C: quit",
        )

    def _draw(self) -> None:
        if self._last is not None:
            width, height = self._terminal.size
            frame = self._frame(self._last)
            self._terminal.draw(picture(frame, width, height, self._output.fitted))

    async def _obey_keys(self, scope: anyio.CancelScope) -> None:
        orders = itertools.cycle(SORTS)
        while next(orders) != self._order:
            pass
        while keys := await self._terminal.keys():
            keys = _OTHER_KEYS.sub("", keys)
            if "q" in keys:
                break
            for _ in range(keys.count("s")):
                self._order = next(orders)
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
