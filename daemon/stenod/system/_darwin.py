"""The system calls of macOS; each also runs on Linux, so that tests can call it.

No test has run on a Mac yet, so support is experimental.
"""

import ctypes
import errno
import fcntl
import os
import resource
import socket
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Final

from stenod.system.relay_socket import RelaySocket

HANDLES: Final = "/dev/fd"
"""The folder with a name for each open handle of this process."""

FOLDER_FLAGS: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
"""The flags for a folder that is only a place for names."""

NO_LINK: Final = os.O_NOFOLLOW
own_user: Final = os.geteuid

WRONG_KIND: Final = (errno.ELOOP, errno.ENXIO, errno.EISDIR, errno.EOPNOTSUPP)
"""Errors for a name that is a link, a FIFO without a reader, a folder, or a socket."""

filters_uid: Final = False
"""Whether libzmq closes local connections of other users; the socket's folder keeps them out."""

_F_FULLFSYNC: Final = 51
"""The command's number in <sys/fcntl.h> of macOS: flush the drive's own cache, too."""

_NO_FULL_SYNC: Final = (errno.EINVAL, errno.ENOTSUP, errno.ENOTTY)
"""Errors of a file system without F_FULLFSYNC, such as a network share."""

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


def relay_socket(folder: Path, waiting_max: int) -> RelaySocket:
    """Create a listening local socket in a new private folder with a short path.

    A socket needs a name here, so other processes of this user can connect; each still has to
    present an admitted key. The root's own path may be too long for a socket.

    Args:
        folder: the root, which is not used.
        waiting_max: the most connections that wait to be accepted.

    Raises:
        OSError: the socket cannot be created.
    """
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
