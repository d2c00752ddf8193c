"""`python -m e2e.untrimmed_daemon`: a daemon that keeps freed memory.

Its housekeeping is so frequent that a test can wait for it.
"""

import ctypes
import sys

from steno_protocol import limits
from stenod.cli import main
from stenod.runtime import memory


def keep_memory() -> None:
    """Take all memory from a heap that returns nothing without a request."""
    mallopt = ctypes.CDLL(None).mallopt
    mallopt(memory._M_TRIM_THRESHOLD, 1024 * limits.MIB)
    mallopt(memory._M_MMAP_THRESHOLD, 32 * limits.MIB)
    # glibc trims the heaps of libzmq's threads only in their middle.
    mallopt(memory._M_ARENA_MAX, 1)


if __name__ == "__main__":
    limits.HOUSEKEEPING_S = 0.05  # type: ignore[misc]  # pyright: ignore[reportConstantRedefinition]
    memory.limit_heaps = keep_memory
    sys.exit(main())
