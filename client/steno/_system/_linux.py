"""The system calls of Linux."""

import errno
import fcntl
import os
import resource
import socket
import struct
import sys
from contextlib import suppress
from pathlib import Path
from typing import Final

from steno_protocol import paths

# Type checkers skip the rest for another system, which has no such names.
assert sys.platform == "linux"

WRONG_KIND: Final = (errno.ELOOP, errno.ENXIO, errno.EISDIR)
"""Errors for a name that is a link, a socket, a FIFO without a reader, or a folder."""

_CREDENTIALS: Final = struct.Struct("=iII")
"""pid, uid and gid: `struct ucred` of unix(7)."""

_BYTE_LOCK: Final = struct.Struct("hhqqi0q")
"""type, from where, start, length, pid: `struct flock` of fcntl(2), in the machine's own layout."""

_HERE: Final = -100
"""AT_FDCWD: a relative path begins at the working directory."""

_NOREPLACE: Final = 1
"""RENAME_NOREPLACE of `renameat2`, Linux 3.15."""

fsync: Final = os.fsync
fdatasync: Final = os.fdatasync


def anonymous_file() -> int:
    """Return a new file without a name, in memory: there may be no folder for temporary files."""
    return os.memfd_create("stenod")


def spare_handle() -> int:
    """Return a new handle of nothing, to learn whether one is free."""
    return os.eventfd(0, os.EFD_CLOEXEC)


def wakeup_handles() -> tuple[int, int]:
    """Return the ends to wait at and to write to; they do not block, and may be one handle.

    What is written has eight bytes, and makes the first end readable until it is read.
    """
    handle = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
    return handle, handle


def listener_of(connected: socket.socket) -> int:
    """Return the user of the process that listens at the other end of a local connection."""
    found = connected.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    _, user, _ = _CREDENTIALS.unpack(found)
    return int(user)


def process_of(pid: int, lock: os.stat_result | None) -> int | None:
    """Return `pid` if that process has the lock's file open; None if this process cannot see it."""
    with suppress(OSError):
        for handle in Path(f"/proc/{pid}/fd").iterdir():
            with suppress(OSError):
                if lock is not None and os.path.samestat(handle.stat(), lock):
                    return pid
    return None


def lacks_handles(pid: int) -> bool:
    """Whether it has opened seven eighths of its files, and so closes new connections at once."""
    with suppress(OSError, ValueError):
        taken = len(os.listdir(f"/proc/{pid}/fd"))  # noqa: PTH208 (a count, and no Paths are made)
        most, _ = resource.prlimit(pid, resource.RLIMIT_NOFILE)
        return taken + 1 >= most * 7 // 8
    return False


def try_turn(handle: int, path: Path, turn: int) -> int | None:
    """Try the lock of a later turn; return the handle that holds it, None if it is taken.

    A lock of the open file, as the first turn, so that threads of one process exclude each other.

    Args:
        handle: the open start lock.
        path: its path.
        turn: the number of the turn, from 1.
    """
    del path
    wanted = _BYTE_LOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, turn, 1, 0)
    try:
        fcntl.fcntl(handle, fcntl.F_OFD_SETLK, wanted)
    except (BlockingIOError, PermissionError):
        return None
    return handle


def rename_exclusively(old: Path, new: Path) -> bool:
    """Rename without replacing; False where the system cannot.

    Raises:
        FileExistsError: the new name is taken.
        OSError: the rename failed.
    """
    import ctypes  # noqa: PLC0415 (needed for new files alone)

    rename = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)
    if rename is None:
        return False
    failed = rename(_HERE, os.fsencode(old), _HERE, os.fsencode(new), _NOREPLACE)
    number = ctypes.get_errno() if failed else 0
    if number in {errno.ENOSYS, errno.EINVAL}:
        return False
    if number:
        raise OSError(number, os.strerror(number), str(old), None, str(new))
    return True


def boot_id() -> str:
    """Return an identifier of this machine and its boot; empty if it cannot be read."""
    try:
        return Path(paths.BOOT_ID).read_text(encoding="ascii").strip()
    except OSError:
        return ""
