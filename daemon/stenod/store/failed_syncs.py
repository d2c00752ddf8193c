"""Files of which a sync failed: what the page cache shows of them may be on no disk.

The kernel reports the error once to each handle that was open then, and drops what was to be
written. A later handle gets no error, and reads bytes that no sync writes any
more. So it is remembered here until the file was written over itself and synced.
"""

import errno
from collections.abc import Generator
from contextlib import contextmanager

from stenod.store.disk import Disk, FileStat


class Unproven(OSError):
    """The durable length of a file is unknown until its session is opened for writing."""


class FailedSyncs:
    """The files of one daemon that are in doubt, by device and inode."""

    def __init__(self) -> None:
        # Several threads open and read files; each of these is one step of the interpreter.
        self._files: set[tuple[int, int]] = set()

    def __len__(self) -> int:
        return len(self._files)

    def has(self, file: FileStat) -> bool:
        """True for a file that is in doubt."""
        return (file.device, file.inode) in self._files

    def dispel(self, file: FileStat) -> None:
        """What no sync had reached of a file was written again and synced, or durably cut off."""
        self._files.discard((file.device, file.inode))

    @contextmanager
    def syncing(self, file: FileStat) -> Generator[None]:
        """Sync a file in the block; an error is noted."""
        try:
            yield
        except OSError:
            self.note(file)
            raise

    def note(self, file: FileStat) -> None:
        """A sync of a file failed."""
        self._files.add((file.device, file.inode))

    def sync_to_read(self, disk: Disk, handle: int, name: str) -> None:
        """Sync a file that no writer has open, before a reader gets it.

        Raises:
            Unproven: an earlier sync of it failed, and it was not rewritten since.
            OSError: this one failed.
        """
        found = disk.stat(handle)
        if self.has(found):
            raise Unproven(errno.EIO, "a sync of this file failed, and it was not mended yet", name)
        with self.syncing(found):
            disk.fdatasync(handle)
