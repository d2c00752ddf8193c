"""Idempotency keys: a uuid7 names one command for ever, and sorts by the time it was made."""

import os
import time
from typing import Final

_ENDS_TOGETHER: Final = 64
"""Keys whose random bits are drawn at once: a system call costs more than making a key."""

_VARIANT: Final = dict(zip("0123456789abcdef", "89ab" * 4, strict=True))
"""For 4 random bits the digit that has 2 of them behind the variant's, which are 10."""

_ends: Final[list[str]] = []
# A child would go on with the same ends as its parent.
os.register_at_fork(after_in_child=_ends.clear)


def new_key() -> str:
    """A fresh key: 36 characters, 48 bits of milliseconds and 74 random bits.

    Source: RFC 9562, section 5.7.
    """
    try:
        # One step, so that two threads never get the same.
        end = _ends.pop()
    except IndexError:
        end, *more = _draw_ends()
        _ends.extend(more)
    start = f"{time.time_ns() // 1_000_000 & 0xFFFF_FFFF_FFFF:012x}"
    return f"{start[:8]}-{start[8:]}-{end}"


def _draw_ends() -> list[str]:
    """What follows the milliseconds in so many keys."""
    drawn = os.urandom(10 * _ENDS_TOGETHER).hex()
    pieces = [drawn[start : start + 20] for start in range(0, len(drawn), 20)]
    return [f"7{each[:3]}-{_VARIANT[each[3]]}{each[4:7]}-{each[7:19]}" for each in pieces]
