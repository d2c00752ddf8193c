"""A disk that is only read: no call of it changes a file, its times or its locks."""

import errno
import os
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from typing import NoReturn

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

    def _refuse(self, *arguments: object, **_: object) -> NoReturn:
        name = next((each for each in arguments if isinstance(each, str)), None)
        raise OSError(errno.EROFS, "these files are only read", name)

    open_new = write = truncate = copy = link = rename = move = unlink = remove_folder = _refuse

    def _do_nothing(self, *_: object, **__: object) -> None:
        """Do nothing: the file has these bytes, and only the owner knows what is durable."""

    mark_size_dirty = overwrite = copy_time = fdatasync = fsync = _do_nothing

    @contextmanager
    def unmodified(self, handle: int) -> Generator[None]:
        """Do nothing: no time changes."""
        del handle
        yield

    def fdatasync_all(self, handles: Sequence[int]) -> list[OSError | None]:
        """Do nothing, as for one file."""
        return [None] * len(handles)

    def lock(self, handle: int) -> bool:
        """Take no lock; the answer is that of a free folder."""
        del handle
        return True
