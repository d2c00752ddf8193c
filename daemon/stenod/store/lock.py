"""The lock of a root: an flocked file that is held for the daemon's life and says who holds it."""

import errno
import fcntl
import os
import stat
from pathlib import Path

from steno_protocol import places
from steno_protocol.errors import Held, Unauthorized


class RootLock:
    """The exclusive lock on a root.

    Raises:
        Held: another daemon has it; the message says which.
    """

    def __init__(self, root: Path) -> None:
        self._path = root / places.LOCK
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
        self._handle = os.open(self._path, flags, 0o600)
        try:
            fcntl.flock(self._handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            holder = os.pread(self._handle, 4096, 0).decode(errors="replace").strip()
            os.close(self._handle)
            if error.errno not in (errno.EWOULDBLOCK, errno.EACCES):
                raise
            raise Held(
                f"another stenod owns {root}: {holder or 'it is just starting'}; use that one, or"
                " stop it with `steno stop`"
            ) from None

    def tell(self, note: bytes) -> None:
        """Write who holds the lock and where it listens."""
        os.ftruncate(self._handle, 0)
        os.pwrite(self._handle, note, 0)

    def release(self) -> None:
        """Give the root up."""
        os.ftruncate(self._handle, 0)
        os.close(self._handle)


def check_private(root: Path) -> None:
    """Refuse a root in which somebody else could put other files in place of ours.

    Raises:
        Unauthorized: it is another user's, or everybody may write it.
    """
    found = root.stat()
    if found.st_uid != os.geteuid():
        raise Unauthorized(
            f"{root} belongs to user {found.st_uid}, and this is user {os.geteuid()}: run as that"
            " user, or choose another --root"
        )
    if found.st_mode & stat.S_IWOTH:
        raise Unauthorized(f"everybody may write to {root}: take that away with `chmod o-w {root}`")
