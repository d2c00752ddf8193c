"""The system calls of macOS; each also runs on Linux, so that tests can call it.

No test has run on a Mac yet, so support is experimental.
"""

import ctypes
import errno
import fcntl
import os
import resource
import socket
import struct
import sys
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

from steno_protocol.errors import Unauthorized

if TYPE_CHECKING:
    from steno_system.relay import RelaySocket

# Type checkers skip the rest for Windows, which has no such names.
assert sys.platform != "win32"

HANDLES: Final = "/dev/fd"
"""The folder with a name for each open handle of this process."""

PLACE_FLAGS: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
"""The flags for a folder that is only a place for names."""

WRONG_KIND: Final = (errno.ELOOP, errno.ENXIO, errno.EISDIR, errno.EOPNOTSUPP)
"""Errors for a name that is a link, a FIFO without a reader, a folder, or a socket."""

filters_uid: Final = False
"""Whether libzmq closes local connections of other users; the socket's folder keeps them out."""

_F_FULLFSYNC: Final = 51
"""The command's number in <sys/fcntl.h> of macOS: flush the drive's own cache, too."""

_NO_FULL_SYNC: Final = (errno.EINVAL, errno.ENOTSUP, errno.ENOTTY)
"""Errors of a file system without F_FULLFSYNC, such as a network share."""

_SOL_LOCAL: Final = 0
_LOCAL_PEERCRED: Final = 1
"""The level and the option's number in <sys/un.h> of macOS."""

_CREDENTIALS: Final = struct.Struct("=II")
"""Version and uid: the beginning of `struct xucred` of <sys/ucred.h>."""

_CREDENTIALS_BYTES: Final = 76
_CREDENTIALS_VERSION: Final = 0

_RENAME_EXCL: Final = 4
"""The flag's number in <sys/stdio.h> of macOS."""

_HANDLES_MAX: Final = 10_240
"""OPEN_MAX of macOS: setrlimit refuses a higher soft limit of file handles."""

_BOOT_BYTES: Final = 64


def fsync(handle: int) -> None:
    """Make a file, or a folder's names, durable, through the cache of the drive.

    A file system without F_FULLFSYNC gets the plain sync, after which the drive may still lose the
    bytes in a power cut.

    Source: fcntl(2) of macOS.
    """
    try:
        fcntl.fcntl(handle, _F_FULLFSYNC)
    except OSError as error:
        if error.errno not in _NO_FULL_SYNC:
            raise
        os.fsync(handle)


fdatasync: Final = fsync
"""macOS has no sync of the content alone."""


def copy_file_range(
    src: int, dst: int, count: int, offset_src: int | None = None, offset_dst: int | None = None
) -> int:
    """Refuse: the kernel copies no ranges, so the caller copies the bytes itself."""
    del src, count, offset_src, offset_dst
    # As the kernel's copy does, also for a source without bytes.
    if fcntl.fcntl(dst, fcntl.F_GETFL) & os.O_ACCMODE == os.O_RDONLY:
        raise OSError(errno.EBADF, os.strerror(errno.EBADF))
    raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))


def anonymous_file() -> int:
    """Return a new file without a name, in the folder for temporary files."""
    with tempfile.TemporaryFile() as file:
        return os.dup(file.fileno())


def spare_handle() -> int:
    """Return a new handle of nothing, to learn whether one is free."""
    return os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)


def wakeup_handles() -> tuple[int, int]:
    """Return the ends to wait at and to write to, of a pipe; they do not block.

    What is written has eight bytes, and makes the first end readable until it is read.
    """
    ends = os.pipe()
    for end in ends:
        os.set_blocking(end, False)
    return ends


def listener_of(connected: socket.socket) -> int:
    """Return the user of the process that listens at the other end of a local connection.

    Raises:
        OSError: the connection has ended.
        Unauthorized: the system reports a structure that is not known here.
    """
    found = connected.getsockopt(_SOL_LOCAL, _LOCAL_PEERCRED, _CREDENTIALS_BYTES)
    if len(found) < _CREDENTIALS.size:
        raise OSError(errno.ENOTCONN, os.strerror(errno.ENOTCONN))
    version, user = _CREDENTIALS.unpack_from(found)
    if version != _CREDENTIALS_VERSION:
        raise Unauthorized("this version of macOS does not name the owner of a socket as expected")
    return int(user)


def process_of(pid: int, lock: os.stat_result | None) -> int | None:
    """Return `pid` if there is such a process: macOS shows no files of other processes.

    The caller knows that the lock is held; on macOS no daemon runs in another pid namespace.
    """
    if lock is None or pid <= 0:
        return None
    try:
        os.kill(pid, 0)
    except PermissionError:
        return pid
    except (OSError, OverflowError):
        return None
    return pid


def lacks_handles(pid: int) -> bool:
    """False: macOS shows the limit and the files of no other process."""
    del pid
    return False


def try_turn(handle: int, path: Path, turn: int) -> int | None:
    """Try the lock of a later turn; return the handle that holds it, None if it is taken.

    A lock of a file of its own: here locks of bytes and of files exclude each other, so the first
    turn's lock would refuse every later one.

    Args:
        handle: the open start lock.
        path: its path.
        turn: the number of the turn, from 1.
    """
    del handle
    flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
    opened = os.open(path.with_name(f"{path.name}.{turn}"), flags, 0o600)
    try:
        fcntl.flock(opened, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(opened)
        return None
    return opened


def rename_exclusively(old: Path, new: Path) -> bool:
    """Rename without replacing; False where the file system cannot.

    Raises:
        FileExistsError: the new name is taken.
        OSError: the rename failed.
    """
    rename = getattr(ctypes.CDLL(None, use_errno=True), "renamex_np", None)
    if rename is None:
        return False
    failed = rename(os.fsencode(old), os.fsencode(new), ctypes.c_uint(_RENAME_EXCL))
    number = ctypes.get_errno() if failed else 0
    if number in {errno.ENOTSUP, errno.ENOSYS, errno.EINVAL}:
        return False
    if number:
        raise OSError(number, os.strerror(number), str(old), None, str(new))
    return True


def boot_id() -> str:
    """Return an identifier of this boot of this machine; empty if the system does not say."""
    text, size = ctypes.create_string_buffer(_BOOT_BYTES), ctypes.c_size_t(_BOOT_BYTES)
    with suppress(AttributeError, OSError):
        failed = ctypes.CDLL(None).sysctlbyname(
            b"kern.bootsessionuuid", text, ctypes.byref(size), None, ctypes.c_size_t(0)
        )
        if not failed:
            return text.value.decode("ascii", errors="replace")
    return ""


def resident_bytes() -> int:
    """Return the most memory that this process has used, in bytes: no call reports the present."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def raise_handle_limit() -> None:
    """Raise the soft limit of file handles, which is 256 by default, as far as macOS allows."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _HANDLES_MAX if hard == resource.RLIM_INFINITY else min(hard, _HANDLES_MAX)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        with suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def relay_socket(folder: Path, waiting_max: int) -> "RelaySocket":
    """Create a listening local socket in a new private folder with a short path.

    A socket needs a name here, so other processes of this user can connect; each still has to
    present an admitted key. The root's own path may be too long for a socket.

    Args:
        folder: the root, which is not used.
        waiting_max: the most connections that wait to be accepted.

    Raises:
        OSError: the socket cannot be created.
    """
    # Imported only here: clients have no relay.
    from steno_system.relay import RelaySocket  # noqa: PLC0415

    del folder
    # Not TMPDIR, whose path takes half of the 104 bytes of a socket's.
    place = tempfile.mkdtemp(prefix="steno-relay-", dir="/tmp")
    path = f"{place}/socket"
    with socket.socket(socket.AF_UNIX) as listening:
        try:
            listening.bind(path)
            listening.listen(waiting_max)
        except OSError:
            RelaySocket(-1, path, folder=place).close()
            raise
        return RelaySocket(listening.detach(), path, folder=place)
