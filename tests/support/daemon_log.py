"""The log of a daemon under test, with waits for its lines."""

import threading

WAIT_S = 30.0
"""A daemon under test logs an event long before; a longer silence is a failure."""


class DaemonLog:
    """The lines that a daemon has logged so far; a thread adds them.

    Attributes:
        log: the lines, in order.
    """

    def __init__(self) -> None:
        self.log: list[str] = []
        self._changed = threading.Condition()

    def add_line(self, line: str) -> None:
        """Add a line, and wake the test that waits for it."""
        with self._changed:
            self.log.append(line)
            self._changed.notify_all()

    def wait_for(self, text: str, count: int = 1) -> str:
        """Return the `count`th line with `text` in it, once it is there."""
        with self._changed:
            assert self._changed.wait_for(lambda: len(self._with(text)) >= count, WAIT_S), self.log
            return self._with(text)[count - 1]

    def _with(self, text: str) -> list[str]:
        return [line for line in self.log if text in line]
