"""The real disk: files reached through open folders, never through a link and never waiting."""

import errno
import fcntl
import os
import stat
import threading
from collections import deque
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from queue import SimpleQueue
from typing import Final, TypeVar

import msgspec

from steno_protocol.file_types import kind_of
from steno_protocol.limits import COMMIT_THREADS_MAX, COPY_BYTES
from stenod.store.disk import FileStat

_FOLDER: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
# O_NONBLOCK changes nothing for a regular file, and keeps a FIFO from holding the open for ever.
_FILE: Final = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY

_FOLDER_MODE: Final = 0o700
_FILE_MODE: Final = 0o600

_WRONG_KIND: Final = (errno.ELOOP, errno.ENXIO, errno.EISDIR)
"""Errors for a name that is a link, a socket, a FIFO without reader, or a folder."""

_NO_KERNEL_COPY: Final = (errno.EXDEV, errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP)
"""How the kernel says that it cannot copy between these two files, though a program can."""

_DISK_FULL: Final = (errno.ENOSPC, errno.EDQUOT)

T = TypeVar("T")


class PosixDisk:
    """The `Disk` of a Linux file system; handles are file descriptors.

    Attributes:
        overlap: the syncs that are under way; those that overlap share one verdict.
    """

    def __init__(self) -> None:
        self.overlap = Overlap()
        self._threads = ThreadPoolExecutor(COMMIT_THREADS_MAX, "sync")

    def open_root(self, path: str, *, create: bool = False) -> int:
        """Open a folder by its path; with `create`, it and its parents are there durably."""
        if create:
            _make_folders(Path(path))
        return os.open(path, _FOLDER)

    def open_folder(self, parent: int, name: str, *, create: bool = False) -> int:
        """Open a folder in an open folder; NotADirectoryError for a link or anything else."""
        _check_name(name)
        if create:
            _make_folder(name, parent)
            # Also when it existed: its creator may have died before this sync.
            os.fsync(parent)
        return os.open(name, _FOLDER | os.O_NOFOLLOW, dir_fd=parent)

    def open_read(self, folder: int, name: str) -> int:
        """Open a file of our own for reading."""
        return _open_file(folder, name, os.O_RDONLY)

    def open_append(self, folder: int, name: str, *, create: bool = False) -> int:
        """Open a file of our own for reading and appending."""
        made = os.O_CREAT if create else 0
        return _open_file(folder, name, os.O_RDWR | os.O_APPEND | made)

    def open_new(self, folder: int, name: str) -> int:
        """Make a file; FileExistsError for whatever has the name, a dangling link too."""
        return _open_file(folder, name, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_EXCL)

    def close(self, handle: int) -> None:
        """Close a handle."""
        os.close(handle)

    def stat(self, handle: int) -> FileStat:
        """What is known of an open file or folder."""
        return _file_stat(os.fstat(handle))

    def stat_name(self, folder: int, name: str) -> FileStat | None:
        """What is known of a name, of a link itself; None if it is not there."""
        _check_name(name)
        try:
            return _file_stat(os.stat(name, dir_fd=folder, follow_symlinks=False))
        except FileNotFoundError:
            return None

    def has(self, folder: int, name: str, inode: int, size: int) -> bool:
        """True when a name is that of the file with this number, and it has so many bytes."""
        try:
            found = os.stat(name, dir_fd=folder, follow_symlinks=False)
        except FileNotFoundError:
            return False
        return found.st_ino == inode and found.st_size == size

    def names(self, folder: int) -> list[str]:
        """The names in a folder; bytes that are no UTF-8 come as surrogate escapes.

        By a handle of its own: btrfs goes on showing an open one what was there when it was opened,
        and listings by one handle share its place, so that two at a time miss names.
        """
        try:
            handle = os.open(".", _FOLDER, dir_fd=folder)
        except FileNotFoundError:
            # Another program removed the folder, which was empty then.
            return []
        try:
            return os.listdir(handle)  # noqa: PTH208 (a handle, and names are enough)
        finally:
            os.close(handle)

    def read(self, handle: int, size: int, offset: int) -> bytes:
        """Up to `size` bytes from `offset`; fewer only at the end of the file."""
        data = os.pread(handle, size, offset)
        while 0 < len(data) < size:
            more = os.pread(handle, size - len(data), offset + len(data))
            if not more:
                break
            data += more
        return data

    def write(self, handle: int, data: bytes) -> int:
        """Append; fewer bytes than given go in on a full disk and beyond 2 GiB."""
        return os.write(handle, data)

    def truncate(self, handle: int, size: int) -> None:
        """Cut the file to `size` bytes."""
        os.ftruncate(handle, size)

    def hold_size(self, handle: int) -> None:
        """Have the next `fsync` write the size: what changes a file's times writes its inode."""
        os.fchown(handle, -1, -1)

    def overwrite(self, handle: int, offset: int, data: bytes) -> None:
        """Write over bytes of a file in place; a failure leaves any part of it written."""
        with _placed_writes(handle):
            done = 0
            while done < len(data):
                done += os.pwrite(handle, memoryview(data)[done:], offset + done)

    def fdatasync(self, handle: int) -> None:
        """Make a file's content and size durable."""
        self.overlap.run(os.fstat(handle).st_dev, os.fdatasync, handle)

    def fdatasync_all(self, handles: Sequence[int]) -> list[OSError | None]:
        """As `fdatasync` for several files at the same time: they share a commit of the journal."""
        outcomes: list[OSError | None] = []

        def sync(handles: Sequence[int]) -> None:
            outcomes.extend(self._fdatasync_in_threads(handles))
            _raise_first(outcomes)

        try:
            self.overlap.run(_device_of(handles), sync, handles)
        except OSError as error:
            return [error if each is None else each for each in outcomes or [None] * len(handles)]
        return outcomes

    def _fdatasync_in_threads(self, handles: Sequence[int]) -> list[OSError | None]:
        """Sync each file once, in whichever thread takes it; the caller's thread does its share.

        Once, because an error is reported to one sync only: a second one would return success.
        """
        waiting = deque(enumerate(handles))
        ended: SimpleQueue[tuple[int, OSError | None]] = SimpleQueue()

        def sync_waiting() -> None:
            with suppress(IndexError):
                while True:
                    number, handle = waiting.popleft()
                    ended.put((number, _fdatasync(handle)))

        # Without another thread, those that there are do the work.
        with suppress(RuntimeError):
            for _ in range(min(len(handles), COMMIT_THREADS_MAX) - 1):
                self._threads.submit(sync_waiting)
        sync_waiting()
        outcomes = dict(ended.get() for _ in handles)
        return [outcomes[number] for number in range(len(handles))]

    def fsync(self, handle: int) -> None:
        """Make a file, or a folder's names, durable."""
        self.overlap.run(os.fstat(handle).st_dev, os.fsync, handle)

    def copy(self, source: int, target: int, offset: int, size: int) -> int:
        """Append a part of one file to another, sharing the blocks where the file system can.

        No other writer may use `target` meanwhile: the kernel copies to an offset, not to the end.
        """
        done = _copy_in_kernel(source, target, offset, size)
        # A copy by hand ends what the kernel left: all of it where it cannot copy, nothing at the
        # end of the source, and the error at the edge of a full disk.
        return done + _copy_by_hand(source, target, offset + done, size - done, done > 0)

    def link(self, folder: int, name: str, new_name: str, *, into: int | None = None) -> None:
        """Give a file a second name in the same folder, or in another one."""
        _check_name(name, new_name)
        target = folder if into is None else into
        os.link(name, new_name, src_dir_fd=folder, dst_dir_fd=target, follow_symlinks=False)

    def rename(self, folder: int, name: str, new_name: str) -> None:
        """Rename a file; if both names are of one file, the kernel leaves both."""
        _check_name(name, new_name)
        os.rename(name, new_name, src_dir_fd=folder, dst_dir_fd=folder)

    def move(self, folder: int, name: str, target: int, new_name: str) -> None:
        """Move a folder into another folder; an empty folder of that name is replaced."""
        _check_name(name, new_name)
        os.rename(name, new_name, src_dir_fd=folder, dst_dir_fd=target)

    def unlink(self, folder: int, name: str) -> None:
        """Remove a name of a file."""
        _check_name(name)
        os.unlink(name, dir_fd=folder)

    def remove_folder(self, folder: int, name: str) -> None:
        """Remove an empty folder."""
        _check_name(name)
        os.rmdir(name, dir_fd=folder)

    def lock(self, handle: int) -> bool:
        """Take the exclusive lock (flock) of an open file or folder, or return False at once."""
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True


class _Sync(msgspec.Struct, eq=False):
    """One sync.

    Attributes:
        device: the device that its file is on.
        beside: the syncs that were still under way when this one returned.
        has_failed: another one failed while this one was under way.
    """

    device: int
    beside: "frozenset[_Sync]" = frozenset()
    has_failed: bool = False


class Overlap:
    """The syncs of one daemon that are under way, in all of its threads; overlapping syncs share a
    verdict.

    When a disk fails a flush, the file system reports the error to one of the syncs that wait for
    it. Another sync that overlaps it can return success though its bytes are lost: on ext4 and XFS
    over a disk that fails flushes, 2 to 5 of 100 files that were synced side by side were reported
    durable and were not. Syncs that ran one after the other were always reported right.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._changed = threading.Condition(self._lock)
        self._under_way: set[_Sync] = set()
        self._waiting: set[_Sync] = set()

    def is_empty(self) -> bool:
        """True while no sync is under way."""
        return not self._under_way

    def run(self, device: int, sync: Callable[[T], None], what: T) -> None:
        """Call `sync(what)`; return once its success can be believed.

        That is when all syncs of the same device that overlap it have returned, so the call waits
        for them. It waits for none that begins later.

        Args:
            device: number of the device that the file is on.
            sync: makes a file durable, or several.
            what: the file or files.

        Raises:
            OSError: the sync failed, or one that overlaps it did; none of the bytes that it was to
                make durable can be believed then.
        """
        mine = _Sync(device)
        with self._lock:
            self._under_way.add(mine)
        try:
            sync(what)
        except BaseException:
            self._end(mine, has_failed=True)
            raise
        self._end(mine, has_failed=False)
        if mine.has_failed:
            raise OSError(errno.EIO, "another sync failed while this one was under way")

    def _end(self, mine: _Sync, *, has_failed: bool) -> None:
        with self._lock:
            self._under_way.remove(mine)
            if not (self._under_way or self._waiting):
                return
            others = frozenset(sync for sync in self._under_way if sync.device == mine.device)
            if has_failed:
                for sync in others:
                    sync.has_failed = True
                for sync in self._waiting:
                    sync.has_failed |= mine in sync.beside
            if self._waiting:
                self._changed.notify_all()
            if has_failed or mine.has_failed or not others:
                return
            mine.beside = others
            self._waiting.add(mine)
            while not mine.beside.isdisjoint(self._under_way) and not mine.has_failed:
                self._changed.wait()
            self._waiting.discard(mine)


def _fdatasync(handle: int) -> OSError | None:
    try:
        os.fdatasync(handle)
    except OSError as error:
        return error
    return None


def _device_of(handles: Sequence[int]) -> int:
    """The device of the first file that is open; the files of one group are on one device.

    A group over several devices shares one verdict all the same, which is too strict at worst.
    """
    for handle in handles:
        with suppress(OSError):
            return os.fstat(handle).st_dev
    return 0


def _raise_first(outcomes: Sequence[OSError | None]) -> None:
    for outcome in outcomes:
        if outcome is not None:
            raise outcome


def _check_name(*names: str) -> None:
    """Refuse what would lead out of the folder; session ids were checked long before this."""
    for name in names:
        if name in ("", ".", "..") or "/" in name or "\0" in name:
            raise OSError(errno.EINVAL, "not the name of a file in this folder", name)


def _open_file(folder: int, name: str, flags: int) -> int:
    _check_name(name)
    try:
        handle = os.open(name, flags | _FILE, _FILE_MODE, dir_fd=folder)
    except OSError as error:
        if error.errno in _WRONG_KIND:
            found = os.stat(name, dir_fd=folder, follow_symlinks=False)
            raise _refused(name, kind_of(found.st_mode)) from None
        raise
    try:
        _check_ours(os.fstat(handle), name)
    except OSError:
        os.close(handle)
        raise
    return handle


def _check_ours(found: os.stat_result, name: str) -> None:
    if not stat.S_ISREG(found.st_mode):
        raise _refused(name, kind_of(found.st_mode))
    if found.st_uid != os.geteuid():
        raise _refused(name, f"a file of user {found.st_uid}, not of user {os.geteuid()}")


def _refused(name: str, found: str) -> PermissionError:
    message = f"refused to open: it is {found}; a regular file of our own is needed"
    return PermissionError(errno.EPERM, message, name)


def _file_stat(found: os.stat_result) -> FileStat:
    return FileStat(
        size=found.st_size,
        inode=found.st_ino,
        device=found.st_dev,
        links=found.st_nlink,
        modified_s=found.st_mtime,
    )


def _make_folders(path: Path) -> None:
    """Make a folder and its parents, each durable in its own parent."""
    if path.is_dir():
        return
    _make_folders(path.parent)
    parent = os.open(path.parent, _FOLDER)
    try:
        _make_folder(path.name, parent)
        os.fsync(parent)
    finally:
        os.close(parent)


def _make_folder(name: str, parent: int) -> None:
    try:
        os.mkdir(name, _FOLDER_MODE, dir_fd=parent)
    except FileExistsError:
        return  # whether it is a folder, the open that follows finds out


def _copy_in_kernel(source: int, target: int, offset: int, size: int) -> int:
    """As much as copy_file_range copies before it ends, fails or finds the disk full."""
    done = 0
    with _placed_writes(target):
        end = os.fstat(target).st_size
        while done < size:
            try:
                count = os.copy_file_range(
                    source, target, size - done, offset_src=offset + done, offset_dst=end + done
                )
            except OSError as error:
                if error.errno in _NO_KERNEL_COPY or error.errno in _DISK_FULL:
                    return done
                raise
            if count == 0:
                return done
            done += count
    return done


@contextmanager
def _placed_writes(handle: int) -> Generator[None]:
    """Take O_APPEND off a handle for a while: copy_file_range answers EBADF to it.

    And pwrite goes to the end with it, whatever its offset.
    """
    flags = fcntl.fcntl(handle, fcntl.F_GETFL)
    fcntl.fcntl(handle, fcntl.F_SETFL, flags & ~os.O_APPEND)
    try:
        yield
    finally:
        fcntl.fcntl(handle, fcntl.F_SETFL, flags)


def _copy_by_hand(source: int, target: int, offset: int, size: int, some_done: bool) -> int:
    done = 0
    while done < size:
        data = os.pread(source, min(COPY_BYTES, size - done), offset + done)
        if not data:
            return done
        try:
            done += os.write(target, data)
        except OSError as error:
            if error.errno in _DISK_FULL and (some_done or done):
                return done
            raise
    return done
