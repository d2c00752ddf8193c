"""The log of one session as those see it who plan rewrites, look keys up and read.

What they are given is a `JsonlLog`, plain files; its writer also uses what only that has. A log is
opened by one owner at a time; what it calls durable is on disk when the call returns. All methods
block and raise OSError.
"""

from collections.abc import Sequence
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
    """One session's files, open for its one writer.

    Attributes:
        generation: the generation that is appended to.
        size: bytes of it, appended ones that are not synced included.
        synced: bytes of it that are durable.
    """

    generation: int
    size: int
    synced: int

    def append(self, data: bytes) -> None:
        """Append lines; not durable. After an error call `take_back`."""
        ...

    def sync(self) -> None:
        """Make everything that was appended durable."""
        ...

    def take_back(self) -> None:
        """Cut the file to what is durable, durably; what is not ours goes to quarantine first."""
        ...

    def is_foreign_changed(self) -> bool:
        """True when another program appended to, cut or replaced the file."""
        ...

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

    def tell(self, line: bytes) -> None:
        """Append a line to the timeline, durably."""
        ...

    def replace(self, pieces: Sequence[Piece], intent: bytes) -> str:
        """Swap in a new file made of pieces, in one instant, durable on return.

        The old one stays as the generation it was; its path is returned. After an error only
        opening the log again tells which of the two is there.
        """
        ...

    def save_mark(self, mark: bytes) -> None:
        """Keep a note about the synced length for the next open; it may be lost."""
        ...

    def view(self, generation: int) -> View:
        """What is durable of a generation now, for a reader, who releases it."""
        ...

    def close(self) -> None:
        """Close the files and give up the session; never raises."""
        ...
