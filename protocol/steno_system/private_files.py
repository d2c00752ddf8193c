"""Private files and folders: the one function that opens a key, a token, a lock or an index."""

import os
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final

import steno_system as system
from steno_protocol import paths, private_files
from steno_protocol.errors import Unauthorized
from steno_protocol.private_files import kind_of

_FLAGS: Final = system.OPEN_FLAGS | system.NO_LINK


def open_private(
    path: str | os.PathLike[str],
    flags: int = os.O_RDONLY,
    *,
    is_secret: bool = False,
    may_be_link: bool = False,
    folder: int | None = None,
) -> int:
    """Open a regular file of this user: not a link, and never waiting.

    Where it may be created, its folder is checked first, so that no file stays behind in the folder
    of another user, who could not open it. With O_EXCL it is new, wherever it lies.

    Args:
        path: its path.
        flags: how it is opened.
        is_secret: other users may not read it.
        may_be_link: people may link to it, as to a configuration; its target is checked.
        folder: an open folder, in which the path's last name is looked up, wherever it lies now.

    Raises:
        Unauthorized: it is no such file; nothing was created.
        OSError: there is no file, or it may not be opened.
    """
    if flags & os.O_CREAT and not flags & os.O_EXCL:
        check_folder(Path(path).parent)
    kept = _FLAGS & ~system.NO_LINK if may_be_link else _FLAGS
    name = path if folder is None else Path(path).name
    try:
        handle = os.open(name, flags | kept, 0o600, dir_fd=folder)
    except OSError as error:
        if error.errno in system.WRONG_KIND:
            kind = kind_of(os.lstat(name, dir_fd=folder).st_mode)
            raise Unauthorized(
                f"{os.fspath(path)} is {kind}, and has to be a regular file: move it away"
            ) from None
        raise
    found = os.fstat(handle)
    try:
        private_files.check_file(
            os.fspath(path), mode=found.st_mode, owner=found.st_uid, own=system.own_user(),
            is_secret=is_secret,
        )  # fmt: skip
    except Unauthorized:
        os.close(handle)
        raise
    return handle


def read_private(
    path: str | os.PathLike[str],
    *,
    is_secret: bool = False,
    may_be_link: bool = False,
    bytes_max: int = -1,
) -> bytes:
    """Read a private file, up to a number of bytes; raises as `open_private`."""
    handle = open_private(path, is_secret=is_secret, may_be_link=may_be_link)
    with os.fdopen(handle, "rb") as file:
        return file.read(bytes_max)


def read_lock_note(root: Path) -> paths.LockNote | None:
    """Read the note of the daemon that holds a root, or held it when it was killed.

    Returns:
        None before the daemon answers for the first time, and after it has ended.

    Raises:
        as `open_private`.
    """
    return paths.read_lock_note(lambda: read_private(root / paths.LOCK), time.sleep)


def check_folder(folder: Path) -> None:
    """Refuse a folder in which another user could replace a file; a missing one is fine.

    Raises:
        Unauthorized: it belongs to another user, or every user may write to it.
    """
    try:
        found = folder.stat()
    except (FileNotFoundError, NotADirectoryError):
        return
    private_files.check_root(
        str(folder), mode=found.st_mode, owner=found.st_uid, own=system.own_user()
    )


def make_private(folder: Path, sync: Callable[[Path], None] = lambda _: None) -> None:
    """Make a folder and its missing parents, each with mode 0700; existing ones keep their mode.

    Each name is synced before the next folder is made: otherwise a power cut could remove a new
    root together with all changes that the daemon has acknowledged in it.

    `Path.mkdir` gives its mode to the last folder only, and the umask's to the parents.

    Args:
        folder: the folder.
        sync: syncs a folder, whose names are then on the disk.

    Raises:
        OSError: a folder cannot be made, or another kind of file has its name.
    """
    missing = [each for each in (folder, *folder.parents) if not each.is_dir()][::-1]
    for each in missing:
        each.mkdir(mode=0o700, exist_ok=True)
        # A folder that is writable for others may not be readable for them.
        with suppress(PermissionError):
            sync(each.parent)
