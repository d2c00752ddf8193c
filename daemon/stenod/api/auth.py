"""Admission of clients from other machines, by their public keys.

The list of clients is read again whenever its file has changed, so that a revoked client is refused
at its next message. An unreadable list admits no client; after a temporary error the next check
reads it again.

All daemons of a cluster have the same key, and each admits it as a client's: that of a process on
another daemon's machine, which can read the key and follows a session from there.
"""

import errno
from collections.abc import Callable
from pathlib import Path
from typing import Final

from steno_protocol import credentials
from steno_protocol.credentials import Allowed, KeyPair
from steno_protocol.errors import StenoError, Unauthorized
from steno_protocol.rights import Right
from steno_system.private_files import read_private

_FILE_BYTES_MAX: Final = 1 << 20

_LASTING: Final = {errno.ENOENT, errno.ELOOP, errno.EACCES, errno.EPERM, errno.ENXIO}
"""Errors that last until the file is changed."""


class Admission:
    """The clients that one daemon admits.

    Args:
        folder: the folder of its keys.
        log: logs an event with fields.
        is_clustered: the daemon admits its own key, too.
    """

    def __init__(
        self, folder: Path, log: Callable[..., None], *, is_clustered: bool = False
    ) -> None:
        self._folder = folder
        self._log = log
        self._is_clustered = is_clustered
        self._own: str | None = None
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
        own = credentials.decode_pair(_read_secret(path), str(path))
        if self._is_clustered:
            self._own = own.public
        return own

    def is_own(self, public: str) -> bool:
        """Return whether a client has the daemon's own key, as those on its machine have."""
        return public == self._own

    def client(self, public: str) -> Allowed | None:
        """Return the client of a public key, None if it is not admitted."""
        if self.is_own(public):
            # No name of the list: names have no dot.
            return Allowed(credentials.SERVER_FILE, public, Right.ADMIN)
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
            clients = credentials.decode_clients(_read_secret(path), str(path))
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


def _read_secret(path: Path) -> str:
    try:
        data = read_private(path, is_secret=True, bytes_max=_FILE_BYTES_MAX)
    except OSError as error:
        if error.errno not in _LASTING:
            raise
        raise Unauthorized(
            f"{path} cannot be opened ({error.strerror}): `steno keys new NAME` creates it"
        ) from None
    return data.decode(errors="replace")
