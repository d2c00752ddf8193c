"""`python -m support.hoarding_daemon`: a daemon whose C library gives nothing back by itself.

Its rounds come as often as a test can wait.
"""

import ctypes
import sys

from steno_protocol import limits
from stenod.cli import main
from stenod.runtime import memory


def hoard() -> None:
    """Have all memory come from a heap of which nothing is given back without being asked for."""
    mallopt = ctypes.CDLL(None).mallopt
    mallopt(memory._M_TRIM_THRESHOLD, 1024 * limits.MIB)
    mallopt(memory._M_MMAP_THRESHOLD, 32 * limits.MIB)
    # Of the heaps of libzmq's threads glibc would trim only what is free in their middle.
    mallopt(memory._M_ARENA_MAX, 1)


if __name__ == "__main__":
    limits.HOUSEKEEPING_S = 0.05  # type: ignore[misc]  # pyright: ignore[reportConstantRedefinition]
    memory.limit_heaps = hoard
    sys.exit(main())
