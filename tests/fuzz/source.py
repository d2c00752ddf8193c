"""Decisions drawn from bytes, so that every engine that makes bytes can make cases."""

from collections.abc import Sequence
from typing import TypeVar

Choice = TypeVar("Choice")


class Source:
    """Bytes that decide about one case; when they are used up, every decision is the first one.

    Args:
        data: the bytes that an engine made.
    """

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._place = 0

    def take(self, size: int) -> bytes:
        """The next bytes as they are, at most `size` of them."""
        found = self._data[self._place : self._place + size]
        self._place += size
        return found

    def number(self, end: int) -> int:
        """A number from 0 to `end` - 1."""
        return int.from_bytes(self.take(1 if end <= 256 else 4), "little") % end

    def flip(self, of: int = 2) -> bool:
        """True once in `of` times."""
        return self.number(of) == of - 1

    def pick(self, choices: Sequence[Choice]) -> Choice:
        """One of some things."""
        return choices[self.number(len(choices))]

    def rest(self) -> bytes:
        """All bytes that were not used yet."""
        return self.take(len(self._data))
