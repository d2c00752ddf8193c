"""Idempotency keys: a uuid7 names one command for ever, and sorts by the time it was made."""

import os
import time
from typing import Final

_VERSION_7: Final = 0x7 << 76
_VARIANT: Final = 0b10 << 62
_RANDOM_A: Final = 0xFFF << 64
_RANDOM_B: Final = (1 << 62) - 1


def new_key() -> str:
    """A fresh key: 36 characters, 48 bits of milliseconds and 74 random bits.

    Source: RFC 9562, section 5.7.
    """
    milliseconds = time.time_ns() // 1_000_000
    random = int.from_bytes(os.urandom(10), "big")
    value = (
        (milliseconds & 0xFFFF_FFFF_FFFF) << 80
        | _VERSION_7
        | (random & _RANDOM_A)
        | _VARIANT
        | (random & _RANDOM_B)
    )
    text = f"{value:032x}"
    return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"
