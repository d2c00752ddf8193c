"""How many file handles the process may still take, so that some are left for what has to go on."""

import os
import resource
import sys
from collections.abc import Callable
from typing import Final

from steno_protocol import limits
from steno_protocol.errors import StorageFailed

Count = Callable[[], int]
"""Returns the number of open handles."""

_RESERVE_SHARE: Final = 8


def open_handles() -> int:
    """How many handles this process has, but for the one that the question takes.

    Raises:
        FileNotFoundError: the system does not report it.
        OSError: none is left to ask with.
    """
    return len(os.listdir("/proc/self/fd")) - 1  # noqa: PTH208 (a count: no Paths are made)


class HandleLimit:
    """Code that asks before it takes handles leaves some to code that does not.

    An eighth, of `HANDLES_RESERVE_MAX` at most, is kept for reads and rewrites, and for new
    connections: libzmq accepts them by itself, and ends a process that has no handle for one.

    Handles are counted only when those that were left at the last count may have been taken by now.

    Args:
        most: handles that the process may have.
        count: how many it has.

    Attributes:
        most: handles that the process may have.
    """

    def __init__(self, most: int = sys.maxsize, count: Count = open_handles) -> None:
        self.most = most
        self._reserve = min(limits.HANDLES_RESERVE_MAX, most // _RESERVE_SHARE)
        self._count = count
        self._left = 0

    def take(self, handles: int) -> bool:
        """Whether so many more may be taken; if so, they count as taken from now on."""
        if self._left < handles:
            self._left = self.most - self._reserve - self._taken()
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
    """The limit that the system sets this process."""
    return HandleLimit(_soft_limit())


def check_enough() -> None:
    """Refuse to begin with so few handles that hardly a client could be served.

    Raises:
        StorageFailed: there are fewer than `HANDLES_MIN`.
    """
    most = _soft_limit()
    if most < limits.HANDLES_MIN:
        raise StorageFailed(
            f"this process may have {most} files open, and a daemon needs {limits.HANDLES_MIN} at"
            " least: raise the limit (ulimit -n)"
        )


def _soft_limit() -> int:
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return sys.maxsize if soft == resource.RLIM_INFINITY else soft
