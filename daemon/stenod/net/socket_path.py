"""The path of the local socket, checked before and after the bind."""

import os
import stat
from contextlib import suppress
from pathlib import Path

from steno_protocol import paths
from steno_protocol.errors import StorageFailed
from steno_system.private_files import make_private


class SocketPath:
    """The path of a bound socket of this process.

    Args:
        path: the socket's path.
        is_inherited: the service manager created the socket, and removes it.
    """

    def __init__(self, path: Path, *, is_inherited: bool) -> None:
        self._path = path
        self._is_inherited = is_inherited
        self._inode = path.stat().st_ino

    @property
    def is_reachable(self) -> bool:
        """Whether clients can connect; False once the socket was removed or replaced."""
        try:
            return self._path.stat().st_ino == self._inode
        except OSError:
            return False

    def remove(self) -> None:
        """Remove the socket, unless it is inherited or another file has its path."""
        if self.is_reachable and not self._is_inherited:
            with suppress(OSError):
                self._path.unlink()


def prepare(path: Path) -> None:
    """Create the socket's folder and remove a stale socket; the caller holds the root's lock.

    Raises:
        StorageFailed: the path exists and is not a socket of this user.
        Unauthorized: another user could create a socket at the path.
    """
    make_private(path.parent)
    for found in (path.parent.lstat(), path.parent.stat()):
        paths.check_socket_folder(
            str(path.parent), owner=found.st_uid, mode=found.st_mode, own=os.getuid()
        )
    try:
        found = path.lstat()
    except FileNotFoundError:
        return
    if not stat.S_ISSOCK(found.st_mode) or found.st_uid != os.getuid():
        raise StorageFailed(
            f"{path} exists and is not a socket of this user: move it away, or choose another"
            " --socket"
        )
    path.unlink()
