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
from typing import TYPE_CHECKING, Final

from steno_protocol import paths

if TYPE_CHECKING:
    from steno_system.relay import RelaySocket

# Type checkers skip the rest for another system, which has no such names.
assert sys.platform == "linux"

HANDLES: Final = "/proc/self/fd"
"""The folder with a name for each open handle of this process."""

PLACE_FLAGS: Final = os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC
"""The flags for a folder that is only a place for names; it need not be readable."""

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

filters_uid: Final = True
"""Whether libzmq closes local connections of other users."""

_PASSING_NAME: Final = "stenod.relay"
"""The name of the relay's socket until its handle is open."""

# The calls themselves: a function around them would cost each append a call.
fdatasync: Final = os.fdatasync
fsync: Final = os.fsync
copy_file_range: Final = os.copy_file_range


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


def resident_bytes() -> int:
    """Return the memory that this process uses now, in bytes.

    Raises:
        OSError, ValueError, IndexError: the system does not report it.
    """
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    return pages * os.sysconf("SC_PAGESIZE")


def raise_handle_limit() -> None:
    """Raise the soft limit of file handles to the hard one."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def relay_socket(folder: Path, waiting_max: int) -> "RelaySocket":
    """Create a listening local socket without a name.

    Args:
        folder: a private folder that has the socket's name for a moment.
        waiting_max: the most connections that wait to be accepted.

    Raises:
        OSError: the socket cannot be created there.
    """
    # Imported only here: clients have no relay.
    from steno_system.relay import RelaySocket  # noqa: PLC0415

    with socket.socket(socket.AF_UNIX) as listening:
        inside = os.open(folder, PLACE_FLAGS)
        try:
            # A path of any length becomes a short one, as an address of a socket has to be.
            path = Path(f"{HANDLES}/{inside}/{_PASSING_NAME}")
            # A daemon that was killed may have left it.
            path.unlink(missing_ok=True)
            listening.bind(str(path))
            handle = os.open(path, os.O_PATH | os.O_CLOEXEC)
            path.unlink()
        finally:
            os.close(inside)
        listening.listen(waiting_max)
        return RelaySocket(listening.detach(), f"{HANDLES}/{handle}", (handle,))
