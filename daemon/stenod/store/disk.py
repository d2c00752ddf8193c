"""The disk as the few system calls that steno makes; the seam where a simulated disk goes in.

Everything above calls only this, so every crash point of every procedure can be simulated.
Handles are integers. Every method blocks, and raises OSError with a true errno when it fails;
after a failure of `write`, `fdatasync`, `fsync` or `rename` the caller has to assume that any
part of it happened.
"""

from collections.abc import Sequence
from contextlib import ExitStack
from typing import Protocol

import msgspec


class FileStat(msgspec.Struct, frozen=True, gc=False):
    """What is known of an open file or folder.

    Attributes:
        size: bytes of a file.
        inode: number of the file on its device; a rename keeps it, a replacement changes it.
        device: number of the device; (device, inode) names a folder whatever path led to it.
        links: names that the file has.
        modified_s: Unix time of the last change of its content, in seconds.
    """

    size: int
    inode: int
    device: int
    links: int
    modified_s: float


class Disk(Protocol):
    """A POSIX file system, seen from inside one process.

    Durability, as the simulated disk takes it literally: `write` and `truncate` change only the
    page cache until `fdatasync` or `fsync` of that file; making, linking, renaming and removing
    names change only the cached folder until `fsync` of that folder. A crash of the process loses
    nothing of this, a power cut loses everything that was not synced, or keeps any part of it.
    """

    def open_root(self, path: str, *, create: bool = False) -> int:
        """Open a folder by its path; with `create`, make it and its parents with mode 0700."""
        ...

    def open_folder(self, parent: int, name: str, *, create: bool = False) -> int:
        """Open the folder `name` in an open folder, never following a symbolic link.

        With `create` it is made with mode 0700 if there is none, and `parent` is synced.
        """
        ...

    def open_read(self, folder: int, name: str) -> int:
        """Open a file for reading.

        No symbolic link is followed; what is not a regular file, or belongs to another user, is
        refused with PermissionError, and the open never waits (a FIFO would).
        """
        ...

    def open_append(self, folder: int, name: str, *, create: bool = False) -> int:
        """Open a file for reading and appending, with the checks of `open_read`.

        With `create` it is made with mode 0600 if there is none; the folder is not synced.
        """
        ...

    def open_new(self, folder: int, name: str) -> int:
        """Make a file that must not exist (else FileExistsError), mode 0600, to be appended to."""
        ...

    def close(self, handle: int) -> None:
        """Close a handle; a lock that it held is gone."""
        ...

    def stat(self, handle: int) -> FileStat:
        """What is known of an open file or folder."""
        ...

    def stat_name(self, folder: int, name: str) -> FileStat | None:
        """What is known of a name, not following a symbolic link; None if it is not there."""
        ...

    def has(self, folder: int, name: str, inode: int, size: int) -> bool:
        """True when a name is that of the file with this number, and it has so many bytes."""
        ...

    def names(self, folder: int) -> list[str]:
        """The names in a folder, in no order."""
        ...

    def read(self, handle: int, size: int, offset: int) -> bytes:
        """Up to `size` bytes from `offset`; fewer only at the end of the file."""
        ...

    def write(self, handle: int, data: bytes) -> int:
        """Append to the end of the file; returns how many bytes went in, fewer on a full disk."""
        ...

    def truncate(self, handle: int, size: int) -> None:
        """Cut the file to `size` bytes."""
        ...

    def hold_size(self, handle: int) -> None:
        """Have the next `fsync` of a file write its size, whatever that is then: nothing is cut.

        After a failed sync of a cut no later sync would write the size. To cut the file to the size
        that it has would do it, too, and cut what another program appended since the look at it.
        """
        ...

    def overwrite(self, handle: int, offset: int, data: bytes) -> None:
        """Overwrite bytes of a file in place; no other thread may write by this handle meanwhile.

        Used with the bytes that are there already: after a failed sync the page cache shows them,
        but no later sync would write them unless they are written again. Not by the file's name,
        which leads to another file as soon as another program puts one there.
        """
        ...

    def fdatasync(self, handle: int) -> None:
        """Make a file's content and size durable.

        It fails, too, when a sync of the same device that overlaps it in another thread fails.
        """
        ...

    def fdatasync_all(self, handles: Sequence[int]) -> list[OSError | None]:
        """As `fdatasync` for several files, together: what became of each of them.

        If one of them failed, the success of another proves nothing: its bytes may be lost.
        """
        ...

    def fsync(self, handle: int) -> None:
        """Make a file, or a folder's names, durable."""
        ...

    def copy(self, source: int, target: int, offset: int, size: int) -> int:
        """Append `size` bytes from `offset` of one file to another inside the kernel.

        Returns how many bytes were copied: fewer only when the source ends or the disk is full.
        """
        ...

    def link(self, folder: int, name: str, new_name: str, *, into: int | None = None) -> None:
        """Give a file a second name; FileExistsError if that is taken.

        The second name is in the same folder, or in `into`, a folder of the same file system.
        """
        ...

    def rename(self, folder: int, name: str, new_name: str) -> None:
        """Rename a file within a folder, replacing what has the new name, in one instant."""
        ...

    def move(self, folder: int, name: str, target: int, new_name: str) -> None:
        """Move a folder into another folder of the same file system, in one instant.

        A name that is taken by anything but an empty folder is refused with OSError. It is durable
        once either of the two folders was synced.
        """
        ...

    def unlink(self, folder: int, name: str) -> None:
        """Remove a name of a file."""
        ...

    def remove_folder(self, folder: int, name: str) -> None:
        """Remove an empty folder; OSError if anything is in it."""
        ...

    def lock(self, handle: int) -> bool:
        """Take the exclusive advisory lock of an open file or folder; False if another has it."""
        ...


def close_with(stack: ExitStack, disk: Disk, handle: int) -> int:
    """The handle, which is closed when the stack is left."""
    stack.callback(disk.close, handle)
    return handle
