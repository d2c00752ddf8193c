"""Shared file handles, and copies between open files."""

import contextlib
import errno
import threading
from collections.abc import Generator, Iterator
from typing import Final

from steno_protocol import compression, limits, paths
from steno_protocol.errors import BadRequest
from stenod.store.disk import Disk, FileStat
from stenod.store.log import Copy

CLOSED: Final = -1
"""No handle: a late reader must not read another file that got the same number."""


@contextlib.contextmanager
def closing(disk: Disk, handle: int) -> Generator[int]:
    """Close a handle at the end of the `with` block, which gets it."""
    try:
        yield handle
    finally:
        disk.close(handle)


def close_with(stack: contextlib.ExitStack, disk: Disk, handle: int) -> int:
    """Returns `handle`, which the disk closes when the stack is left."""
    stack.callback(disk.close, handle)
    return handle


def open_file(disk: Disk, folder: int, name: str) -> int:
    """Open a file of a session for reading; a compressed one is expanded.

    Raises:
        OSError: it cannot be read, or its compressed form is damaged, or nothing that is installed
            can expand it.
    """
    return expanded(disk, *open_stored(disk, folder, name))


def open_stored(disk: Disk, folder: int, name: str) -> tuple[int, str]:
    """Open a file of a session as it is stored; returns the handle and the name it has."""
    # Whichever form comes, it has its name before the other one loses its own.
    for each in (name, paths.compressed_file(name)) if paths.is_compressible(name) else ():
        with contextlib.suppress(FileNotFoundError):
            return disk.open_read(folder, each), each
    return disk.open_read(folder, name), name


def expanded(disk: Disk, handle: int, name: str) -> int:
    """Return the handle of a plain file, or expand a compressed one and close it."""
    if not paths.is_compressed(name):
        return handle
    with closing(disk, handle):
        return disk.open_scratch(expanded_blocks(disk, handle, name))


def expanded_blocks(disk: Disk, handle: int, name: str) -> Iterator[bytes]:
    """Yield the plain bytes of an open compressed file.

    Raises:
        OSError: it is damaged, or nothing that is installed can expand it.
    """
    try:
        yield from compression.expanded(lambda size, at: disk.read(handle, size, at), name)
    except BadRequest as error:
        raise compression.Unexpandable(error, name) from None


class SharedHandle:
    """A handle with a reference count; the last release closes it.

    Args:
        disk: the disk of the file.
        handle: the open file; the shared handle has one reference at first, its owner's.

    Attributes:
        handle: the open file; valid only while the caller has a reference.
        number: the handle while there are references, else `CLOSED`.
    """

    def __init__(self, disk: Disk, handle: int) -> None:
        self.handle = handle
        self.number = handle
        self.disk = disk
        self._references = 1
        # Threads acquire references while the event loop releases its own.
        self._lock = threading.Lock()

    def acquire(self) -> None:
        """Add a reference, which keeps the file open until `release`.

        Raises:
            OSError: the file is closed.
        """
        with self.pinned():
            self._references += 1

    def release(self) -> None:
        """Remove a reference; the last one closes the file."""
        with self._lock:
            self._references -= 1
            if self._references == 0:
                self.number = CLOSED
                with contextlib.suppress(OSError):
                    self.disk.close(self.handle)

    @contextlib.contextmanager
    def held(self) -> Generator[int]:
        """Keep the file open in a `with` block, which gets the handle.

        Raises:
            OSError: the file is closed.
        """
        self.acquire()
        try:
            yield self.handle
        finally:
            self.release()

    @contextlib.contextmanager
    def pinned(self) -> Generator[int]:
        """Keep the file open in a short `with` block; a concurrent release waits for its end.

        So the file's lock is released as soon as its owner has released the file.

        Raises:
            OSError: the file is closed.
        """
        with self._lock:
            if self._references == 0:
                # Another file may have the number by now.
                raise OSError(errno.EBADF, "the session's files were closed")
            yield self.handle


class FileView:
    """A snapshot of the first `size` bytes of a file, which never change.

    Args:
        shared: the file's handle; the view takes over one reference.
        size: the bytes of the view.
    """

    def __init__(self, shared: SharedHandle, size: int) -> None:
        self.size = size
        self._shared = shared

    @property
    def handle(self) -> int:
        """The open file."""
        return self._shared.handle

    def read(self, size: int, offset: int) -> bytes:
        """Returns up to `size` bytes from `offset`; blocks."""
        size = min(size, self.size - offset)
        return self._shared.disk.read(self._shared.handle, size, offset) if size > 0 else b""

    def stat(self) -> FileStat:
        """Returns the file's metadata."""
        return self._shared.disk.stat(self._shared.handle)

    def copy(self, target: int, size: int) -> None:
        """Append the first `size` bytes to another file, inside the kernel if it can; blocks."""
        copy_all(self._shared.disk, self._shared.handle, target, Copy(0, 0, size))

    def release(self) -> None:
        """Release the file; must not be called during a read."""
        self._shared.release()


@contextlib.contextmanager
def viewed(disk: Disk, folder: int, name: str, size: int | None = None) -> Generator[FileView]:
    """View a file, or its first `size` bytes, until the `with` block ends."""
    shared = SharedHandle(disk, open_file(disk, folder, name))
    try:
        yield FileView(shared, disk.stat(shared.handle).size if size is None else size)
    finally:
        shared.release()


@contextlib.contextmanager
def measured(disk: Disk, folder: int, name: str) -> Generator[FileView]:
    """Open a view whose size the `with` block sets; it stays open unless the block fails."""
    view = FileView(SharedHandle(disk, open_file(disk, folder, name)), 0)
    try:
        yield view
    except BaseException:
        view.release()
        raise


def rewrite_in_place(disk: Disk, handle: int, start: int, end: int) -> None:
    """Write a file's present bytes again, so that the next sync makes all of them durable."""
    for offset in range(start, end, limits.COPY_BYTES):
        data = disk.read(handle, min(limits.COPY_BYTES, end - offset), offset)
        disk.overwrite(handle, offset, data)


def write_all(disk: Disk, handle: int, data: bytes) -> None:
    """Append all of `data`; a short write is continued until the disk reports its reason."""
    done = disk.write(handle, data)
    while done < len(data):
        done += disk.write(handle, data[done:])


def write_new(disk: Disk, folder: int, name: str, data: bytes) -> None:
    """Create a file with these bytes, and sync it; its name is durable with its folder."""
    with closing(disk, disk.open_new(folder, name)) as handle:
        write_all(disk, handle, data)
        disk.fsync(handle)


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
            # Each sync must be short, because overlapping commits of other sessions wait for it.
            disk.fdatasync(target)
