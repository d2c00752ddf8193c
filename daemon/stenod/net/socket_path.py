"""The path of the local socket: the checks before it is bound, and whether it still is ours."""

import os
import stat
from contextlib import suppress
from pathlib import Path

from steno_protocol import paths
from steno_protocol.errors import StorageFailed


class SocketPath:
    """A path at which this process listens.

    Args:
        path: of the socket, which is bound.
        is_lent: the service manager made the socket and removes it.
    """

    def __init__(self, path: Path, *, is_lent: bool) -> None:
        self._path = path
        self._is_lent = is_lent
        self._inode = path.stat().st_ino

    @property
    def is_reachable(self) -> bool:
        """False when the socket was removed or replaced, so that no client can connect."""
        try:
            return self._path.stat().st_ino == self._inode
        except OSError:
            return False

    def remove(self) -> None:
        """Remove the socket, unless it is lent or another one lies at its path."""
        if self.is_reachable and not self._is_lent:
            with suppress(OSError):
                self._path.unlink()


def prepare(path: Path) -> None:
    """Make the folder of a socket and remove a stale socket; for the holder of the root's lock.

    Raises:
        StorageFailed: something else than a socket of ours lies at the path.
        Unauthorized: another user could put a socket of their own there.
    """
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
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
