"""The lines of a record's texts in which something is found; pure."""

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from steno_present.messages import texts_of

Find = Callable[[str], tuple[int, int] | None]
"""Returns where something is in a text, its start and its end; None if it is not there."""


class Match(NamedTuple):
    """A line of a text, and the place of the first match in it."""

    line: str
    start: int
    end: int


def matches(record: dict[str, Any], find: Find) -> Iterator[Match]:
    """Yield the lines of a message, of its thoughts and of its calls that match, in order."""
    for text in texts_of(record):
        # One search of the whole text skips most of them.
        if find(text) is None:
            continue
        for line in text.split("\n"):
            found = find(line)
            if found is not None:
                yield Match(line, *found)
