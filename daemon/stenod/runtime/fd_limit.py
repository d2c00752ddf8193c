"""The limit of open file handles, with a reserve for essential work."""

import os
import resource
import sys
from collections.abc import Callable
from typing import Final

import steno_system as system
from steno_protocol import limits
from steno_protocol.errors import StorageFailed

Count = Callable[[], int]
"""Returns the number of open handles."""

_RESERVE_SHARE: Final = 8


def open_handles() -> int:
    """Count the open handles of this process, without the one that counting takes.

    Raises:
        FileNotFoundError: the system does not report them.
        OSError: no handle is left for counting.
    """
    return len(os.listdir(system.HANDLES)) - 1  # noqa: PTH208 (a count: no Paths are made)


class HandleLimit:
    """Limit for code that asks before it takes handles; a reserve is left to code that does not.

    The reserve is an eighth, and at most `HANDLES_RESERVE_MAX`. Reads and rewrites use it, and so
    do new connections: libzmq accepts them by itself, and aborts the process without a handle.

    Handles are counted again only when those that were free at the last count may be taken.

    Args:
        most: the number of handles that the process may have.
        count: returns the number of open handles.

    Attributes:
        set_aside: returns the number of free handles that connections from other machines may
            still take without asking.
    """

    def __init__(self, most: int = sys.maxsize, count: Count = open_handles) -> None:
        self.most = most
        self.set_aside: Callable[[], int] = lambda: 0
        self._reserve = min(limits.HANDLES_RESERVE_MAX, most // _RESERVE_SHARE)
        self._count = count
        self._left = 0

    def take(self, handles: int) -> bool:
        """Reserve this many handles; False if they are not free."""
        if self._left < handles:
            self._left = self.most - self._reserve - self.set_aside() - self._taken()
        if self._left < handles:
            return False
        self._left -= handles
        return True

    def _taken(self) -> int:
        try:
            return self._count()
        except FileNotFoundError:
            return 0
        except OSError:
            return self.most


def process_limit() -> HandleLimit:
    """Return the limit of this process."""
    return HandleLimit(_soft_limit())


def check_enough() -> None:
    """Refuse to start with too few handles to serve a client.

    Raises:
        StorageFailed: the limit is below `HANDLES_MIN`.
    """
    most = _soft_limit()
    if most < limits.HANDLES_MIN:
        raise StorageFailed(
            f"this process may have {most} files open, and a daemon needs at least"
            f" {limits.HANDLES_MIN}: raise the limit (ulimit -n)"
        )


def _soft_limit() -> int:
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return sys.maxsize if soft == resource.RLIM_INFINITY else soft
