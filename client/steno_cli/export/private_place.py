"""New private files below the folder of another program, reached without links.

The program that owns the folder may be running, so a file that exists is never opened, and each
folder on the way is opened below the handle of the one before.
"""

import errno
import os
from collections.abc import Generator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path, PurePath
from typing import Final

from steno.local import make_private, sync_file
from steno_protocol.errors import BadRequest, Exists

_FOLDER: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_NEW: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


def put_new(top: Path, files: Mapping[PurePath, bytes]) -> None:
    """Write new files for the user alone, durably; missing folders are created for the user alone.

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
                _write(folder, top / path, content)
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


def _write(folder: int, path: Path, content: bytes) -> None:
    try:
        handle = os.open(path.name, _NEW, 0o600, dir_fd=folder)
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
