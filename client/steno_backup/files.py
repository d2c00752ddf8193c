"""Single files of the copy, each replaced atomically and durably."""

import errno
import os
import stat
from collections.abc import Iterable
from pathlib import Path
from typing import Final, NamedTuple

from steno.local import expanded, open_private, sync_file, sync_folder
from steno_backup.limits import CHUNK_BYTES, TAIL_BYTES

_NO_LINKS: Final = (errno.EPERM, errno.ENOSYS, errno.EOPNOTSUPP, errno.EXDEV, errno.EMLINK)
"""The errors of a file system without hard links."""


class Part(NamedTuple):
    """The first bytes of an open file.

    Attributes:
        handle: the file, which the caller closes.
        size: the bytes to copy.
        modified_ns: its time of change before they were measured.
    """

    handle: int
    size: int
    modified_ns: int

    def read(self, size: int, offset: int) -> bytes:
        """Read up to `size` bytes from `offset`."""
        return os.pread(self.handle, min(size, self.size - offset), offset)


def open_part(path: Path) -> Part:
    """Open a regular file of this user, never through a link.

    Raises:
        Unauthorized: it is another kind of file, or another user's.
        OSError: it does not exist or cannot be opened.
    """
    handle = open_private(path)
    found = os.fstat(handle)
    return Part(handle, found.st_size, found.st_mtime_ns)


def open_expanded(path: Path) -> Part:
    """Open the plain bytes of a compressed file; errors are those of `open_part`.

    Raises:
        BadRequest: nothing that is installed can expand it.
    """
    packed = open_part(path)
    with expanded(os.fdopen(packed.handle, "rb"), path.name) as file:
        handle = os.dup(file.fileno())
    return Part(handle, os.fstat(handle).st_size, packed.modified_ns)


def is_same(part: os.stat_result, copy: Path) -> bool:
    """Whether a copy has the size and time of a file, as a whole copy of it has."""
    found = regular(copy)
    return found is not None and (found.st_size, found.st_mtime_ns) == (
        part.st_size, part.st_mtime_ns,
    )  # fmt: skip


def regular(path: Path) -> os.stat_result | None:
    """Return the numbers of a regular file; None if there is none."""
    try:
        found = path.lstat()
    except (FileNotFoundError, NotADirectoryError):
        return None
    return found if stat.S_ISREG(found.st_mode) else None


def place(part: Part, copy: Path, aside: Path) -> int:
    """Make a file of the copy equal to a part; at every instant its name has old or new contents.

    What the copy has already is taken from there, if its end is the same as in the part.

    Args:
        part: what to copy.
        copy: the path in the copy, in an existing folder.
        aside: a free name on the same file system.

    Returns:
        The bytes that were read from the part, without those compared.
    """
    found = regular(copy)
    if found and (found.st_size, found.st_mtime_ns) == (part.size, part.modified_ns):
        return 0
    kept = _common(part, copy, found.st_size) if found else 0
    aside.unlink(missing_ok=True)
    handle = open_private(aside, os.O_RDWR | os.O_CREAT | os.O_EXCL)
    try:
        if kept:
            _copy_old(copy, handle, kept)
        for start in range(kept, part.size, CHUNK_BYTES):
            _write(handle, part.read(CHUNK_BYTES, start))
        if os.fstat(handle).st_size != part.size:
            raise OSError(errno.ESTALE, "the file was cut while it was copied", str(copy))
        os.utime(handle, ns=(part.modified_ns, part.modified_ns))
        sync_file(handle)
    finally:
        os.close(handle)
    rename(aside, copy)
    return part.size - kept


def rename(old: Path, new: Path) -> None:
    """Rename a file or folder, durably."""
    old.rename(new)
    sync_folder(new.parent)
    if old.parent != new.parent:
        sync_folder(old.parent)


def twin(old: Path, new: Path, aside: Path) -> None:
    """Give a file a second name; a copy of it where the file system has no hard links."""
    try:
        os.link(old, new, follow_symlinks=False)
    except OSError as error:
        if error.errno not in _NO_LINKS:
            raise
        part = open_part(old)
        try:
            place(part, new, aside)
        finally:
            os.close(part.handle)
    sync_folder(new.parent)


def remove(names: Iterable[Path]) -> None:
    """Remove files in this order."""
    for path in names:
        path.unlink(missing_ok=True)


def _common(part: Part, copy: Path, size: int) -> int:
    """The bytes of the copy to keep: all if the part goes on from them, else none."""
    if size > part.size:
        return 0
    start = max(0, size - TAIL_BYTES)
    old = open_part(copy)
    try:
        is_begun = old.read(size - start, start) == part.read(size - start, start)
    finally:
        os.close(old.handle)
    return size if is_begun else 0


def _copy_old(copy: Path, handle: int, size: int) -> None:
    old = open_part(copy)
    try:
        for start in range(0, size, CHUNK_BYTES):
            _write(handle, old.read(min(CHUNK_BYTES, size - start), start))
    finally:
        os.close(old.handle)


def _write(handle: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(handle, view) :]
