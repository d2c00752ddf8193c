"""Many files made durable at once, by the kernel's own threads: `io_submit` with FDSYNC.

One fdatasync after the other makes a journaling file system commit as many times; side by side they
share a commit. Threads of ours would do, too, but each costs two turns of the interpreter.

Source: Linux, include/uapi/linux/aio_abi.h; io_submit(2). FDSYNC is there since Linux 4.18.
"""

import contextlib
import ctypes
import errno
import os
import platform
import struct
from collections.abc import Sequence
from functools import cache
from typing import Any, Final

from stenod.store.c_calls import checked

_MANY: Final = 64
"""Files that are given to the kernel at once; an operation is 64 bytes, and so many are kept."""

_FDSYNC: Final = 3

_CALLS: Final = {"x86_64": (206, 209, 208), "aarch64": (0, 2, 4)}
"""Numbers of io_setup, io_submit and io_getevents, by machine."""

_OPERATION: Final = struct.Struct("<QIIHhIQQqQII")
"""data, key, flags, opcode, priority, file, buffer, size, offset, reserved, flags, result file."""

_EVENT: Final = struct.Struct("<QQqq")
"""data, operation, result, second result."""


class KernelSyncs:
    """A context of the kernel for operations on files; for one thread, until the process ends.

    Raises:
        OSError: the kernel has none for us.
    """

    def __init__(self) -> None:
        numbers = _CALLS.get(platform.machine())
        if numbers is None or ctypes.sizeof(ctypes.c_void_p) != 8:
            raise OSError(errno.ENOSYS, "the numbers of the calls are not known")
        self._library = ctypes.CDLL(None, use_errno=True)
        setup, self._submit, self._getevents = numbers
        self._context = ctypes.c_ulong(0)
        self._operations = (ctypes.c_char * (_OPERATION.size * _MANY))()
        start = ctypes.addressof(self._operations)
        self._pointers = (ctypes.c_void_p * _MANY)(
            *(start + _OPERATION.size * number for number in range(_MANY))
        )
        self._events = (ctypes.c_char * (_EVENT.size * _MANY))()
        self._call(setup, ctypes.c_uint(_MANY), ctypes.byref(self._context))

    def fdatasync(self, handles: Sequence[int]) -> list[OSError | None]:
        """Make so many files durable; blocks. What became of those that were begun, the first ones.

        Raises:
            OSError: none was begun.
        """
        for number, handle in enumerate(handles):
            _OPERATION.pack_into(
                self._operations, _OPERATION.size * number,
                number, 0, 0, _FDSYNC, 0, handle, 0, 0, 0, 0, 0, 0,
            )  # fmt: skip
        count = self._call(self._submit, self._context, ctypes.c_long(len(handles)), self._pointers)
        outcomes: list[OSError | None] = [None] * count
        while count:
            found = self._wait(count)
            for number in range(found):
                which, _, result, _ = _EVENT.unpack_from(self._events, _EVENT.size * number)
                if result:
                    outcomes[which] = OSError(-result, os.strerror(-result))
            count -= found
        return outcomes

    def _wait(self, count: int) -> int:
        while True:
            try:
                return self._call(
                    self._getevents,
                    self._context,
                    ctypes.c_long(1),
                    ctypes.c_long(count),
                    self._events,
                    None,
                )
            except InterruptedError:
                continue

    def _call(self, number: int, *arguments: Any) -> int:
        return checked(int(self._library.syscall(ctypes.c_long(number), *arguments)))


def fdatasync_all(handles: Sequence[int]) -> list[OSError | None]:
    """Make files durable, at the same time if the kernel can; what became of each of them."""
    outcomes: list[OSError | None] = []
    context = _context() if len(handles) > 1 else None
    if context is not None:
        for start in range(0, len(handles), _MANY):
            part = handles[start : start + _MANY]
            # What it did not begin is done below, one after the other.
            with contextlib.suppress(OSError):
                outcomes += context.fdatasync(part)
            if len(outcomes) < start + len(part):
                break
    return outcomes + [_fdatasync(handle) for handle in handles[len(outcomes) :]]


def _fdatasync(handle: int) -> OSError | None:
    try:
        os.fdatasync(handle)
    except OSError as error:
        return error
    return None


@cache
def _context() -> KernelSyncs | None:
    try:
        return KernelSyncs()
    except OSError:
        return None
