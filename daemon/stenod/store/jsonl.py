"""A session folder on a disk as a log: plain JSONL files, flocked, appended to and swapped.

Files: `context.jsonl` is appended to; `context_N.jsonl` is what the rewrite to generation N left
behind; `timeline.jsonl` is appended to and synced at once; `context.mark` is a note to the next
open; `quarantine/` holds bytes that were cut.
"""

import contextlib
import errno
import threading
import zlib
from collections.abc import Sequence
from typing import Final

from steno_protocol import limits, places
from stenod.store.disk import Disk, FileStat
from stenod.store.log import Copy, Piece

_CLOSED: Final = -1
"""No handle: a reader that comes too late must not reach whatever file got the number next."""


class SharedHandle:
    """A handle that is closed when its owner and all its readers have let go."""

    def __init__(self, disk: Disk, handle: int) -> None:
        self.handle = handle
        self.disk = disk
        self._holders = 1

    def acquire(self) -> None:
        """Keep the file open until `release`; OSError once it is closed."""
        if self._holders == 0:
            # The number may be another file's by now.
            raise OSError(errno.EBADF, "the session's files were closed")
        self._holders += 1

    def release(self) -> None:
        """Let go; the last one closes."""
        self._holders -= 1
        if self._holders == 0:
            with contextlib.suppress(OSError):
                self.disk.close(self.handle)


class FileView:
    """The first `size` bytes of a file, which never change; takes over one hold of the handle."""

    def __init__(self, shared: SharedHandle, size: int) -> None:
        self.size = size
        self._shared = shared

    def read(self, size: int, offset: int) -> bytes:
        """Up to `size` bytes from `offset`; blocks."""
        size = min(size, self.size - offset)
        return self._shared.disk.read(self._shared.handle, size, offset) if size > 0 else b""

    def copy(self, target: int, size: int) -> None:
        """Append the first `size` bytes to another file, inside the kernel if it can; blocks."""
        copy_all(self._shared.disk, self._shared.handle, target, Copy(0, 0, size))

    def release(self) -> None:
        """Let go; not while a read is under way."""
        self._shared.release()


class JsonlLog:
    """The files of one session, open for its one writer.

    Args:
        disk: the disk they lie on.
        folder: the open, locked folder; the log closes it.
        path: the folder's path, for messages and answers.
        handle: the open file that is appended to.
        generation: which generation that is.
        size: its bytes, all of them durable.
    """

    def __init__(
        self,
        disk: Disk,
        folder: int,
        path: str,
        handle: int,
        generation: int,
        size: int,
        name: str = places.CONTEXT,
    ) -> None:
        self.generation = generation
        self.size = size
        self.synced = size
        self.path = path
        self._disk = disk
        self._folder = folder
        self._name = name
        self._file = SharedHandle(disk, handle)
        self._inode = disk.stat(handle).inode
        self._unsynced = b""
        self._told: int | None = None
        # Readers ask for a view on the event loop while a rewrite runs in a thread.
        self._swap = threading.Lock()

    def append(self, data: bytes) -> None:
        """Append lines; not durable. After an error call `take_back`."""
        self._unsynced += data
        write_all(self._disk, self._file.handle, data)
        self.size += len(data)

    def sync(self) -> None:
        """Make everything that was appended durable."""
        self._disk.fdatasync(self._file.handle)
        self._synced()

    @staticmethod
    def sync_all(logs: "Sequence[JsonlLog]") -> list[OSError | None]:
        """Make what was appended to several logs of one disk durable, together.

        Returns:
            What became of each: None when it is durable.
        """
        errors = logs[0]._disk.fdatasync_all([log._file.handle for log in logs])
        for log, error in zip(logs, errors, strict=True):
            if error is None:
                log._synced()
        return errors

    def _synced(self) -> None:
        self.synced = self.size
        self._unsynced = b""

    def take_back(self) -> None:
        """Cut the file to what is durable, durably; what is not ours goes to quarantine first.

        Our own bytes need no copy: nobody was told that they are there, and whoever sent them is
        told that they are not.
        """
        handle = self._file.handle
        size = self._disk.stat(handle).size
        if size > self.synced:
            tail = self._disk.read(handle, size - self.synced, self.synced)
            if not self._unsynced.startswith(tail):
                quarantine(self._disk, self._folder, self._name, self.synced, tail)
            self._disk.truncate(handle, self.synced)
        self._disk.fsync(handle)
        self.size = self.synced
        self._unsynced = b""

    def is_foreign_changed(self) -> bool:
        """True when another program appended to, cut or replaced the file."""
        return not self._disk.has(self._folder, self._name, self._inode, self.size)

    def may_be_foreign_changed(self) -> bool:
        """As `is_foreign_changed`, for who would open the files again when nobody knows."""
        try:
            return self.is_foreign_changed()
        except OSError:
            return True

    def keep_replaced(self) -> bool:
        """Keep what we had open as a generation when another program replaced or removed it.

        Returns whether it had to be kept; a file that was moved to a generation's name is one
        already, and a file that was only appended to or cut is still in its place.
        """
        named = self._disk.stat_name(self._folder, self._name)
        if self._name != places.CONTEXT or (named is not None and named.inode == self._inode):
            return False
        past = past_generations(self._disk, self._folder)
        for generation in past:
            if stat_generation(self._disk, self._folder, generation).inode == self._inode:
                return False
        # It may have been cut, too; and nothing is kept of what held nothing.
        size = min(self.synced, self._disk.stat(self._file.handle).size)
        if size == 0:
            return False
        fresh, _ = self._build([Copy(self.generation, 0, size)])
        self._disk.close(fresh)
        kept = places.generation_file(past[-1] + 2 if past else 1)
        self._disk.link(self._folder, places.REWRITE, kept)
        self._disk.unlink(self._folder, places.REWRITE)
        self._disk.fsync(self._folder)
        return True

    def length(self, generation: int) -> int:
        """Durable bytes of a generation; FileNotFoundError if there is none."""
        if generation == self.generation:
            return self.synced
        return stat_generation(self._disk, self._folder, generation).size

    def read(self, generation: int, offset: int, size: int) -> bytes:
        """Up to `size` bytes of a generation from `offset`, no more than are durable."""
        if generation == self.generation:
            size = min(size, self.synced - offset)
            return self._disk.read(self._file.handle, size, offset) if size > 0 else b""
        handle = self._disk.open_read(self._folder, places.generation_file(generation + 1))
        try:
            return self._disk.read(handle, size, offset)
        finally:
            self._disk.close(handle)

    def generations(self) -> list[int]:
        """The generations that are there, oldest first, the present one last."""
        if self._name != places.CONTEXT:
            return [self.generation]
        return [*past_generations(self._disk, self._folder), self.generation]

    def timeline(self) -> bytes:
        """The session's timeline."""
        return read_file(self._disk, self._folder, places.TIMELINE)

    def tell(self, line: bytes) -> None:
        """Append a line to the timeline, durably."""
        self._told = tell(self._disk, self._folder, line, self._told)

    def replace(self, pieces: Sequence[Piece], intent: bytes) -> str:
        """Swap in a new file made of pieces, in one instant, durable on return.

        Each numbered step is a point where a crash must leave the session before or after; the
        intent that is not followed by the rename is taken back when the log is opened again.
        """
        generation = self.generation + 1
        rotated = places.generation_file(generation)
        self.tell(intent)  # 1. what is about to happen, synced
        fresh, size = self._build(pieces)  # 2. the new file aside, synced
        try:
            self._disk.link(self._folder, places.CONTEXT, rotated)  # 3. a second name for the old
            self._disk.fsync(self._folder)  # 4. which must outlive the loss of its first
            self._disk.rename(self._folder, places.REWRITE, places.CONTEXT)  # 5. the instant
            self._disk.fsync(self._folder)  # 6. now it cannot be undone
            inode = self._disk.stat(fresh).inode
        except OSError:
            self._disk.close(fresh)
            raise
        with self._swap:
            self._file.release()
            self._file = SharedHandle(self._disk, fresh)
            self.generation, self.size, self.synced = generation, size, size
        self._inode = inode
        return f"{self.path}/{rotated}"

    def save_mark(self, mark: bytes) -> None:
        """Keep a note about the synced length for the next open; it may be lost."""
        name = places.mark_file(self._name)
        fresh = f"{name}.new"
        remove(self._disk, self._folder, fresh)
        handle = self._disk.open_new(self._folder, fresh)
        try:
            write_all(self._disk, handle, mark)
        finally:
            self._disk.close(handle)
        self._disk.rename(self._folder, fresh, name)

    def view(self, generation: int) -> FileView:
        """What is durable of a generation now, for a reader, who releases it."""
        with self._swap:
            if generation == self.generation:
                self._file.acquire()
                return FileView(self._file, self.synced)
        handle = self._disk.open_read(self._folder, places.generation_file(generation + 1))
        return FileView(SharedHandle(self._disk, handle), self._disk.stat(handle).size)

    def stat(self) -> FileStat:
        """What is known of the present generation's file."""
        return self._disk.stat(self._file.handle)

    def close(self) -> None:
        """Close the files and give up the session; never raises."""
        self._file.release()
        folder, self._folder = self._folder, _CLOSED
        with contextlib.suppress(OSError):
            self._disk.close(folder)

    def _build(self, pieces: Sequence[Piece]) -> tuple[int, int]:
        remove(self._disk, self._folder, places.REWRITE)
        self._disk.close(self._disk.open_new(self._folder, places.REWRITE))
        handle = self._disk.open_append(self._folder, places.REWRITE)
        try:
            size = sum(self._put(handle, piece) for piece in pieces)
            self._disk.fsync(handle)
        except BaseException:
            self._disk.close(handle)
            raise
        return handle, size

    def _put(self, target: int, piece: Piece) -> int:
        if isinstance(piece, bytes):
            write_all(self._disk, target, piece)
            return len(piece)
        if piece.generation == self.generation:
            copy_all(self._disk, self._file.handle, target, piece)
            return piece.size
        source = self._disk.open_read(self._folder, places.generation_file(piece.generation + 1))
        try:
            copy_all(self._disk, source, target, piece)
        finally:
            self._disk.close(source)
        return piece.size


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


def read_file(disk: Disk, folder: int, name: str) -> bytes:
    """A whole small file; empty if there is none."""
    try:
        handle = disk.open_read(folder, name)
    except FileNotFoundError:
        return b""
    try:
        return disk.read(handle, disk.stat(handle).size, 0)
    finally:
        disk.close(handle)


def tell(disk: Disk, folder: int, line: bytes, proven: int | None = None) -> int:
    """Append a line to a folder's timeline and make it durable; a failed line is cut again.

    Args:
        proven: the length of which the caller knows that all of it is durable. What is longer ends
            in a line that failed and could not be cut again either: whoever shows it may still
            lose it, so it is made durable before another stands behind it.

    Returns:
        The timeline's length now.
    """
    is_new = disk.stat_name(folder, places.TIMELINE) is None
    handle = disk.open_append(folder, places.TIMELINE, create=True)
    try:
        size = disk.stat(handle).size
        if size not in (0, proven) and not _prove_last_line(disk, folder, handle, size):
            line = b"\n" + line
        try:
            write_all(disk, handle, line)
            disk.fdatasync(handle)
        except OSError:
            disk.truncate(handle, size)
            disk.fsync(handle)
            raise
    finally:
        disk.close(handle)
    if is_new:
        disk.fsync(folder)
    return size + len(line)


def _prove_last_line(disk: Disk, folder: int, handle: int, size: int) -> bool:
    """Write the timeline's last line over itself and sync it; False if it is only half a one."""
    data = disk.read(handle, size, 0)
    start = data.rfind(b"\n", 0, -1) + 1
    disk.overwrite(folder, places.TIMELINE, start, data[start:])
    disk.fsync(handle)
    return data.endswith(b"\n")


def past_generations(disk: Disk, folder: int) -> list[int]:
    """The generations that rewrites left behind, oldest first."""
    numbers = (places.generation_of(name) for name in disk.names(folder))
    return sorted(number - 1 for number in numbers if number is not None)


def stat_generation(disk: Disk, folder: int, generation: int) -> FileStat:
    """What is known of a generation that was left behind; FileNotFoundError if there is none."""
    name = places.generation_file(generation + 1)
    found = disk.stat_name(folder, name)
    if found is None:
        raise FileNotFoundError(f"there is no {name}")
    return found


def remove(disk: Disk, folder: int, name: str) -> None:
    """Remove a name if it is there."""
    if disk.stat_name(folder, name) is not None:
        disk.unlink(folder, name)


def quarantine(disk: Disk, folder: int, name: str, offset: int, data: bytes) -> str:
    """Keep bytes that are about to be cut: where they lay is in the name; durable on return.

    The same damage is kept once, and the oldest of more than `QUARANTINE_FILES_MAX` is dropped.
    """
    kept = f"{name}.at-{offset}.crc-{zlib.crc32(data):08x}"
    nest = disk.open_folder(folder, places.QUARANTINE, create=True)
    try:
        # Whoever put it there may have died before it was durable.
        if read_file(disk, nest, kept) == data:
            _sync_file(disk, nest, kept)
            disk.fsync(nest)
            return kept
        remove(disk, nest, kept)
        _drop_oldest(disk, nest)
        handle = disk.open_new(nest, kept)
        try:
            write_all(disk, handle, data)
            disk.fsync(handle)
        finally:
            disk.close(handle)
        disk.fsync(nest)
    finally:
        disk.close(nest)
    return kept


def _sync_file(disk: Disk, folder: int, name: str) -> None:
    handle = disk.open_read(folder, name)
    try:
        disk.fsync(handle)
    finally:
        disk.close(handle)


def _drop_oldest(disk: Disk, nest: int) -> None:
    names = disk.names(nest)
    aged: list[tuple[float, str]] = []
    for name in names:
        found = disk.stat_name(nest, name)
        if found is not None:
            aged.append((found.modified_s, name))
    for _, name in sorted(aged)[: max(0, len(aged) - limits.QUARANTINE_FILES_MAX + 1)]:
        disk.unlink(nest, name)
