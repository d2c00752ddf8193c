"""Several files made durable by one call about their whole file system: `syncfs`.

For many files that takes two thirds of the time of a call for each, side by side, and a third of
the CPU. But:

* It waits for what other programs wrote there, too. So it is not called while much is unwritten,
  nor for a while after it was slow.
* It tells of less than `fdatasync` does. An error is told once to each handle, whichever file it is
  about: so the handle is there before anything is written, and after the first error nobody relies
  on it again, because the file may be one that is synced later. And what the kernel could not write
  yet, for want of memory, is no error: so each file is asked whether anything is still unwritten.
* What it writes last may still be in the disk's own cache: ext4 without a journal writes inodes
  behind its flush. So another flush follows.
* On some file systems, as overlayfs, it does not tell of what failed below them: it is called where
  it was tried.

Sources: syncfs(2); Linux, fs/sync.c, fs/ext4/inode.c and super.c, mm/filemap.c. That its errors are
told goes back to Linux 5.8 for data and 5.17 for the rest; `cachestat`, without which nothing is
believed here, to 6.5.
"""

import ctypes
import os
import time
import weakref
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from steno_protocol import limits
from steno_protocol.limits import KIB
from stenod.store.c_calls import checked

_KNOWN: Final = frozenset({0xEF53, 0x58465342})
"""ext4 and XFS, as `statfs` tells."""

_MEMORY: Final = "/proc/meminfo"

_STATFS_BYTES: Final = 256
"""More than it fills on any machine."""

_CACHESTAT: Final = 451
"""The number of the call, the same on all machines."""

_DIRTY: Final = 1
_UNDER_WAY: Final = 2
_COUNTS: Final = 5
"""Pages of a part of a file: those in the cache, unwritten, under way, and two of evicted ones."""


class WholeSync:
    """The file system in which a folder lies; for one thread at a time.

    Args:
        folder: its path. It has to be there, and what is written before this is made is not
            answered for.

    Raises:
        OSError: the folder cannot be opened.
    """

    def __init__(self, folder: str) -> None:
        self._library = ctypes.CDLL(None, use_errno=True)
        self._handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        weakref.finalize(self, os.close, self._handle)
        self._device = os.fstat(self._handle).st_dev
        self._part = (ctypes.c_uint64 * 2)()
        self._counts = (ctypes.c_uint64 * _COUNTS)()
        self._not_before = 0.0
        self._is_believed = self._kind() in _KNOWN

    def sync(self, tails: Sequence[tuple[int, int]]) -> bool:
        """Make several files durable, if that can be believed.

        Args:
            tails: of each file an open handle, and from which byte on it is not durable.

        Returns:
            True when all are. Else nobody knows: they are to be synced one by one, and each tells
            of its own error.
        """
        if len(tails) < limits.WHOLE_SYNC_FILES_MIN or not self._is_believed:
            return False
        if time.monotonic() < self._not_before:
            return False
        if not self._has_all(tails) or _unwritten_bytes() > limits.UNWRITTEN_BYTES_MAX:
            return False
        began = time.monotonic()
        try:
            self._write_out()
            return all(self._is_written(*tail) for tail in tails)
        except OSError:
            self._is_believed = False
            return False
        finally:
            now = time.monotonic()
            if now - began > limits.WHOLE_SYNC_S_MAX:
                self._not_before = now + limits.WHOLE_SYNC_PAUSE_S

    def _kind(self) -> int:
        found = (ctypes.c_long * (_STATFS_BYTES // ctypes.sizeof(ctypes.c_long)))()
        return int(found[0]) if self._library.fstatfs(self._handle, found) == 0 else 0

    def _has_all(self, tails: Sequence[tuple[int, int]]) -> bool:
        try:
            return all(os.fstat(handle).st_dev == self._device for handle, _ in tails)
        except OSError:
            # A handle that is none fails by itself.
            return False

    def _write_out(self) -> None:
        checked(self._library.syncfs(self._handle))
        # Of the folder, in which nothing has to be written: what is left to do is the flush.
        os.fdatasync(self._handle)

    def _is_written(self, handle: int, start: int) -> bool:
        self._part[0] = start
        numbers = ctypes.c_long(_CACHESTAT), ctypes.c_long(handle)
        checked(self._library.syscall(*numbers, self._part, self._counts, ctypes.c_long(0)))
        return not self._counts[_DIRTY] and not self._counts[_UNDER_WAY]


def _unwritten_bytes() -> float:
    """What all programs of the machine have written and no disk has; inf if nobody knows."""
    try:
        text = Path(_MEMORY).read_bytes()
        return (_figure(text, b"\nDirty:") + _figure(text, b"\nWriteback:")) * KIB
    except (OSError, ValueError):
        return float("inf")


def _figure(text: bytes, name: bytes) -> int:
    start = text.index(name) + len(name)
    return int(text[start : text.index(b"kB", start)])
