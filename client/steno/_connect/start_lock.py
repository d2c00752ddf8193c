"""The lock for starting a daemon: one client, and one more after each timeout."""

import os
import time
from pathlib import Path

import steno_system as system
from steno._connect import fork_guard
from steno_protocol import limits, paths
from steno_system.private_files import open_private


class StartLock:
    """The start lock of a root; open until `close`.

    Its holder may be a stopped process, so clients do not wait for ever: every `patience_s` one
    more waiting client may start a daemon. Never all of them together: hundreds of interpreters
    that start at once would keep each other from becoming ready.

    Args:
        root: the root, which is there.
        patience_s: how long one turn is waited for.

    Raises:
        Unauthorized: the root, or the file, belongs to another user.
        OSError: the file cannot be opened.
    """

    def __init__(self, root: str, patience_s: float) -> None:
        self._path = Path(root, paths.START_LOCK)
        handle = open_private(self._path, os.O_RDWR | os.O_CREAT)
        self._handle = fork_guard.closed_in_child(handle)
        self._patience_s = max(patience_s, limits.START_LOCK_POLL_S)
        self._began = time.monotonic()
        self._is_held = False
        self._later: int | None = None

    @property
    def waited_s(self) -> float:
        """Seconds since it was opened."""
        return time.monotonic() - self._began

    def try_turn(self) -> bool:
        """Try to get the turn, which lasts until `close`; return whether this client has it."""
        turn = int(self.waited_s / self._patience_s)
        self._is_held = self._is_held or self._try_first() or (turn > 0 and self._try_later(turn))
        return self._is_held

    def close(self) -> None:
        """Give the turn back, and close the file."""
        if self._later not in (None, self._handle):
            fork_guard.close(self._later)
        fork_guard.close(self._handle)

    def _try_first(self) -> bool:
        try:
            system.try_lock(self._handle)
        except BlockingIOError:
            return False
        return True

    def _try_later(self, turn: int) -> bool:
        taken = system.try_turn(self._handle, self._path, turn)
        if taken is not None and taken != self._handle:
            taken = fork_guard.closed_in_child(taken)
        self._later = taken
        return taken is not None
