"""Files and folders that appear whole, and never in place of what is there already."""

import ctypes
import errno
import os
import shutil
import tempfile
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO, Final

from steno._connect.folders import sync_folder
from steno_protocol.errors import BadRequest, Exists

_HERE: Final = -100
"""AT_FDCWD: a path is what it says."""

_NO_LINKS: Final = (errno.EPERM, errno.ENOSYS, errno.EOPNOTSUPP)
"""How a file system says that its files have one name only, as exFAT's."""

_NOREPLACE: Final = 1
"""RENAME_NOREPLACE of `renameat2`, Linux 3.15."""


@contextmanager
def new_file(path: Path) -> Generator[BinaryIO]:
    """A file that is at `path` once all of it is on the disk.

    Raises:
        Exists: something lies there already.
        BadRequest: it would lie in no folder.
        OSError: it cannot be written; nothing is left of it.
    """
    _check_place(path)
    handle, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    try:
        with _named(path), os.fdopen(handle, "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        _name(Path(name), path)
    except FileExistsError:
        raise _taken(path) from None
    finally:
        with suppress(FileNotFoundError):
            Path(name).unlink()
    sync_folder(path.parent)


@contextmanager
def new_folder(path: Path) -> Generator[Path]:
    """A folder to fill that is at `path` once all of it is on the disk.

    Raises:
        Exists: something lies there already.
        BadRequest: it would lie in no folder.
        OSError: it cannot be written; nothing is left of it.
    """
    _check_place(path)
    aside = Path(tempfile.mkdtemp(prefix=f".{path.name}.", dir=path.parent))
    try:
        with _named(path):
            yield aside
        sync_folder(aside)
        put_in_place(aside, path)
    finally:
        shutil.rmtree(aside, ignore_errors=True)


@contextmanager
def _named(path: Path) -> Generator[None]:
    """Have an error of an open file, as a full disk is, say where it would have lain."""
    try:
        yield
    except OSError as error:
        if error.filename is None:
            error.filename = str(path)
        raise


def put_in_place(aside: Path, path: Path) -> None:
    """Move a finished folder to where it belongs, in one instant and durably.

    Raises:
        Exists: something lies there already, be it an empty folder.
    """
    try:
        _rename_new(aside, path)
    except FileExistsError:
        raise _taken(path) from None
    sync_folder(path.parent)


def _name(aside: Path, path: Path) -> None:
    """Give a finished file its name; a link never takes the place of what came there meanwhile."""
    try:
        os.link(aside, path)
    except OSError as error:
        if error.errno not in _NO_LINKS:
            raise
        _rename_new(aside, path)


def _rename_new(old: Path, new: Path) -> None:
    """Rename, but never onto something: rename() itself takes the place of an empty folder.

    A program that has such a folder open would keep writing into removed files.
    """
    rename = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)
    if rename is not None:
        failed = rename(_HERE, os.fsencode(old), _HERE, os.fsencode(new), _NOREPLACE)
        number = ctypes.get_errno() if failed else 0
        if number in {0, errno.EEXIST}:
            if number:
                raise FileExistsError(number, os.strerror(number), str(new))
            return
        if number not in {errno.ENOSYS, errno.EINVAL}:
            raise OSError(number, os.strerror(number), str(old), None, str(new))
    # A file system or a C library without it: as near to it as can be.
    if new.is_symlink() or new.exists():
        raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(new))
    old.rename(new)


def _check_place(path: Path) -> None:
    """Refuse a place that is taken, or that lies in no folder: what is made aside has other names.

    Raises:
        Exists: something lies there already.
        BadRequest: it would lie in nothing.
    """
    if path.is_symlink() or path.exists():
        raise _taken(path)
    if not path.parent.is_dir():
        raise BadRequest(
            f"{path.parent} is no folder: make it, or name a place in one that is there"
        )


def _taken(path: Path) -> Exists:
    return Exists(f"{path} is there already: name another place, or move it away")
