"""The token of a server in a file, for programs that have it in their configuration."""

import os
import re
import secrets
import shlex
from pathlib import Path
from typing import Final

from steno._connect.safe_open import open_regular
from steno.web.limits import TOKEN_CHARS_MAX, TOKEN_CHARS_MIN
from steno_protocol.errors import BadRequest

_TOKEN: Final = re.compile(rf"[A-Za-z0-9._~+/=-]{{{TOKEN_CHARS_MIN},{TOKEN_CHARS_MAX}}}", re.ASCII)
_NEW: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC


def token_in(path: Path) -> str:
    """The token in a file, which is created with a fresh one if it is missing.

    Raises:
        BadRequest: the file cannot be used, or other users can read it.
    """
    try:
        try:
            return _read(path)
        except FileNotFoundError:
            return _created(path)
    except OSError as error:
        reason = error.strerror or str(error)
        raise BadRequest(
            f"the token file {path} cannot be used: {reason}; name another one with --token-file"
        ) from None


def _read(path: Path) -> str:
    with open_regular(path) as file:
        if os.fstat(file.fileno()).st_mode & 0o077:
            raise BadRequest(
                f"other users can read the token file {path}: run"
                f" `chmod 600 {shlex.quote(str(path))}`"
            )
        token = file.read(TOKEN_CHARS_MAX + 2).decode("ascii", "replace").strip()
    if _TOKEN.fullmatch(token) is None:
        raise BadRequest(
            f"the token file {path} has no token of {TOKEN_CHARS_MIN} to {TOKEN_CHARS_MAX} letters"
            " and digits: remove it, and the next start writes a new one"
        )
    return token


def _created(path: Path) -> str:
    token = secrets.token_urlsafe(32)
    with os.fdopen(os.open(path, _NEW, 0o600), "w") as file:
        file.write(f"{token}\n")
    return token
