"""A session's file, opened by its reader on the daemon's machine."""

import os
from functools import cache

from steno import _system as system
from steno_protocol import paths
from steno_protocol.replies import Source

_FLAGS = os.O_RDONLY | system.OPEN_FLAGS | system.NO_LINK


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
        descriptor = os.open(source.path, _FLAGS)
    except (OSError, ValueError):
        return None
    stat = os.fstat(descriptor)
    identity = paths.file_identity(_boot_id(), stat.st_dev, stat.st_ino)
    if identity is None or identity != source.identity:
        os.close(descriptor)
        return None
    return SourceFile(descriptor, identity)


_boot_id = cache(system.boot_id)
