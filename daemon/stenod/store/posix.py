"""The real disk: files by open folders, without links and without waiting."""

import errno
import fcntl
import os
import stat
import tempfile
from collections.abc import Generator, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

import steno_system as system
from steno_protocol.errors import BadRequest
from steno_protocol.limits import COMMIT_THREADS_MAX, COPY_BYTES
from steno_protocol.private_files import kind_of
from stenod.store import syncs
from stenod.store.disk import FileStat

_FOLDER: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
# O_NONBLOCK has no effect on a regular file, and keeps the open of a FIFO from blocking for ever.
_FILE: Final = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY

_FOLDER_MODE: Final = 0o700
_FILE_MODE: Final = 0o600
_OTHERS_WRITE: Final = stat.S_IWGRP | stat.S_IWOTH

_NO_KERNEL_COPY: Final = (errno.EXDEV, errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP)
"""Errors of a copy inside the kernel between two files that a program can copy."""

_DISK_FULL: Final = (errno.ENOSPC, errno.EDQUOT)


class PosixDisk:
    """The `Disk` of a local file system; handles are file descriptors."""

    syncs_share_fate = True
    has_rivals = False
    is_read_only = False

    def __init__(self) -> None:
        self._threads = ThreadPoolExecutor(COMMIT_THREADS_MAX, "sync")

    def open_root(self, path: str, *, create: bool = False) -> int:
        """Open a folder by its path; with `create`, make it and its parents durable."""
        if create:
            _make_folders(Path(path))
        return os.open(path, _FOLDER)

    def open_folder(self, parent: int, name: str, *, create: bool = False) -> int:
        """Open a folder in an open folder.

        Raises:
            NotADirectoryError: it is a link or no folder.
            BadRequest: the file system ignores case, and the folder has another spelling.
        """
        _check_name(name)
        if create:
            _make_folder(name, parent)
            # Also if the folder existed: its creator may have died before its own sync.
            syncs.fsync(parent)
        handle = os.open(name, _FOLDER | os.O_NOFOLLOW, dir_fd=parent)
        try:
            _check_spelling(parent, name, handle)
        except BaseException:
            os.close(handle)
            raise
        return handle

    def open_read(self, folder: int, name: str) -> int:
        """Open a regular file of the daemon's user for reading."""
        return open_file(folder, name, os.O_RDONLY)

    def open_append(self, folder: int, name: str, *, create: bool = False) -> int:
        """Open a regular file of the daemon's user for reading and appending."""
        made = os.O_CREAT if create else 0
        return open_file(folder, name, os.O_RDWR | os.O_APPEND | made)

    def open_new(self, folder: int, name: str) -> int:
        """Create a file; FileExistsError if the name is taken, even by a dangling link."""
        return open_file(folder, name, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_EXCL)

    def open_scratch(self, blocks: Iterable[bytes]) -> int:
        """Open a temporary file without a name, which has these bytes."""
        with tempfile.TemporaryFile(buffering=0) as file:
            for block in blocks:
                view = memoryview(block)
                while view:
                    view = view[file.write(view) :]
            # Its descriptor is this file's alone, and a copy outlives it.
            return os.dup(file.fileno())

    def close(self, handle: int) -> None:
        """Close a handle."""
        os.close(handle)

    def stat(self, handle: int) -> FileStat:
        """Returns the metadata of an open file or folder."""
        return _file_stat(os.fstat(handle))

    def stat_name(self, folder: int, name: str) -> FileStat | None:
        """Returns the metadata of a name, or of a link itself; None if missing."""
        _check_name(name)
        try:
            return _file_stat(os.stat(name, dir_fd=folder, follow_symlinks=False))
        except FileNotFoundError:
            return None

    def has(self, folder: int, name: str, inode: int, size: int) -> bool:
        """Returns whether a name leads to the file with this inode, and the file has this size."""
        try:
            found = os.stat(name, dir_fd=folder, follow_symlinks=False)
        except FileNotFoundError:
            return False
        return found.st_ino == inode and found.st_size == size

    def names(self, folder: int) -> list[str]:
        """Returns the names in a folder; invalid UTF-8 becomes surrogate escapes.

        Each listing opens the folder again: on btrfs a handle goes on listing the names of the time
        when it was opened, and two listings by one handle share its position and miss names.
        """
        try:
            handle = os.open(".", _FOLDER, dir_fd=folder)
        except FileNotFoundError:
            # Another program removed the folder, so it was empty.
            return []
        try:
            return os.listdir(handle)  # noqa: PTH208 (a handle, and names are enough)
        finally:
            os.close(handle)

    def read(self, handle: int, size: int, offset: int) -> bytes:
        """Returns up to `size` bytes from `offset`; fewer only at the end of the file."""
        data = os.pread(handle, size, offset)
        while 0 < len(data) < size:
            more = os.pread(handle, size - len(data), offset + len(data))
            if not more:
                break
            data += more
        return data

    def write(self, handle: int, data: bytes) -> int:
        """Append; returns the bytes written, fewer than given on a full disk or beyond 2 GiB."""
        return os.write(handle, data)

    def truncate(self, handle: int, size: int) -> None:
        """Cut the file to `size` bytes."""
        os.ftruncate(handle, size)

    def mark_size_dirty(self, handle: int) -> None:
        """Change the file's ctime, so that the next `fsync` writes its inode and size."""
        os.fchown(handle, -1, -1)

    def overwrite(self, handle: int, offset: int, data: bytes) -> None:
        """Overwrite bytes of a file in place; a failure may leave any part of them written."""
        with self.unmodified(handle), _without_append_flag(handle):
            done = 0
            while done < len(data):
                done += os.pwrite(handle, memoryview(data)[done:], offset + done)

    @contextmanager
    def unmodified(self, handle: int) -> Generator[None]:
        """Keep the modification time of a file or folder through a `with` block.

        A file that another program appended to or cut meanwhile keeps the time of that.
        """
        before = os.fstat(handle)
        yield
        after = os.fstat(handle)
        if stat.S_ISDIR(after.st_mode) or after.st_size == before.st_size:
            # Some file systems keep no times; a reader's order of sessions is all that depends on
            # them.
            with suppress(OSError):
                os.utime(handle, ns=(before.st_atime_ns, before.st_mtime_ns))

    def copy_time(self, source: int, target: int) -> None:
        """Give a file the modification time of another."""
        found = os.fstat(source)
        with suppress(OSError):
            os.utime(target, ns=(found.st_atime_ns, found.st_mtime_ns))

    def fdatasync(self, handle: int) -> None:
        """Make a file's content and size durable."""
        syncs.fdatasync(handle)

    def confirm(self, handle: int) -> None:
        """Do nothing: the root's lock keeps other daemons out."""

    def fdatasync_all(self, handles: Sequence[int]) -> list[OSError | None]:
        """Make several files durable at the same time, so that they share one journal commit."""
        return syncs.fdatasync_all(handles, self._threads)

    async def sync_on_loop(self, handles: Sequence[int]) -> None:
        """This disk has to block for every sync."""
        del handles

    def fsync(self, handle: int) -> None:
        """Make a file, or a folder's names, durable."""
        syncs.fsync(handle)

    def copy(self, source: int, target: int, offset: int, size: int) -> int:
        """Append a range of one file to another; the file system may share the blocks.

        No other thread may write to `target` meanwhile: the kernel copies to an offset, not to the
        end.
        """
        done = _copy_in_kernel(source, target, offset, size)
        # Copies all if the kernel cannot copy, nothing at the end of the source, and raises the
        # error of a full disk.
        return done + _copy_in_process(source, target, offset + done, size - done, done > 0)

    def link(self, folder: int, name: str, new_name: str, *, into: int | None = None) -> None:
        """Give a file a second name in the same folder, or in another one."""
        _check_name(name, new_name)
        target = folder if into is None else into
        os.link(name, new_name, src_dir_fd=folder, dst_dir_fd=target, follow_symlinks=False)

    def rename(self, folder: int, name: str, new_name: str) -> None:
        """Rename a file; if both names are of the same file, the kernel changes nothing."""
        _check_name(name, new_name)
        os.rename(name, new_name, src_dir_fd=folder, dst_dir_fd=folder)

    def move(self, folder: int, name: str, target: int, new_name: str, key: str = "") -> None:
        """Move a folder into another folder; an empty folder of that name is replaced."""
        del key
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


def _check_name(*names: str) -> None:
    """Refuse names that lead out of the folder, though session ids were checked before."""
    for name in names:
        if name in ("", ".", "..") or "/" in name or "\0" in name:
            raise OSError(errno.EINVAL, "not the name of a file in this folder", name)


def open_file(folder: int, name: str, flags: int, *, is_own: bool = True) -> int:
    """Open a regular file without following a link or waiting.

    Args:
        folder: the open folder.
        name: the name of the file in it.
        flags: the flags of the opening.
        is_own: only a file of the daemon's user is opened.
    """
    _check_name(name)
    try:
        handle = os.open(name, flags | _FILE, _FILE_MODE, dir_fd=folder)
    except OSError as error:
        if error.errno in system.WRONG_KIND:
            found = os.stat(name, dir_fd=folder, follow_symlinks=False)
            raise _refused(name, kind_of(found.st_mode)) from None
        raise
    try:
        _check_regular_file(os.fstat(handle), name, is_own=is_own)
    except OSError:
        os.close(handle)
        raise
    return handle


def _check_regular_file(found: os.stat_result, name: str, *, is_own: bool) -> None:
    if not stat.S_ISREG(found.st_mode):
        raise _refused(name, kind_of(found.st_mode))
    if is_own and found.st_uid != os.geteuid():
        raise _refused(name, f"a file of user {found.st_uid}, not of user {os.geteuid()}")


def _refused(name: str, found: str) -> PermissionError:
    message = f"refused to open: it is {found}; a regular file of this user is needed"
    return PermissionError(errno.EPERM, message, name)


def _file_stat(found: os.stat_result) -> FileStat:
    return FileStat(
        size=found.st_size,
        inode=found.st_ino,
        device=found.st_dev,
        links=found.st_nlink,
        modified_s=found.st_mtime,
        changed_s=found.st_ctime,
        is_guarded=not found.st_mode & _OTHERS_WRITE and found.st_uid == os.geteuid(),
    )


def _make_folders(path: Path) -> None:
    """Create a folder and its parents, each durable in its own parent."""
    if path.is_dir():
        return
    _make_folders(path.parent)
    parent = os.open(path.parent, _FOLDER)
    try:
        _make_folder(path.name, parent)
        syncs.fsync(parent)
    finally:
        os.close(parent)


def _check_spelling(parent: int, name: str, handle: int) -> None:
    """Let a folder have one spelling, also where upper and lower case are the same.

    Else the sessions `Talk` and `talk` would be one, and who asks for the one would read the other.
    """
    other = name.swapcase()
    try:
        found = os.stat(other, dir_fd=parent, follow_symlinks=False)
        is_blind = other != name and found.st_ino == os.fstat(handle).st_ino
        names = os.listdir(parent) if is_blind else [name]
    except OSError:
        return
    if name not in names:
        existing = next((each for each in names if each.lower() == name.lower()), other)
        raise BadRequest(
            f"upper and lower case are the same on this file system, where {existing} exists:"
            f" use this spelling in place of {name}, or choose another name"
        )


def _make_folder(name: str, parent: int) -> None:
    try:
        os.mkdir(name, _FOLDER_MODE, dir_fd=parent)
    except FileExistsError:
        return  # the open that follows fails if it is no folder


def _copy_in_kernel(source: int, target: int, offset: int, size: int) -> int:
    """Copy with copy_file_range; returns the bytes copied before it ended, failed or was full."""
    done = 0
    with _without_append_flag(target):
        end = os.fstat(target).st_size
        while done < size:
            try:
                count = system.copy_file_range(
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
def _without_append_flag(handle: int) -> Generator[None]:
    """Clear O_APPEND in a `with` block.

    With the flag copy_file_range fails with EBADF, and pwrite ignores its offset.
    """
    flags = fcntl.fcntl(handle, fcntl.F_GETFL)
    fcntl.fcntl(handle, fcntl.F_SETFL, flags & ~os.O_APPEND)
    try:
        yield
    finally:
        fcntl.fcntl(handle, fcntl.F_SETFL, flags)


def _copy_in_process(source: int, target: int, offset: int, size: int, some_done: bool) -> int:
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
