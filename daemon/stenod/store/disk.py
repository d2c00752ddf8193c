"""The disk interface: the system calls that the daemon makes on session files.

All other modules reach session files by this interface only, so a simulated disk can crash at every
call of every procedure. Handles are integers. Every method blocks, and raises OSError with a true
errno when it fails. After a failure of `write`, `fdatasync`, `fsync` or `rename` the caller has to
assume that any part of the call took effect.
"""

from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager
from typing import Protocol

import msgspec

from steno_protocol.errors import StenoError


class DiskRefused(OSError):
    """The disk refuses a change for a reason that the sender of the command has to know."""

    is_final: bool = False
    """True if the change was surely not made, and no later one on the same handles can be."""

    def refusal(self, session: str) -> StenoError:
        """Return the error for the sender."""
        raise NotImplementedError

    def withdrawn(self, session: str) -> StenoError:
        """Return the error for the sender once the bytes of the command were taken back."""
        return self.refusal(session)


class FileStat(msgspec.Struct, frozen=True, gc=False):
    """The metadata of a file or folder.

    Attributes:
        size: bytes of a file.
        inode: number of the file on its device; a rename keeps it, a replacement changes it.
        device: number of the device; (device, inode) names a folder whatever path led to it.
        links: the number of names of the file.
        modified_s: Unix time of the last change of its content, in seconds.
        changed_s: the same of its content, names or rights; no program can set it back.
        is_guarded: it belongs to the daemon's user, and no other user may write to it.
    """

    size: int
    inode: int
    device: int
    links: int
    modified_s: float
    changed_s: float
    is_guarded: bool = True


class Disk(Protocol):
    """A POSIX file system, seen from inside one process.

    Durability, which the simulated disk implements to the letter: `write` and `truncate` change
    only the page cache until `fdatasync` or `fsync` of that file. Creating, linking, renaming and
    removing names change only the cached folder until `fsync` of that folder. A crash of the
    process loses nothing. A power cut loses any part of what was not synced, or all of it.

    Attributes:
        syncs_share_fate: if one of several syncs at the same time failed, the success of another
            proves nothing.
        has_rivals: the daemon of another machine may take a session over and change it.
        is_read_only: no file is changed: an opening repairs nothing, and records nothing.
    """

    @property
    def syncs_share_fate(self) -> bool: ...

    @property
    def has_rivals(self) -> bool: ...

    @property
    def is_read_only(self) -> bool: ...

    def open_root(self, path: str, *, create: bool = False) -> int:
        """Open a folder by its path; with `create`, make it and its parents with mode 0700."""
        ...

    def open_folder(self, parent: int, name: str, *, create: bool = False) -> int:
        """Open the folder `name` in an open folder, never following a symbolic link.

        With `create` a missing folder is created with mode 0700, and `parent` is synced.
        """
        ...

    def open_read(self, folder: int, name: str) -> int:
        """Open a file for reading.

        No symbolic link is followed, and the open never waits, as that of a FIFO would.

        Raises:
            PermissionError: the name is not a regular file, or belongs to another user.
        """
        ...

    def open_append(self, folder: int, name: str, *, create: bool = False) -> int:
        """Open a file for reading and appending, with the checks of `open_read`.

        With `create` a missing file is created with mode 0600; the folder is not synced.
        """
        ...

    def open_new(self, folder: int, name: str) -> int:
        """Create a file with mode 0600 for appending; FileExistsError if the name is taken."""
        ...

    def open_scratch(self, blocks: Iterable[bytes]) -> int:
        """Open a file without a name for reading, which has these bytes and lasts until its close.

        It may lie on another file system. An error of `blocks` leaves no handle open.
        """
        ...

    def close(self, handle: int) -> None:
        """Close a handle, and release its lock."""
        ...

    def stat(self, handle: int) -> FileStat:
        """Returns the metadata of an open file or folder."""
        ...

    def stat_name(self, folder: int, name: str) -> FileStat | None:
        """Returns the metadata of a name, without following a symbolic link; None if missing."""
        ...

    def has(self, folder: int, name: str, inode: int, size: int) -> bool:
        """Returns whether a name leads to the file with this inode, and the file has this size."""
        ...

    def names(self, folder: int) -> list[str]:
        """Returns the names in a folder, in no order."""
        ...

    def read(self, handle: int, size: int, offset: int) -> bytes:
        """Returns up to `size` bytes from `offset`; fewer only at the end of the file."""
        ...

    def write(self, handle: int, data: bytes) -> int:
        """Append to the file; returns the number of bytes written, which is less on a full disk."""
        ...

    def truncate(self, handle: int, size: int) -> None:
        """Cut the file to `size` bytes."""
        ...

    def mark_size_dirty(self, handle: int) -> None:
        """Make the next `fsync` of a file write the file's size of that moment.

        After a failed sync of a truncated file no later sync would write the size. Truncating the
        file to its present size would do so, too, but could cut off bytes that another program
        appends meanwhile.
        """
        ...

    def overwrite(self, handle: int, offset: int, data: bytes) -> None:
        """Overwrite bytes of a file in place; no other thread may write to this handle meanwhile.

        The caller writes the bytes that the file already has: after a failed sync the page cache
        shows them, but no later sync writes them unless they are written again. The file is given
        by its handle, because another program can put another file at its name. Its modification
        time stays, because its content does: sessions are listed in the order of these times.
        """
        ...

    def unmodified(self, handle: int) -> AbstractContextManager[None]:
        """Keep the modification time of a file or folder through a `with` block."""
        ...

    def copy_time(self, source: int, target: int) -> None:
        """Give a file the modification time of another, as far as the file system keeps times."""
        ...

    def fdatasync(self, handle: int) -> None:
        """Make a file's content and size durable.

        It also fails when an overlapping sync of the same device in another thread fails.
        """
        ...

    def confirm(self, handle: int) -> None:
        """Raise an error unless an open file is the session's present one on all machines.

        What the file lacks may otherwise be in the file of a rival. Waits for other machines.
        """
        ...

    def fdatasync_all(self, handles: Sequence[int]) -> list[OSError | None]:
        """Make several files durable at the same time; returns each file's error, or None.

        If one sync failed, the success of another proves nothing if `syncs_share_fate`: its bytes
        may be lost.
        """
        ...

    async def sync_on_loop(self, handles: Sequence[int]) -> list[OSError | None] | None:
        """As `fdatasync_all`, on the event loop, which does other work while this waits.

        Returns:
            None if this disk has to block for it; nothing was done then.
        """
        ...

    def fsync(self, handle: int) -> None:
        """Make a file, or a folder's names, durable."""
        ...

    def copy(self, source: int, target: int, offset: int, size: int) -> int:
        """Append `size` bytes from `offset` of one file to another inside the kernel.

        Returns the number of bytes copied, which is less only if the source ends or the disk is
        full.
        """
        ...

    def link(self, folder: int, name: str, new_name: str, *, into: int | None = None) -> None:
        """Give a file a second name; FileExistsError if that is taken.

        The second name is in the same folder, or in `into`, a folder of the same file system.
        """
        ...

    def rename(self, folder: int, name: str, new_name: str) -> None:
        """Rename a file within a folder, atomically replacing a file with the new name."""
        ...

    def move(self, folder: int, name: str, target: int, new_name: str, key: str = "") -> None:
        """Move a folder atomically into another folder of the same file system.

        The move is durable once either of the two folders was synced.

        Args:
            folder: the open folder above it.
            name: its name.
            target: the open folder that it moves into.
            new_name: its name there.
            key: the key of the command that moves it, for a disk that tells other machines.

        Raises:
            OSError: the name is taken by something else than an empty folder.
        """
        ...

    def unlink(self, folder: int, name: str) -> None:
        """Remove a name of a file."""
        ...

    def remove_folder(self, folder: int, name: str) -> None:
        """Remove an empty folder; OSError if it is not empty."""
        ...

    def lock(self, handle: int) -> bool:
        """Take the exclusive advisory lock of an open file or folder; False if another has it."""
        ...
