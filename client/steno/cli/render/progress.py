"""The progress line of a long command, shown on a terminal only."""

import time
from collections.abc import Iterator, Sequence
from types import TracebackType
from typing import Final, Self, TypeVar

from steno.cli.render.output import Output

Item = TypeVar("Item")

_QUIET_S: Final = 0.5
"""A shorter operation needs no progress line."""

_PAUSE_S: Final = 0.1
"""Between two updates; more updates cost time and are not visible."""


class Progress:
    """A line on stderr that is replaced as an operation proceeds, and removed at its end.

    Args:
        output: the output of the command.
        doing: the operation, such as `searching`.
        quiet_s: seconds until the line appears.
    """

    def __init__(self, output: Output, doing: str, quiet_s: float = _QUIET_S) -> None:
        self._output = output
        self._doing = doing
        self._next = time.monotonic() + quiet_s
        self._is_shown = False
        self._place = ""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.clear()

    def over(self, items: Sequence[Item]) -> Iterator[Item]:
        """The items one by one; the line counts the finished ones."""
        for done, item in enumerate(items):
            self._place = f"{done} of {len(items)}"
            self.show("")
            yield item

    def show(self, how_far: str) -> None:
        """Show the progress if stderr is a terminal and an update is due."""
        now = time.monotonic()
        if now < self._next or not self._output.talks_to_terminal or self._output.as_json:
            return
        self._next = now + _PAUSE_S
        self._is_shown = True
        text = ", ".join(part for part in (self._place, how_far) if part)
        self._output.update(f"{self._doing}: {text}")

    def make_room(self) -> None:
        """Remove the line before data is written to the same terminal."""
        if self._output.is_terminal:
            self.clear()

    def clear(self) -> None:
        """Remove the line."""
        if self._is_shown:
            self._output.update("")
            self._is_shown = False
