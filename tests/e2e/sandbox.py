"""A seccomp filter for a child process: chosen system calls fail with EPERM.

python -m e2e.sandbox NAME,... CODE ARGUMENTS    runs the code under the filter

The name `unix` forbids sockets of this machine alone, as sandboxes do that allow TCP.
"""

import ctypes
import errno
import os
import platform
import socket
import struct
import sys
from typing import Final

NUMBERS: Final = {
    "x86_64": {"socket": 41, "connect": 42},
    "aarch64": {"socket": 198, "connect": 203},
}
"""Numbers of system calls by machine."""

IS_POSSIBLE: Final = platform.machine() in NUMBERS

_LOAD_NUMBER, _EQUALS, _RETURN = 0x20, 0x15, 0x06
_ALLOW, _FAIL = 0x7FFF0000, 0x00050000
_FIRST_ARGUMENT = 16
_NO_NEW_PRIVS, _SET_SECCOMP, _FILTER = 38, 22, 2


def forbid(*names: str) -> None:
    """Let these system calls of the process fail from now on."""
    failing = (_RETURN, 0, 0, _FAIL | errno.EPERM)
    program = [(_LOAD_NUMBER, 0, 0, 0)]
    for name in names:
        if name == "unix":
            family = [(_LOAD_NUMBER, 0, 0, _FIRST_ARGUMENT), (_EQUALS, 0, 1, socket.AF_UNIX)]
            program += [(_EQUALS, 0, 3, NUMBERS[platform.machine()]["socket"]), *family, failing]
            # The accumulator has the family now, and no further name can be compared.
            break
        program += [(_EQUALS, 0, 1, NUMBERS[platform.machine()][name]), failing]
    program.append((_RETURN, 0, 0, _ALLOW))
    code = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *each) for each in program))
    header = ctypes.create_string_buffer(
        struct.pack("HxxxxxxP", len(program), ctypes.addressof(code))
    )
    prctl = ctypes.CDLL(None, use_errno=True).prctl
    for words in ((_NO_NEW_PRIVS, 1, 0, 0, 0), (_SET_SECCOMP, _FILTER, header, 0, 0)):
        if prctl(*words):
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


if __name__ == "__main__":
    _, called, text, *sys.argv = ["", *sys.argv[1:]]
    forbid(*called.split(","))
    exec(text)  # the code of a test
