"""The log interface of rewrite planners, key lookups and readers.

`JsonlLog` implements it with plain files, and has further methods for its writer. All methods block
and raise OSError.
"""

from typing import Protocol

import msgspec


class Copy(msgspec.Struct, frozen=True):
    """A piece of a rewrite: a range of an existing generation."""

    generation: int
    offset: int
    size: int


Piece = Copy | bytes
"""A piece of a new file: a copied range, which the kernel copies, or new lines."""


class View(Protocol):
    """Durable bytes of a file, readable even after the writer has replaced or closed the file.

    Attributes:
        size: the readable bytes, which never change.
    """

    size: int

    def read(self, size: int, offset: int) -> bytes:
        """Read up to `size` bytes from `offset`; blocks."""
        ...

    def release(self) -> None:
        """Release the file; not during a read."""
        ...


class Log(Protocol):
    """The durable part of one session's files.

    Attributes:
        generation: the present generation.
    """

    generation: int

    def length(self, generation: int) -> int:
        """Return the durable bytes of a generation; FileNotFoundError if it does not exist."""
        ...

    def read(self, generation: int, offset: int, size: int) -> bytes:
        """Read up to `size` durable bytes of a generation from `offset`."""
        ...

    def generations(self) -> list[int]:
        """List the existing generations, oldest first, the present one last."""
        ...

    def timeline(self) -> bytes:
        """Read the session's timeline."""
        ...

    def append_timeline(self, line: bytes) -> None:
        """Append a line to the timeline, durably."""
        ...
