"""Linux's notes that something in a folder has changed, so that a watch need not wait for its turn.

Whatever fails here, the files are looked at again anyway.
"""

import ctypes
import os
import select
import struct
import time
from contextlib import suppress
from pathlib import Path
from typing import Final

from steno_follow.limits import NOTES_BYTES, NOTES_GATHERED_S

_NONBLOCK_CLOEXEC: Final = os.O_NONBLOCK | os.O_CLOEXEC

_MASK: Final = (
    0x002  # IN_MODIFY
    | 0x040  # IN_MOVED_FROM
    | 0x080  # IN_MOVED_TO
    | 0x100  # IN_CREATE
    | 0x200  # IN_DELETE
    | 0x01000000  # IN_ONLYDIR
    | 0x02000000  # IN_DONT_FOLLOW
)

_HEAD: Final = struct.Struct("iIII")
"""`struct inotify_event`: the watch, what happened, a cookie, and the bytes of the name."""


class Inotify:
    """Notes of the kernel about folders; none where it has no such notes."""

    def __init__(self) -> None:
        self._folders: dict[int, Path] = {}
        self._handle = -1
        self._add = None
        with suppress(AttributeError, OSError):
            libc = ctypes.CDLL(None)
            self._add = libc.inotify_add_watch
            self._handle = libc.inotify_init1(_NONBLOCK_CLOEXEC)

    @property
    def is_there(self) -> bool:
        """Whether the kernel sends notes."""
        return self._handle >= 0

    def close(self) -> None:
        """End it."""
        if self._handle >= 0:
            os.close(self._handle)
            self._handle = -1

    def add(self, folder: Path) -> None:
        """Get notes about a folder; a kernel whose limit is reached sends none."""
        if self._handle >= 0 and self._add is not None:
            number = self._add(self._handle, os.fsencode(folder), _MASK)
            if number >= 0:
                self._folders[number] = folder

    def wait(self, timeout_s: float) -> set[Path]:
        """Wait for a note.

        Returns:
            The files and folders that may have changed; empty after the timeout.
        """
        if self._handle < 0:
            time.sleep(timeout_s)
            return set()
        if not select.select([self._handle], [], [], timeout_s)[0]:
            return set()
        # An agent writes a record in several calls, and several records at once.
        time.sleep(NOTES_GATHERED_S)
        found: set[Path] = set()
        with suppress(BlockingIOError):
            while data := os.read(self._handle, NOTES_BYTES):
                found |= self._paths_in(data)
        return found

    def _paths_in(self, data: bytes) -> set[Path]:
        found: set[Path] = set()
        at = 0
        while at < len(data):
            number, _, _, size = _HEAD.unpack_from(data, at)
            at += _HEAD.size
            name = os.fsdecode(data[at : at + size].rstrip(b"\0"))
            at += size
            folder = self._folders.get(number)
            if folder is not None:
                found.add(folder / name)
        return found
