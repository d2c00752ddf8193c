"""Files with a failed sync, whose cached bytes may be on no disk.

When a sync fails, the kernel reports the error once to each handle that is open, and marks the
pages clean without having written them. A handle that is opened later gets no error, and reads
bytes that no later sync writes. So the file is recorded here until its bytes were written again
and synced.
"""

import errno
from collections.abc import Generator
from contextlib import contextmanager

from stenod.store.disk import Disk, FileStat


class Unproven(OSError):
    """The durable length of a file is unknown until its session is opened for writing."""


class FailedSyncs:
    """The files of one daemon with a failed sync, by device and inode."""

    def __init__(self) -> None:
        # Several threads use this set without a lock: each access is one step of the interpreter.
        self._files: set[tuple[int, int]] = set()

    def __len__(self) -> int:
        return len(self._files)

    def has(self, file: FileStat) -> bool:
        """Returns whether a sync of the file failed."""
        return (file.device, file.inode) in self._files

    def resolve(self, file: FileStat) -> None:
        """Remove a file whose unsynced bytes were written again and synced, or durably cut off."""
        self._files.discard((file.device, file.inode))

    @contextmanager
    def syncing(self, file: FileStat) -> Generator[None]:
        """Add the file if the sync in the `with` block fails."""
        try:
            yield
        except OSError:
            self.add(file)
            raise

    def add(self, file: FileStat) -> None:
        """Add a file of which a sync failed."""
        self._files.add((file.device, file.inode))

    def refuse_unproven(self, file: FileStat, name: str) -> None:
        """Refuse to read a file of which a sync failed.

        Raises:
            Unproven: a sync of the file failed, and its bytes were not written again.
        """
        if self.has(file):
            raise Unproven(errno.EIO, "a sync of this file failed; open its session first", name)

    def sync_to_read(self, disk: Disk, handle: int, name: str) -> None:
        """Sync a file that no writer has open, before it is read.

        Raises:
            Unproven: an earlier sync of the file failed, and its bytes were not written again.
            OSError: this sync failed.
        """
        found = disk.stat(handle)
        self.refuse_unproven(found, name)
        with self.syncing(found):
            disk.fdatasync(handle)
