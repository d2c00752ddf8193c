"""Regular files, opened without ever waiting for what only has the name of one."""

import errno
import os
import stat
from pathlib import Path
from typing import BinaryIO, Final

from steno_protocol.file_types import kind_of

_FLAGS: Final = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC


class NotRegular(OSError):
    """What lies at a path is no regular file; nothing of it was read."""


def open_regular(path: Path) -> BinaryIO:
    """Open a file for reading; a FIFO at its place is refused, where `open` would wait for ever.

    Raises:
        NotRegular: something else lies there.
        OSError: there is none, or it may not be read.
    """
    try:
        handle = os.open(path, _FLAGS)
    except OSError as error:
        if error.errno == errno.ENXIO:  # what opening a socket comes to
            raise NotRegular(_description(path, path.stat().st_mode)) from None
        raise
    mode = os.fstat(handle).st_mode
    if not stat.S_ISREG(mode):
        os.close(handle)
        raise NotRegular(_description(path, mode))
    return os.fdopen(handle, "rb")


def read_regular(path: Path) -> bytes:
    """All of a file; raises as `open_regular`."""
    with open_regular(path) as file:
        return file.read()


def _description(path: Path, mode: int) -> str:
    return f"{path} is {kind_of(mode)}, and has to be a regular file: move it away"
