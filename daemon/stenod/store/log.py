"""The log interface of rewrite planners, key lookups and readers.

What they are given is a `JsonlLog`, plain files; what only its writer needs stands there alone. All
methods block and raise OSError.
"""

from typing import Protocol

import msgspec


class Copy(msgspec.Struct, frozen=True):
    """A piece of a rewrite: bytes of a generation that exists."""

    generation: int
    offset: int
    size: int


Piece = Copy | bytes
"""A new file is made of pieces: copied ranges, which the kernel moves, and new lines."""


class View(Protocol):
    """Durable bytes that a reader holds on to while the writer may replace or close the file.

    Attributes:
        size: how many bytes may be read; they never change.
    """

    size: int

    def read(self, size: int, offset: int) -> bytes:
        """Up to `size` bytes from `offset`; blocks."""
        ...

    def release(self) -> None:
        """Let go; not while a read is under way."""
        ...


class Log(Protocol):
    """One session's files, as far as they are durable.

    Attributes:
        generation: the generation that is appended to.
    """

    generation: int

    def length(self, generation: int) -> int:
        """Durable bytes of a generation; FileNotFoundError if there is none."""
        ...

    def read(self, generation: int, offset: int, size: int) -> bytes:
        """Up to `size` bytes of a generation from `offset`, no more than are durable."""
        ...

    def generations(self) -> list[int]:
        """The generations that are there, oldest first, the present one last."""
        ...

    def timeline(self) -> bytes:
        """The session's timeline."""
        ...

    def append_timeline(self, line: bytes) -> None:
        """Append a line to the timeline, durably."""
        ...
