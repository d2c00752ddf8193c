"""The last commits of a file as they were published, for those followers who are not far behind."""

from collections import deque

import msgspec

from steno_protocol import limits
from steno_protocol.events import Records
from steno_protocol.positions import Position


class Stretch(msgspec.Struct, frozen=True):
    """What one event tells: one commit, or several that follow one another.

    Attributes:
        event: the event; one object for all followers who get it, so that it is encoded once.
        block: the lines.
        after: the position behind them.
    """

    event: Records
    block: bytes
    after: Position


class _Published(msgspec.Struct, frozen=True):
    first: Position
    after: Position
    block: bytes


class RecentCommits:
    """Commits that follow one another, as many as fit into one block, and the last one at least."""

    def __init__(self) -> None:
        self._commits: deque[_Published] = deque()
        self._bytes = 0
        self._stretches: dict[Position, Stretch] = {}

    def add(self, first: Position, after: Position, block: bytes) -> None:
        """One more commit became durable."""
        self._stretches.clear()
        self._commits.append(_Published(first, after, block))
        self._bytes += len(block)
        while self._bytes > limits.BLOCK_BYTES and len(self._commits) > 1:
            self._bytes -= len(self._commits.popleft().block)

    def since(self, position: Position) -> Stretch | None:
        """All that came after a position, or None when that is not known here."""
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
        """Nobody needs them any more, or they are no commits of this file any more."""
        self._commits.clear()
        self._stretches.clear()
        self._bytes = 0
