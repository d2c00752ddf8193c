"""The progress line of a long command, shown on a terminal only."""

import threading
import time
from collections.abc import Iterator, Sequence
from itertools import accumulate
from typing import Final, Self, TypeVar

from steno_cli.render.output import Output
from steno_present.wording import duration, size

Item = TypeVar("Item")

_QUIET_S: Final = 0.5
"""A shorter operation needs no progress line."""

_PAUSE_S: Final = 0.1
"""Between two updates; more updates cost time and are not visible."""

_BAR_CHARS: Final = 20
"""Length of the bar, which leaves room for the words at 80 columns."""

_ESTIMATE_S: Final = 1.0
"""A rate over a shorter time is a guess, and so is the time left."""


class Progress:
    """A line on stderr that is replaced as an operation proceeds, and removed at its end.

    A thread draws it again while the operation waits, for the daemon or for a disk. The line shows
    the rate and the time left if an amount and its total are known, and otherwise the time so far.

    Args:
        output: the output of the command.
        doing: the operation, such as `searching`.
        quiet_s: seconds until the line appears.
        ticks: whether the thread runs.
    """

    def __init__(
        self, output: Output, doing: str, quiet_s: float = _QUIET_S, *, ticks: bool = True
    ) -> None:
        self._output = output
        self._doing = doing
        self._started = time.monotonic()
        self._next = self._started + quiet_s
        self._is_wanted = output.talks_to_terminal and not output.as_json
        self._ticks = ticks and self._is_wanted
        self._is_shown = False
        self._place = ""
        self._items_left = ""
        self._bytes: tuple[int, int | None] | None = None
        self._how_far = ""
        self._lock = threading.RLock()
        self._is_over = threading.Event()
        self._ticker: threading.Thread | None = None

    def __enter__(self) -> Self:
        if self._ticks:
            self._ticker = threading.Thread(target=self._tick, daemon=True)
            self._ticker.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        if self._ticker is not None:
            self._ticker.join()
        self.clear()

    def over(self, items: Sequence[Item]) -> Iterator[Item]:
        """The items one by one; the line counts the finished ones, and estimates the time left.

        One item alone is not counted, and bytes with a total estimate the time better.
        """
        for done, item in enumerate(items):
            if len(items) > 1:
                self._place = f"{done} of {len(items)}"
            # Known now: the time of an unfinished item is no measure.
            self._items_left = self._time_left(done, len(items))
            self.show("")
            yield item

    def over_bytes(self, items: Sequence[Item], sizes: Sequence[int]) -> Iterator[Item]:
        """The items one by one, each with its bytes; what was not read of one counts, too."""
        self.expect(sum(sizes))
        begins = accumulate(sizes[:-1], initial=0)
        for item, begin in zip(self.over(items), begins, strict=False):
            self.add(begin - self.done_bytes)
            yield item

    def show(self, how_far: str) -> None:
        """Show the progress if stderr is a terminal and an update is due."""
        if self._is_wanted:
            self._how_far = how_far
            self._draw()

    def show_bytes(self, done: int, total: int | None, text: str = "") -> None:
        """Show an amount of bytes: with a total as a bar, with its rate and the time left.

        Args:
            done: bytes so far.
            total: bytes of the whole operation, None if they are unknown.
            text: a further part of the line.
        """
        # Only noted here: a line is formatted when it is due, and the thread may draw it first.
        self._bytes = (done, total)
        self.show(text)

    @property
    def done_bytes(self) -> int:
        """The bytes so far."""
        return 0 if self._bytes is None else self._bytes[0]

    def expect(self, total: int | None) -> None:
        """Set the bytes of the whole operation before it begins; None if they are unknown."""
        self._bytes = (self.done_bytes, total)

    def add(self, more: int, text: str = "") -> None:
        """Show that more bytes are done, as `show_bytes` does."""
        total = None if self._bytes is None else self._bytes[1]
        self.show_bytes(self.done_bytes + more, total, text)

    def make_room(self) -> None:
        """Remove the line before data is written to the same terminal."""
        if self._output.is_terminal:
            self.clear()

    def clear(self) -> None:
        """Remove the line."""
        with self._lock:
            if self._is_shown:
                self._output.update("")
                self._is_shown = False

    # --- inside ----------------------------------------------------------------------------------

    def _amount(self) -> str:
        """The amount of bytes, with its bar if the total is known; empty if there is none."""
        if self._bytes is None or self._bytes == (0, None):
            return ""
        done, total = self._bytes
        taken_s = time.monotonic() - self._started
        rate = f", {size(int(done / taken_s))}/s" if taken_s >= _ESTIMATE_S else ""
        if not total:
            return f"{size(done)}{rate}"
        part = min(1.0, done / total)
        filled = int(part * _BAR_CHARS)
        bar = "█" * filled + "░" * (_BAR_CHARS - filled)
        return f"{bar} {int(100 * part)} %{rate}{self._time_left(done, total)}"

    def _time_left(self, done: int, total: int) -> str:
        taken_s = time.monotonic() - self._started
        if taken_s < _ESTIMATE_S or not 0 < done < total:
            return ""
        return f", {duration(taken_s / done * (total - done))} left"

    def _draw(self) -> None:
        with self._lock:
            now = time.monotonic()
            if now < self._next:
                return
            self._next = now + _PAUSE_S
            self._is_shown = True
            has_better = self._bytes is not None and self._bytes[1]
            place = self._place + ("" if has_better else self._items_left)
            parts = [part for part in (place, self._amount(), self._how_far) if part]
            self._output.update(f"{self._doing}: {', '.join(parts) or self._taken(now)}")

    def _taken(self, now: float) -> str:
        return duration(now - self._started)

    def _tick(self) -> None:
        while not self._is_over.wait(_PAUSE_S):
            self._draw()
