"""Regular files, opened without waiting for a FIFO; a session's file, if it is the daemon's."""

import errno
import os
import stat
from functools import cache
from pathlib import Path
from typing import BinaryIO, Final

import steno_system as system
from steno_protocol import paths
from steno_protocol.private_files import kind_of
from steno_protocol.replies import Source

_FLAGS: Final = os.O_RDONLY | system.OPEN_FLAGS

_boot_id = cache(system.boot_id)


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


class SourceFile:
    """An open file, with a descriptor of its own.

    Attributes:
        identity: identifies the file among open files.
        size: its readable bytes; 0 until the daemon has sent it.
    """

    def __init__(self, descriptor: int, identity: str) -> None:
        self.identity = identity
        self.size = 0
        self._descriptor = descriptor
        # A module may be gone before the last objects are.
        self._close = os.close

    def read(self, size: int, offset: int) -> bytes:
        """Up to `size` bytes from `offset`; blocks.

        Raises:
            OSError: it cannot be read, or another program has cut it.
        """
        size = min(size, self.size - offset)
        data = system.read_at(self._descriptor, size, offset) if size > 0 else b""
        if len(data) < size:
            # A read of less than 2 GiB returns all bytes that the file has.
            raise OSError(f"the file ends at {offset + len(data)}")
        return data

    def __del__(self) -> None:
        self._close(self._descriptor)


def open_source(source: Source) -> SourceFile | None:
    """Open the file that the daemon names; return None if it is missing or another one."""
    try:
        descriptor = os.open(source.path, _FLAGS | system.NO_LINK)
    except (OSError, ValueError):
        return None
    stat = os.fstat(descriptor)
    identity = paths.file_identity(_boot_id(), stat.st_dev, stat.st_ino)
    if identity is None or identity != source.identity:
        os.close(descriptor)
        return None
    return SourceFile(descriptor, identity)
