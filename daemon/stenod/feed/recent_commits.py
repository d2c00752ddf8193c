"""The last published commits of a file, for subscribers close to the head."""

from collections import deque

import msgspec

from steno_protocol import limits
from steno_protocol.events import Records
from steno_protocol.positions import Position


class CommitRun(msgspec.Struct, frozen=True):
    """One or more consecutive commits that are sent as one event.

    Attributes:
        event: the event; one object for all subscribers, so that it is encoded once.
        block: the commits' lines.
        after: the position after these lines.
    """

    event: Records
    block: bytes
    after: Position


class _Published(msgspec.Struct, frozen=True):
    first: Position
    after: Position
    block: bytes


class RecentCommits:
    """The last consecutive commits that fit into one block, and at least the last one."""

    def __init__(self) -> None:
        self._commits: deque[_Published] = deque()
        self._bytes = 0
        self._runs: dict[Position, CommitRun] = {}

    def add(self, first: Position, after: Position, block: bytes) -> None:
        """Add a commit that became durable.

        Args:
            first: the position of its first line.
            after: the position after its last line.
            block: its lines.
        """
        self._runs.clear()
        self._commits.append(_Published(first, after, block))
        self._bytes += len(block)
        while self._bytes > limits.BLOCK_BYTES and len(self._commits) > 1:
            self._bytes -= len(self._commits.popleft().block)

    def has_room(self, block: bytes) -> bool:
        """Returns whether a commit can be added without forgetting another one."""
        return not self._commits or self._bytes + len(block) <= limits.BLOCK_BYTES

    def since(self, position: Position) -> CommitRun | None:
        """Returns the commits from a position to the head; None if no commit here begins there."""
        run = self._runs.get(position)
        if run is None:
            blocks = self._blocks_since(position)
            if not blocks:
                return None
            after = self._commits[-1].after
            event = Records(first=str(position), next=str(after))
            run = self._runs[position] = CommitRun(event, b"".join(blocks), after)
        return run

    def _blocks_since(self, position: Position) -> list[bytes]:
        # From the newest on, because most subscribers miss only the last commits.
        blocks: list[bytes] = []
        for commit in reversed(self._commits):
            if commit.first < position:
                break
            blocks.append(commit.block)
            if commit.first == position:
                return blocks[::-1]
        return []

    def clear(self) -> None:
        """Forget all commits: no subscriber needs them, or the file changed."""
        self._commits.clear()
        self._runs.clear()
        self._bytes = 0
