"""New files and folders that appear whole and never replace existing ones, and their names."""

import errno
import os
import shutil
import tempfile
from argparse import Namespace
from collections.abc import Generator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path, PurePath
from typing import BinaryIO, Final

from steno.local import make_private, rename_exclusively, sync_file, sync_folder
from steno_cli.render.output import Output
from steno_protocol.errors import BadRequest, Exists

_NO_LINKS: Final = (errno.EPERM, errno.ENOSYS, errno.EOPNOTSUPP)
"""The errors of a file system without hard links, such as exFAT."""


_FOLDER: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_NEW_FILE: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


@contextmanager
def new_file(path: Path) -> Generator[BinaryIO]:
    """A new file that appears at `path` once all of it is on the disk.

    Raises:
        Exists: the path exists.
        BadRequest: its parent is no folder.
        OSError: it cannot be written; nothing is left of it.
    """
    _check_place(path)
    with _named(path, always=True):
        handle, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    try:
        with _named(path), os.fdopen(handle, "wb") as file:
            yield file
            file.flush()
            sync_file(file.fileno())
        _name(Path(name), path)
    except FileExistsError:
        raise _taken(path) from None
    finally:
        with suppress(FileNotFoundError):
            Path(name).unlink()
    sync_folder(path.parent)


@contextmanager
def new_folder(path: Path) -> Generator[Path]:
    """A new folder that appears at `path` once all of it is on the disk.

    Raises:
        Exists: the path exists.
        BadRequest: its parent is no folder.
        OSError: it cannot be written; nothing is left of it.
    """
    _check_place(path)
    with _named(path, always=True):
        aside = Path(tempfile.mkdtemp(prefix=f".{path.name}.", dir=path.parent))
    try:
        with _named(path):
            yield aside
        sync_folder(aside)
        put_in_place(aside, path)
    finally:
        shutil.rmtree(aside, ignore_errors=True)


@contextmanager
def _named(path: Path, *, always: bool = False) -> Generator[None]:
    """Add the path to an error of an open file, such as a full disk.

    Args:
        path: the path.
        always: also in place of a name that nobody has given, which is that of a file beside it.
    """
    try:
        yield
    except OSError as error:
        if always or error.filename is None:
            error.filename = str(path)
        raise


def put_in_place(aside: Path, path: Path) -> None:
    """Move a finished folder to its path, atomically and durably.

    Raises:
        Exists: the path exists, even as an empty folder.
    """
    try:
        _rename_new(aside, path)
    except FileExistsError:
        raise _taken(path) from None
    sync_folder(path.parent)


def _name(aside: Path, path: Path) -> None:
    """Give a finished file its name; a link never replaces an existing file."""
    try:
        os.link(aside, path)
    except OSError as error:
        if error.errno not in _NO_LINKS:
            raise
        _rename_new(aside, path)


def _rename_new(old: Path, new: Path) -> None:
    """Rename without replacing: rename() itself replaces an empty folder.

    A program that has such a folder open would keep writing into removed files.
    """
    if rename_exclusively(old, new):
        return
    # Without such a call, the check and the rename are two steps.
    if new.is_symlink() or new.exists():
        raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(new))
    old.rename(new)


def _check_place(path: Path) -> None:
    """Refuse a path early: the file is first written under another name.

    Raises:
        Exists: the path exists.
        BadRequest: its parent is no folder.
    """
    if path.is_symlink() or path.exists():
        raise _taken(path)
    if not path.parent.is_dir():
        raise BadRequest(
            f"{path.parent} is no folder: create it, or name a path in an existing one"
        )


def _taken(path: Path) -> Exists:
    return Exists(f"{path} exists: name another path, or move it away")


def print_result(
    options: Namespace, output: Output, path: Path, command: str | None = None
) -> None:
    """Print the command that goes on with an export, else its absolute path."""
    path = path.absolute()
    shown = {"session": options.session, "format": options.format}
    output.answer({**shown, "path": str(path), "command": command}, command or str(path))


# --- below the folder of another program ---------------------------------------------------------


def put_new(top: Path, files: Mapping[PurePath, bytes]) -> None:
    """Write new files for the user alone, durably; missing folders are created for the user alone.

    The program that owns the folder may be running, so a file that exists is never opened, and each
    folder on the way is opened below the handle of the one before.

    Args:
        top: the folder of the program; a link in its path is followed, none below it is.
        files: the content of each file by its path below `top`, in the order to write them.

    Raises:
        Exists: a file exists.
        BadRequest: a folder on the way is a link or no folder.
        OSError: a file cannot be written; those that were written before are removed again.
    """
    make_private(top)
    written: list[PurePath] = []
    try:
        for path, content in files.items():
            with _folder(top, path.parent) as folder:
                _write_new(folder, top / path, content)
                written.append(path)
                sync_file(folder)
    except BaseException:
        for path in written:
            with suppress(OSError), _folder(top, path.parent) as folder:
                os.unlink(path.name, dir_fd=folder)
        raise


@contextmanager
def _folder(top: Path, below: PurePath) -> Generator[int]:
    """The handle of a folder; a missing one is created."""
    handle, at = os.open(top, _FOLDER & ~os.O_NOFOLLOW), top
    try:
        for part in below.parts:
            at /= part
            with suppress(FileExistsError):
                os.mkdir(part, 0o700, dir_fd=handle)
            try:
                nest = os.open(part, _FOLDER, dir_fd=handle)
            except OSError as error:
                if error.errno in {errno.ENOTDIR, errno.ELOOP}:
                    raise BadRequest(
                        f"{at} is a link or no folder, and nothing is written behind it: replace it"
                        " by a folder, or export with -o"
                    ) from None
                raise
            os.close(handle)
            handle = nest
        yield handle
    finally:
        os.close(handle)


def _write_new(folder: int, path: Path, content: bytes) -> None:
    try:
        handle = os.open(path.name, _NEW_FILE, 0o600, dir_fd=folder)
    except FileExistsError:
        raise Exists(f"{path} exists, and is left as it is: repeat the command") from None
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            file.flush()
            sync_file(file.fileno())
    except BaseException:
        os.unlink(path.name, dir_fd=folder)
        raise
