"""Open files as several hold them, and as bytes go into them and from one to another."""

import contextlib
import errno
import threading
from collections.abc import Generator
from typing import Final

from steno_protocol import limits
from stenod.store.disk import Disk, FileStat
from stenod.store.log import Copy

CLOSED: Final = -1
"""No handle: a reader that comes too late must not reach whatever file got the number next."""


class SharedHandle:
    """A handle that is closed when its owner and all its readers have let go.

    Attributes:
        number: the handle while it is held, else `CLOSED`.
    """

    def __init__(self, disk: Disk, handle: int) -> None:
        self.handle = handle
        self.number = handle
        self.disk = disk
        self._holders = 1
        # Threads hold on to it while the event loop lets go.
        self._lock = threading.Lock()

    def acquire(self) -> None:
        """Keep the file open until `release`; OSError once it is closed."""
        with self.pinned():
            self._holders += 1

    def release(self) -> None:
        """Let go; the last one closes."""
        with self._lock:
            self._holders -= 1
            if self._holders == 0:
                self.number = CLOSED
                with contextlib.suppress(OSError):
                    self.disk.close(self.handle)

    @contextlib.contextmanager
    def held(self) -> Generator[int]:
        """Its number, which stays its own until the block ends; OSError once it is closed."""
        self.acquire()
        try:
            yield self.handle
        finally:
            self.release()

    @contextlib.contextmanager
    def pinned(self) -> Generator[int]:
        """As `held`, for a short read: a concurrent release waits for its end.

        So a lock that goes with the file is gone when its owner has let go.
        """
        with self._lock:
            if self._holders == 0:
                # The number may be another file's by now.
                raise OSError(errno.EBADF, "the session's files were closed")
            yield self.handle


class FileView:
    """The first `size` bytes of a file, which never change; takes over one hold of the handle."""

    def __init__(self, shared: SharedHandle, size: int) -> None:
        self.size = size
        self._shared = shared

    def read(self, size: int, offset: int) -> bytes:
        """Up to `size` bytes from `offset`; blocks."""
        size = min(size, self.size - offset)
        return self._shared.disk.read(self._shared.handle, size, offset) if size > 0 else b""

    def stat(self) -> FileStat:
        """What is known of the file."""
        return self._shared.disk.stat(self._shared.handle)

    def copy(self, target: int, size: int) -> None:
        """Append the first `size` bytes to another file, inside the kernel if it can; blocks."""
        copy_all(self._shared.disk, self._shared.handle, target, Copy(0, 0, size))

    def release(self) -> None:
        """Let go; not while a read is under way."""
        self._shared.release()


def write_again(disk: Disk, handle: int, start: int, end: int) -> None:
    """Write bytes of a file over themselves, so that the next sync makes all of them durable."""
    for offset in range(start, end, limits.COPY_BYTES):
        data = disk.read(handle, min(limits.COPY_BYTES, end - offset), offset)
        disk.overwrite(handle, offset, data)


def write_all(disk: Disk, handle: int, data: bytes) -> None:
    """Append all of `data`; a short write goes on until the disk says why it was short."""
    done = disk.write(handle, data)
    while done < len(data):
        done += disk.write(handle, data[done:])


def copy_all(disk: Disk, source: int, target: int, piece: Copy) -> None:
    """Append a range of one file to another; OSError if the source is shorter."""
    done = 0
    while done < piece.size:
        step = min(limits.COPY_BYTES, piece.size - done)
        copied = disk.copy(source, target, piece.offset + done, step)
        if copied == 0:
            raise OSError(errno.EIO, f"a range of {piece.size} bytes ends after {done}")
        done += copied
        if done < piece.size:
            # Commits of other sessions that overlap a sync wait for it, so none is to take long.
            disk.fdatasync(target)
