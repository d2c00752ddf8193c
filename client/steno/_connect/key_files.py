"""Key files on this machine, readable only by their owner."""

import contextlib
import os
import shlex
import stat
from collections.abc import Generator
from pathlib import Path
from typing import Final

from steno._connect.folders import make_private, sync_folder
from steno_protocol import credentials
from steno_protocol.credentials import ClientKey
from steno_protocol.errors import NotFound, Unauthorized

_FILE_BYTES_MAX: Final = 1 << 20


def client_key(path: str | os.PathLike[str]) -> ClientKey:
    """Read a client's key file.

    Raises:
        NotFound: there is no such file.
        Unauthorized: other users can read it, so the key is no secret.
        BadRequest: the file is no key file.
    """
    name = os.fspath(path)
    return credentials.decode_client_key(read_private(name), name)


def read_private(path: str) -> str:
    """Read a file that only its owner can read; raises as `client_key`."""
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    try:
        handle = os.open(path, flags)
    except FileNotFoundError:
        raise NotFound(f"there is no key file {path}: `steno keys new` makes one") from None
    except OSError as error:
        raise Unauthorized(f"the key file {path} cannot be opened: {error.strerror}") from None
    found = os.fstat(handle)
    if not stat.S_ISREG(found.st_mode) or found.st_uid != os.getuid():
        # No file object can be made of a folder.
        os.close(handle)
        raise Unauthorized(f"{path} is no file of yours: a key has to be")
    with os.fdopen(handle, "rb") as file:
        if found.st_mode & 0o077:
            raise Unauthorized(
                f"others may read {path}: run `chmod 600 {shlex.quote(str(path))}`, or make a"
                " new key"
            )
        return file.read(_FILE_BYTES_MAX).decode(errors="replace")


def replace(path: Path, text: str) -> None:
    """Replace a file atomically by a new one that only its owner can read, durable on return.

    Raises:
        OSError: the new file cannot be written; the old one is still there.
    """
    fresh = path.with_name(f".{path.name}.new")
    fresh.unlink(missing_ok=True)
    handle = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    with os.fdopen(handle, "wb") as file:
        file.write(text.encode())
        file.flush()
        os.fsync(handle)
    fresh.replace(path)
    sync_folder(path.parent)


@contextlib.contextmanager
def locked(folder: Path) -> Generator[None]:
    """Hold the lock of a folder of keys; make the folder if it is missing."""
    import fcntl  # noqa: PLC0415  # needed for new keys only

    make_private(folder)
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)
