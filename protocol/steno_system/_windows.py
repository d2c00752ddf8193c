"""The system calls of a client on Windows, which reaches a daemon over TCP alone.

Nothing that belongs to a root is here: its locks, its files and its daemon need the calls of the
other systems. No test has run on Windows yet; this module also runs on Linux, where tests call it.
"""

# The names of the arguments are those of the other systems.
# ruff: noqa: ARG001

import errno
import os
import select
import socket
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Final, NoReturn

WRONG_KIND: Final = (errno.ELOOP,)
OPEN_FLAGS: Final = int(getattr(os, "O_BINARY", 0)) | int(getattr(os, "O_NOINHERIT", 0))
NO_LINK: Final = 0
FOLDER_FLAGS: Final = os.O_RDONLY

fsync: Final = os.fsync
fdatasync: Final = os.fsync

_waking: Final[dict[int, socket.socket]] = {}
"""The ends of wakeups by their numbers: Windows waits for sockets alone."""


def own_user() -> int:
    """Return 0, the owner that Python reports of every file on Windows."""
    return 0


real_user: Final = own_user


def spare_handle() -> int:
    """Return a new handle of nothing, to learn whether one is free."""
    return os.open(os.devnull, os.O_RDONLY)


def wakeup_handles() -> tuple[int, int]:
    """Return the ends to wait at and to write to; they do not block.

    What is written has eight bytes, and makes the first end readable until it is read.
    """
    ends = socket.socketpair()
    for end in ends:
        end.setblocking(False)
        _waking[end.fileno()] = end
    return ends[0].fileno(), ends[1].fileno()


def read_end(end: int, size: int) -> bytes:
    """Read from the end of a wakeup; BlockingIOError if nothing was written."""
    return _waking[end].recv(size)


def write_end(end: int, data: bytes) -> int:
    """Write to the end of a wakeup; BlockingIOError if it is full."""
    return _waking[end].send(data)


def close_end(end: int) -> None:
    """Close the end of a wakeup."""
    _waking.pop(end).close()


def readable(descriptors: Iterable[int], wait_ms: int) -> list[int]:
    """Return the sockets with something to read; blocks until there is one, or for the time."""
    waited = list(descriptors)
    if not waited:
        # `select` of Windows refuses to wait for nothing.
        time.sleep(wait_ms / 1000)
        return []
    found, _, _ = select.select(waited, [], [], wait_ms / 1000)
    return found


def boot_id() -> str:
    """Return nothing: files of a daemon are not read on Windows."""
    return ""


def read_at(handle: int, size: int, offset: int) -> NoReturn:
    """Refuse: files of a daemon are not read on Windows."""
    raise _missing()


def try_lock(handle: int, *, is_shared: bool = False) -> NoReturn:
    """Refuse: roots are not used on Windows."""
    raise _missing()


def wait_for_lock(handle: int) -> NoReturn:
    """Refuse: roots are not used on Windows."""
    raise _missing()


def try_turn(handle: int, path: Path, turn: int) -> int | None:
    """Refuse: no daemon is started on Windows."""
    raise _missing()


def anonymous_file() -> int:
    """Refuse: no daemon is started on Windows."""
    raise _missing()


def listener_of(connected: socket.socket) -> int:
    """Refuse: there are no local sockets."""
    raise _missing()


def process_of(pid: int, lock: os.stat_result | None) -> int | None:
    """Return None: there are no local daemons."""
    return None


def lacks_handles(pid: int) -> bool:
    """Return False: there are no local daemons."""
    return False


def rename_exclusively(old: Path, new: Path) -> bool:
    """Rename without replacing, as every rename of Windows.

    Raises:
        FileExistsError: the new name is taken.
    """
    old.rename(new)
    return True


def _missing() -> OSError:
    return OSError(errno.ENOSYS, "a root is not used on Windows: give the address of a daemon")
