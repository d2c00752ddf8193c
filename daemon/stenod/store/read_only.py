"""A disk that is only read: no call of it changes a file, its times or its locks."""

import errno
import os
from collections.abc import Generator, Sequence
from contextlib import contextmanager

from stenod.store.posix import PosixDisk, open_file


class ReadOnlyDisk(PosixDisk):
    """The `Disk` of a root on a read-only file system, or of another user.

    Files of any user are read; links and other types than regular files are refused as on any
    disk. There is nothing to sync, because nothing was written, and no lock, because a lock could
    keep the owner's daemon out. A change fails with EROFS.
    """

    is_read_only = True

    def open_root(self, path: str, *, create: bool = False) -> int:
        """Open a folder by its path; it is never created."""
        del create
        return super().open_root(path)

    def open_folder(self, parent: int, name: str, *, create: bool = False) -> int:
        """Open a folder in an open folder; it is never created."""
        del create
        return super().open_folder(parent, name)

    def open_read(self, folder: int, name: str) -> int:
        """Open a regular file for reading."""
        return open_file(folder, name, os.O_RDONLY, is_own=False)

    def open_append(self, folder: int, name: str, *, create: bool = False) -> int:
        """Open a regular file for reading only; it is never created."""
        del create
        return self.open_read(folder, name)

    def open_new(self, folder: int, name: str) -> int:
        """Refuse to create a file."""
        del folder
        raise _refused(name)

    def write(self, handle: int, data: bytes) -> int:
        """Refuse to append."""
        del handle, data
        raise _refused()

    def truncate(self, handle: int, size: int) -> None:
        """Refuse to cut a file."""
        del handle, size
        raise _refused()

    def mark_size_dirty(self, handle: int) -> None:
        """Do nothing: no sync of this process can have failed."""

    def overwrite(self, handle: int, offset: int, data: bytes) -> None:
        """Do nothing: the file has these bytes."""

    @contextmanager
    def unmodified(self, handle: int) -> Generator[None]:
        """Do nothing: no time changes."""
        del handle
        yield

    def fdatasync(self, handle: int) -> None:
        """Do nothing: only the owner's daemon knows what is durable."""

    def fdatasync_all(self, handles: Sequence[int]) -> list[OSError | None]:
        """Do nothing; see `fdatasync`."""
        return [None] * len(handles)

    def fsync(self, handle: int) -> None:
        """Do nothing; see `fdatasync`."""

    def copy(self, source: int, target: int, offset: int, size: int) -> int:
        """Refuse to append."""
        del source, target, offset, size
        raise _refused()

    def link(self, folder: int, name: str, new_name: str, *, into: int | None = None) -> None:
        """Refuse to give a file a second name."""
        del folder, new_name, into
        raise _refused(name)

    def rename(self, folder: int, name: str, new_name: str) -> None:
        """Refuse to rename a file."""
        del folder, new_name
        raise _refused(name)

    def move(self, folder: int, name: str, target: int, new_name: str, key: str = "") -> None:
        """Refuse to move a folder."""
        del folder, target, new_name, key
        raise _refused(name)

    def unlink(self, folder: int, name: str) -> None:
        """Refuse to remove a name."""
        del folder
        raise _refused(name)

    def remove_folder(self, folder: int, name: str) -> None:
        """Refuse to remove a folder."""
        del folder
        raise _refused(name)

    def lock(self, handle: int) -> bool:
        """Take no lock; the answer is that of a free folder."""
        del handle
        return True


def _refused(name: str = "") -> OSError:
    return OSError(errno.EROFS, "these files are only read", name or None)
