"""Recently published commits of a file, for followers close to the head."""

from collections import deque

import msgspec

from steno_protocol import limits
from steno_protocol.events import Records
from steno_protocol.positions import Position


class Stretch(msgspec.Struct, frozen=True):
    """The contents of one event: one commit, or several consecutive ones.

    Attributes:
        event: the event, one object for all followers, so that it is encoded once.
        block: the lines.
        after: the position after them.
    """

    event: Records
    block: bytes
    after: Position


class _Published(msgspec.Struct, frozen=True):
    first: Position
    after: Position
    block: bytes


class RecentCommits:
    """The last consecutive commits: as many as fit into one block, and at least one."""

    def __init__(self) -> None:
        self._commits: deque[_Published] = deque()
        self._bytes = 0
        self._stretches: dict[Position, Stretch] = {}

    def add(self, first: Position, after: Position, block: bytes) -> None:
        """Add a commit that became durable."""
        self._stretches.clear()
        self._commits.append(_Published(first, after, block))
        self._bytes += len(block)
        while self._bytes > limits.BLOCK_BYTES and len(self._commits) > 1:
            self._bytes -= len(self._commits.popleft().block)

    def since(self, position: Position) -> Stretch | None:
        """Return the commits after a position, None if it is not the start of a known one."""
        stretch = self._stretches.get(position)
        if stretch is None:
            blocks = [commit.block for commit in self._commits if commit.first >= position]
            starts = any(commit.first == position for commit in self._commits)
            if not starts:
                return None
            after = self._commits[-1].after
            event = Records(first=str(position), next=str(after))
            stretch = self._stretches[position] = Stretch(event, b"".join(blocks), after)
        return stretch

    def clear(self) -> None:
        """Remove all commits: no follower needs them, or the file was rewritten."""
        self._commits.clear()
        self._stretches.clear()
        self._bytes = 0
