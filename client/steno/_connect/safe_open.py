"""Regular files, opened without waiting for a FIFO or device of their name."""

import errno
import os
import stat
from pathlib import Path
from typing import BinaryIO, Final

from steno import _system as system
from steno_protocol.file_types import kind_of

_FLAGS: Final = os.O_RDONLY | system.OPEN_FLAGS


class NotRegular(OSError):
    """A path is no regular file; nothing was read."""


def open_regular(path: Path) -> BinaryIO:
    """Open a file for reading; refuse a FIFO, for which `open` would wait for ever.

    Raises:
        NotRegular: the path is another kind of file.
        OSError: there is no file, or it may not be read.
    """
    try:
        handle = os.open(path, _FLAGS)
    except OSError as error:
        if error.errno == errno.ENXIO:  # the error for a socket
            raise NotRegular(_description(path, path.stat().st_mode)) from None
        raise
    mode = os.fstat(handle).st_mode
    if not stat.S_ISREG(mode):
        os.close(handle)
        raise NotRegular(_description(path, mode))
    return os.fdopen(handle, "rb")


def read_regular(path: Path) -> bytes:
    """Read a whole file; raises as `open_regular`."""
    with open_regular(path) as file:
        return file.read()


def _description(path: Path, mode: int) -> str:
    return f"{path} is {kind_of(mode)}, and has to be a regular file: move it away"
