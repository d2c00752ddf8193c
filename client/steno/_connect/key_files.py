"""Key files on this machine, readable only by their owner."""

import contextlib
import os
from collections.abc import Generator
from pathlib import Path
from typing import Final

import steno_system as system
from steno._connect.folders import own_private, sync_file, sync_folder
from steno_protocol import credentials
from steno_protocol.credentials import ClientKey
from steno_protocol.errors import BadRequest, NotFound, Unauthorized
from steno_system.private_files import open_private, read_private

_FILE_BYTES_MAX: Final = 1 << 20


def client_key(path: str | os.PathLike[str]) -> ClientKey:
    """Read a client's key file.

    Raises:
        NotFound: there is no such file.
        Unauthorized: other users can read it, so the key is no secret.
        BadRequest: the file is no key file.
    """
    name = os.fspath(path)
    return credentials.decode_client_key(read_secret(name), name)


def lent_key(root: str) -> ClientKey | None:
    """Read the key of a root's daemon, which the other daemons of its cluster admit.

    Returns:
        None if the root has no key.

    Raises:
        Unauthorized: other users can read it, or it is no key.
    """
    path = os.fspath(Path(root, credentials.KEYS_FOLDER, credentials.SERVER_FILE))
    try:
        own = credentials.decode_pair(read_secret(path), path)
    except NotFound:
        return None
    except BadRequest as error:
        raise Unauthorized(error.message) from None
    # All daemons of a cluster have the same key.
    return ClientKey(own, own.public)


def read_secret(path: str) -> str:
    """Read a file that only its owner can read; raises as `client_key`."""
    try:
        data = read_private(path, is_secret=True, bytes_max=_FILE_BYTES_MAX)
    except FileNotFoundError:
        raise NotFound(f"there is no key file {path}: `steno keys new` makes one") from None
    except OSError as error:
        raise Unauthorized(f"the key file {path} cannot be opened: {error.strerror}") from None
    return data.decode(errors="replace")


def replace(path: Path, text: str) -> None:
    """Replace a file atomically by a new one that only its owner can read, durable on return.

    Raises:
        OSError: the new file cannot be written; the old one is still there.
    """
    fresh = path.with_name(f".{path.name}.new")
    fresh.unlink(missing_ok=True)
    handle = open_private(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL)
    with os.fdopen(handle, "wb") as file:
        file.write(text.encode())
        file.flush()
        sync_file(handle)
    fresh.replace(path)
    sync_folder(path.parent)


@contextlib.contextmanager
def locked(folder: Path) -> Generator[None]:
    """Hold the lock of a folder of keys; make the folder if it is missing."""
    own_private(folder)
    handle = os.open(folder, system.FOLDER_FLAGS)
    try:
        system.wait_for_lock(handle)
        yield
    finally:
        os.close(handle)
