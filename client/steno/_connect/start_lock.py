"""The lock for starting a daemon: one client, and one more after each timeout."""

import fcntl
import os
import struct
import time
from pathlib import Path
from typing import Final

from steno._connect import fork_guard
from steno._connect.private_files import open_private
from steno_protocol import limits, paths

_BYTE_LOCK: Final = struct.Struct("hhqqi0q")
"""type, from where, start, length, pid: `struct flock` of fcntl(2), in the machine's own layout."""


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
        handle = open_private(Path(root, paths.START_LOCK), os.O_RDWR | os.O_CREAT)
        self._handle = fork_guard.closed_in_child(handle)
        self._patience_s = max(patience_s, limits.START_LOCK_POLL_S)
        self._began = time.monotonic()
        self._is_held = False

    @property
    def waited_s(self) -> float:
        """Seconds since it was opened."""
        return time.monotonic() - self._began

    def try_turn(self) -> bool:
        """Try to get the turn, which lasts until `close`; return whether this client has it."""
        turn = int(self.waited_s / self._patience_s)
        self._is_held = self._is_held or self._try_first() or (turn > 0 and self._try_byte(turn))
        return self._is_held

    def close(self) -> None:
        """Give the turn back, and close the file."""
        fork_guard.close(self._handle)

    def _try_first(self) -> bool:
        try:
            fcntl.flock(self._handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    def _try_byte(self, turn: int) -> bool:
        # A lock of the open file, as the first turn, so that threads of one process exclude each
        # other.
        wanted = _BYTE_LOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, turn, 1, 0)
        try:
            fcntl.fcntl(self._handle, fcntl.F_OFD_SETLK, wanted)
        except (BlockingIOError, PermissionError):
            return False
        return True
