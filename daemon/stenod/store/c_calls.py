"""Calls of the C library that Python has no function for: their errors as Python tells them."""

import ctypes
import os


def checked(result: int) -> int:
    """What a call returned, of a library that was opened with `use_errno`; OSError if it failed."""
    if result < 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
    return result
