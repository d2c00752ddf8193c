"""Checkpoints and token counts of a session, line by line; pure."""

from bisect import bisect_left
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from steno.values import decode_object
from steno_present.messages import written_at
from steno_protocol.context import Checkpoint, Usage, parse_line


@dataclass(frozen=True, slots=True)
class Mark:
    """A checkpoint (`value` is its id) or a token count, and Unix time of it if it is known."""

    line: int
    is_checkpoint: bool
    value: int
    at: float | None


@dataclass(slots=True)
class Outline:
    """The marks of the first `end` lines of one generation, in order."""

    end: int = 0
    marks: list[Mark] = field(default_factory=list[Mark])

    def apply(self, first: int, lines: Iterable[bytes]) -> None:
        """Take in the lines that follow each other from line `first` on."""
        number = first
        for data in lines:
            # Most lines are messages: they are not decoded here.
            if b"_usage" in data or b"_checkpoint" in data:
                self._mark(number, data)
            number += 1
        self.end = max(self.end, number)

    def cut(self, kept: int) -> "Outline":
        """Keep the first lines, and return the rest as an outline of its own."""
        at = bisect_left(self.marks, kept, key=lambda mark: mark.line)
        rest = Outline(self.end, self.marks[at:])
        del self.marks[at:]
        self.end = min(self.end, kept)
        return rest

    def documents(self) -> list[list[Any]]:
        """Each mark as `[line, "checkpoint" or "usage", value, at]`."""
        return [
            [mark.line, "checkpoint" if mark.is_checkpoint else "usage", mark.value, mark.at]
            for mark in self.marks
        ]

    def _mark(self, number: int, data: bytes) -> None:
        line = parse_line(data)
        if isinstance(line, Checkpoint | Usage):
            value = line.id if isinstance(line, Checkpoint) else line.token_count
            at = written_at(decode_object(data) or {})
            self.marks.append(Mark(number, isinstance(line, Checkpoint), value, at))
