"""The system calls that Linux and macOS share, and Windows lacks."""

import fcntl
import os
import select
import sys
from collections.abc import Iterable
from typing import Final

# Type checkers skip the rest for another system, which has no such names.
assert sys.platform != "win32"

OPEN_FLAGS: Final = os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
"""O_NONBLOCK keeps the open of a FIFO from waiting for its other end; it has no effect on files."""

NO_LINK: Final = os.O_NOFOLLOW
FOLDER_FLAGS: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC

own_user: Final = os.geteuid
real_user: Final = os.getuid
read_at: Final = os.pread
read_end: Final = os.read
write_end: Final = os.write
close_end: Final = os.close


def try_lock(handle: int, *, is_shared: bool = False) -> None:
    """Lock an open file; BlockingIOError if another one has it."""
    fcntl.flock(handle, (fcntl.LOCK_SH if is_shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)


def wait_for_lock(handle: int) -> None:
    """Lock an open file alone, as soon as nobody else has it."""
    fcntl.flock(handle, fcntl.LOCK_EX)


def readable(descriptors: Iterable[int], wait_ms: int) -> list[int]:
    """Return the descriptors with something to read; blocks until there is one, or for the time."""
    poll = select.poll()
    for descriptor in descriptors:
        poll.register(descriptor, select.POLLIN)
    return [descriptor for descriptor, _ in poll.poll(wait_ms)]
