"""Admission of clients from other machines, by their public keys.

The list of clients is read again whenever its file has changed, so that a revoked client is refused
at its next message. An unreadable list admits no client; after a temporary error the next check
reads it again.
"""

import errno
import os
import shlex
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Final

from steno_protocol import credentials
from steno_protocol.credentials import Allowed, KeyPair
from steno_protocol.errors import StenoError, Unauthorized

_FILE_BYTES_MAX: Final = 1 << 20

_LASTING: Final = {errno.ENOENT, errno.ELOOP, errno.EACCES, errno.EPERM, errno.ENXIO}
"""Errors that last until the file is changed."""


class Admission:
    """The clients that one daemon admits.

    Args:
        folder: the folder of its keys.
        log: logs an event with fields.
    """

    def __init__(self, folder: Path, log: Callable[..., None]) -> None:
        self._folder = folder
        self._log = log
        self._clients: dict[str, Allowed] = {}
        self._seen: tuple[int, int, int] | None = None
        self._logged: str | None = None

    def own_key(self) -> KeyPair:
        """Read the daemon's own key.

        Raises:
            Unauthorized: the key file is missing, or others can read it.
            BadRequest: the file has no valid key.
            OSError: the file cannot be read at the moment.
        """
        path = self._folder / credentials.SERVER_FILE
        return credentials.decode_pair(_read_private(path), str(path))

    def client(self, public: str) -> Allowed | None:
        """Return the client of a public key, None if it is not admitted."""
        self._reload_if_changed()
        return self._clients.get(public)

    def _reload_if_changed(self) -> None:
        path = self._folder / credentials.CLIENTS_FILE
        try:
            found = path.lstat()
            seen = (found.st_ino, found.st_mtime_ns, found.st_mode)
        except OSError:
            self._seen, self._clients = None, {}
            return
        if seen == self._seen:
            return
        self._seen, self._clients = seen, {}
        try:
            clients = credentials.decode_clients(_read_private(path), str(path))
        except StenoError as error:
            self._refuse(error.message)
        except OSError as error:
            self._seen = None
            self._refuse(f"{path} cannot be read now ({error.strerror})")
        else:
            self._clients = {client.public: client for client in clients}
            self._logged = None

    def _refuse(self, why: str) -> None:
        """Admit no client; the reason is logged once, not for each connection."""
        if why != self._logged:
            self._logged = why
            self._log("keys_refused", error=why)


def _read_private(path: Path) -> str:
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    try:
        handle = os.open(path, flags)
    except OSError as error:
        if error.errno not in _LASTING:
            raise
        raise Unauthorized(
            f"{path} cannot be opened ({error.strerror}): `steno keys new NAME` creates it"
        ) from None
    with os.fdopen(handle, "rb") as file:
        found = os.fstat(handle)
        if not stat.S_ISREG(found.st_mode) or found.st_uid != os.getuid():
            raise Unauthorized(
                f"{path} is not a file of the user that runs the daemon: `steno keys new NAME`"
                " creates one"
            )
        if found.st_mode & 0o077:
            raise Unauthorized(
                f"other users may read {path}: run `chmod 600 {shlex.quote(str(path))}`"
            )
        return file.read(_FILE_BYTES_MAX).decode(errors="replace")
