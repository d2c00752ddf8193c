"""The progress of a long command, shown on a terminal only."""

import time
from collections.abc import Iterator, Sequence
from types import TracebackType
from typing import Final, Self, TypeVar

from steno.cli.render.output import Output

Item = TypeVar("Item")

_QUIET_S: Final = 0.5
"""What takes less needs no progress."""

_PAUSE_S: Final = 0.1
"""Between two updates; more of them cost time and are not seen."""


class Progress:
    """One line of talk that is replaced as things go on, and taken away at the end.

    Args:
        output: the stream of the messages.
        doing: what is being done, as `searching`.
    """

    def __init__(self, output: Output, doing: str) -> None:
        self._output = output
        self._doing = doing
        self._next = time.monotonic() + _QUIET_S
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
        """The items one by one; shows how many of all are done."""
        for done, item in enumerate(items):
            self._place = f"{done} of {len(items)}"
            self.show("")
            yield item

    def show(self, how_far: str) -> None:
        """Show the progress, if stderr is a terminal and an update is due."""
        now = time.monotonic()
        if now < self._next or not self._output.talks_to_terminal or self._output.as_json:
            return
        self._next = now + _PAUSE_S
        self._is_shown = True
        text = ", ".join(part for part in (self._place, how_far) if part)
        self._output.update(f"{self._doing}: {text}")

    def make_room(self) -> None:
        """Take the line away if data are about to be written to the same terminal."""
        if self._output.is_terminal:
            self.clear()

    def clear(self) -> None:
        """Take the line away."""
        if self._is_shown:
            self._output.update("")
            self._is_shown = False
