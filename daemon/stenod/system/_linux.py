"""The system calls of Linux."""

import errno
import os
import resource
import socket
import sys
from contextlib import suppress
from pathlib import Path
from typing import Final

from steno_protocol import paths
from stenod.system.relay_socket import RelaySocket

# Type checkers skip the rest for another system, which has no such names.
assert sys.platform == "linux"

HANDLES: Final = "/proc/self/fd"
"""The folder with a name for each open handle of this process."""

FOLDER_FLAGS: Final = os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC
"""The flags for a folder that is only a place for names; it need not be readable."""

NO_LINK: Final = os.O_NOFOLLOW
own_user: Final = os.geteuid

WRONG_KIND: Final = (errno.ELOOP, errno.ENXIO, errno.EISDIR)
"""Errors for a name that is a link, a socket, a FIFO without a reader, or a folder."""

# The calls themselves: a function around them would cost each append a call.
fdatasync: Final = os.fdatasync
fsync: Final = os.fsync
copy_file_range: Final = os.copy_file_range

filters_uid: Final = True
"""Whether libzmq closes local connections of other users."""

_PASSING_NAME: Final = "stenod.relay"
"""The name of the relay's socket until its handle is open."""


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


def relay_socket(folder: Path, waiting_max: int) -> RelaySocket:
    """Create a listening local socket without a name.

    Args:
        folder: a private folder that has the socket's name for a moment.
        waiting_max: the most connections that wait to be accepted.

    Raises:
        OSError: the socket cannot be created there.
    """
    with socket.socket(socket.AF_UNIX) as listening:
        inside = os.open(folder, FOLDER_FLAGS)
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
