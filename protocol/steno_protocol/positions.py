"""Positions of records in a session, `generation:line`."""

import re
from collections.abc import Callable
from functools import lru_cache
from typing import Any, Final, NamedTuple, cast

from steno_protocol.errors import BadRequest

_PATTERN = re.compile(r"(0|[1-9][0-9]{0,8}):(0|[1-9][0-9]{0,14})", re.ASCII)


class Position(NamedTuple):
    """A position between two lines of one generation of a session's file.

    Positions of one file are ordered; a larger generation is a later file. Where a method takes a
    position, it also takes its text.

    Attributes:
        generation: the number of rewrites before this file.
        line: the number of lines before the position, blank and damaged ones included. The cursor
            of a record is the position before it; the head is the position after the last one.

    Example:
        >>> str(steno.Position(0, 12)), steno.Position(0, 12) < steno.Position(1, 0)
        ('0:12', True)
    """

    generation: int
    line: int

    def __str__(self) -> str:
        return f"{self.generation}:{self.line}"

    @classmethod
    def parse(cls, text: str) -> "Position":
        """Parse `generation:line`.

        Args:
            text: two decimal numbers with a colon between them.

        Returns:
            The position.

        Raises:
            BadRequest: the text is not such a position.

        Example:
            >>> steno.Position.parse("3:17")
            Position(generation=3, line=17)
        """
        try:
            return _parse(text)
        except TypeError:
            # Callers without a type checker may pass any type.
            raise _no_position(text) from None


new_position: Final[Callable[[type[Position], tuple[int, int]], Position]] = cast(
    "Any", tuple
).__new__
"""Creates a position from two numbers in a third of the time, for code that runs for every line."""


@lru_cache(maxsize=8)
def _parse(text: str) -> Position:
    # Cached, because the head of one ack is mostly the first position of the next.
    match = _PATTERN.fullmatch(text)
    if match is None:
        raise _no_position(text[:40])
    generation, line = match.groups()
    return new_position(Position, (int(generation), int(line)))


def _no_position(given: object) -> BadRequest:
    return BadRequest(f"{given!r:.80} is not a position: use generation:line, for example 0:12")
