"""Places for the streams that a browser may hold open."""

from collections import Counter
from collections.abc import Generator
from contextlib import contextmanager

from steno_view.limits import STREAMS_HELD_MAX


class StreamPlaces:
    """The open streams of each browser."""

    def __init__(self) -> None:
        self._taken: Counter[str] = Counter()

    @contextmanager
    def place(self, browser: str) -> Generator[bool]:
        """Take a place, if the browser has one left; yields whether it has.

        Args:
            browser: the id that its pages share; a client without one has any number of places.
        """
        if not browser:
            yield True
        elif self._taken[browser] >= STREAMS_HELD_MAX:
            yield False
        else:
            self._taken[browser] += 1
            try:
                yield True
            finally:
                self._taken[browser] -= 1
                if not self._taken[browser]:
                    del self._taken[browser]
