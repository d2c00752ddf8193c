"""Written lines that are not yet durable: their age, and the callers that wait for a sync."""

from collections.abc import Callable

import anyio

from steno_protocol import limits


class SyncBacklog:
    """What was appended since the last sync.

    Attributes:
        since: monotonic time of the first of it, None while there is nothing.
        is_asked: a caller waits until it is empty.
    """

    def __init__(self) -> None:
        self.since: float | None = None
        self.is_asked = False
        self._blocks: list[bytes] = []
        self._size = 0
        self._settled = anyio.Event()

    @property
    def is_much(self) -> bool:
        """True when it is to be synced with the next group, however young it is."""
        return self._size >= limits.UNSYNCED_BYTES_MAX

    def add(self, block: bytes, clock: Callable[[], float]) -> None:
        """Lines were appended."""
        self._blocks.append(block)
        self._size += len(block)
        if self.since is None:
            self.since = clock()

    def take(self) -> bytes:
        """All of it is durable now, or withdrawn: what it was."""
        block = self._blocks[0] if len(self._blocks) == 1 else b"".join(self._blocks)
        self._blocks.clear()
        self._size = 0
        self.since = None
        if self.is_asked:
            self.is_asked = False
            self._settled.set()
            self._settled = anyio.Event()
        return block

    def ask(self) -> anyio.Event:
        """Have it synced soon; the event is set when there is nothing any more."""
        self.is_asked = True
        return self._settled
