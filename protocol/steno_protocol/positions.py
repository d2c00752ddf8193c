"""Positions: where a record lies in a session, `generation:line`, the same in every language."""

import re
from collections.abc import Callable
from typing import Any, Final, NamedTuple, Self, cast

from steno_protocol.errors import BadRequest

_PATTERN = re.compile(r"(0|[1-9][0-9]{0,8}):(0|[1-9][0-9]{0,14})", re.ASCII)


class Position(NamedTuple):
    """A place between two lines of one generation of a session's file.

    `line` lines precede it, blank and damaged ones counted; the cursor of a record is the position
    before it, the head is the position after the last one. Positions of one file are ordered;
    a larger generation is a later file.

    >>> str(Position(0, 12)), Position.parse("3:17").line
    ('0:12', 17)
    """

    generation: int
    line: int

    def __str__(self) -> str:
        return f"{self.generation}:{self.line}"

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read `generation:line`.

        Raises:
            BadRequest: it is not two decimal numbers with a colon between them.
        """
        match = _PATTERN.fullmatch(text)
        if match is None:
            raise BadRequest(
                f"{text[:40]!r} is not a position: write generation:line, for example 0:12"
            )
        return cls(int(match[1]), int(match[2]))


new_position: Final[Callable[[type[Position], tuple[int, int]], Position]] = cast(
    "Any", tuple
).__new__
"""Makes a position of two numbers in a third of the time: for what is done for every line."""
