"""The log interface of rewrite planners, key lookups and readers.

`JsonlLog` implements it; methods for the log's writer are in that class only. All methods block and
raise OSError.
"""

from typing import Protocol

import msgspec


class Copy(msgspec.Struct, frozen=True):
    """A range of bytes of an existing generation."""

    generation: int
    offset: int
    size: int


Piece = Copy | bytes
"""A part of a rewrite's new file: a range that the kernel copies, or new lines."""


class View(Protocol):
    """A snapshot of durable bytes, valid while the writer replaces or closes the file.

    Attributes:
        size: the bytes that may be read; they never change.
    """

    size: int

    def read(self, size: int, offset: int) -> bytes:
        """Returns up to `size` bytes from `offset`; blocks."""
        ...

    def release(self) -> None:
        """Release the file; must not be called during a read."""
        ...


class Log(Protocol):
    """The durable bytes of one session's files.

    Attributes:
        generation: the present generation.
        name: the name of the file.
    """

    generation: int
    name: str

    def length(self, generation: int) -> int:
        """Returns the durable bytes of a generation; FileNotFoundError if there is none."""
        ...

    def read(self, generation: int, offset: int, size: int) -> bytes:
        """Returns up to `size` durable bytes of a generation from `offset`."""
        ...

    def view(self, generation: int) -> View:
        """Returns a view of a generation's durable bytes, which the caller releases."""
        ...

    def generations(self) -> list[int]:
        """Returns the existing generations, oldest first; the present one is the last."""
        ...

    def timeline(self) -> bytes:
        """Returns the session's timeline."""
        ...

    def append_timeline(self, line: bytes) -> None:
        """Append a line to the timeline; it is durable on return."""
        ...
