"""The lock of a root, with a note about its holder."""

import errno
import fcntl
import os
import time
from contextlib import suppress
from pathlib import Path

from steno_protocol import limits, paths
from steno_protocol.errors import Held
from steno_system.private_files import make_private, open_private
from stenod.store import syncs


class RootLock:
    """The exclusive lock on a root, a flocked file that the daemon holds for its life.

    The note is written in place, and the file keeps at least `LOCK_NOTE_BYTES`, so that a full disk
    has a block for it.

    Attributes:
        left_by: the note of the last holder, if that was killed or its machine lost power.

    Raises:
        Held: another daemon has the lock; the message names it.
        Unauthorized: the root, or the file, belongs to another user.
    """

    def __init__(self, root: Path) -> None:
        self._path = root / paths.LOCK
        self._handle = open_private(self._path, os.O_RDWR | os.O_CREAT)
        try:
            fcntl.flock(self._handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            note = self._note()
            os.close(self._handle)
            if error.errno not in (errno.EWOULDBLOCK, errno.EACCES):
                raise
            holder = (
                f"pid {note.pid}, version {note.version}, listens at {note.endpoint}"
                if note is not None
                else "it is just starting"
            )
            raise Held(
                f"another stenod owns {root}: {holder}; use that one, or stop it with `steno stop`"
            ) from None
        held = os.fstat(self._handle)
        self._identity = (held.st_dev, held.st_ino)
        self.left_by = self._note()

    @property
    def is_in_place(self) -> bool:
        """Whether the path still leads to the locked file.

        Otherwise another program moved or replaced the root or removed the file, and another daemon
        may have the lock of the file there.
        """
        try:
            found = self._path.lstat()
        except (FileNotFoundError, NotADirectoryError):
            return False
        except OSError:
            # A disk error is no evidence of another daemon.
            return True
        return (found.st_dev, found.st_ino) == self._identity

    def write_note(self, note: bytes) -> None:
        """Write the holder of the lock and its address.

        Raises:
            OSError: the disk is full; clients may not find the holder of the lock.
        """
        data = note.ljust(limits.LOCK_NOTE_BYTES)
        try:
            if os.pwrite(self._handle, data, 0) < len(data):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            os.ftruncate(self._handle, len(data))
        except OSError as error:
            raise OSError(error.errno, os.strerror(error.errno or 0), str(self._path)) from None

    def touch(self) -> None:
        """Set the file's time: the daemon has answered a client just now.

        A client that gets no answer reads it before it advises anything about the process.
        """
        # On a full or read-only disk the advice is less careful, and nothing else is wrong.
        with suppress(OSError):
            os.utime(self._handle)

    def release(self) -> None:
        """Give the root up."""
        # If the note cannot be cleared, the daemon looks killed, and the lock is free all the same.
        with suppress(OSError):
            self.write_note(b"")
        os.close(self._handle)

    def _note(self) -> paths.LockNote | None:
        # A long path makes a longer note than the bytes that are kept for it.
        return paths.read_lock_note(
            lambda: os.pread(self._handle, os.fstat(self._handle).st_size, 0), time.sleep
        )


def make_root(root: Path) -> None:
    """Create a root and missing folders above it, and sync its name even if it existed.

    Its creator may have died before the sync, and acknowledged bytes would be lost with the name.

    Raises:
        OSError: the root cannot be created, is not a folder, or the disk failed.
    """
    make_private(root, syncs.fsync_folder)
    for each in (root.parent, root):
        # A folder that the user may not read was not created by this user.
        with suppress(PermissionError):
            syncs.fsync_folder(each)
