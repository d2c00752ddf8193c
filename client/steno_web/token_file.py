"""The token of a server in a file, for programs that have it in their configuration."""

import os
import re
import secrets
from pathlib import Path
from typing import Final

from steno.local import open_private, read_private
from steno_protocol.errors import BadRequest, Unauthorized
from steno_web.limits import TOKEN_CHARS_MAX, TOKEN_CHARS_MIN

_TOKEN: Final = re.compile(rf"[A-Za-z0-9._~+/=-]{{{TOKEN_CHARS_MIN},{TOKEN_CHARS_MAX}}}", re.ASCII)
_NEW: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL


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
    except Unauthorized as error:
        raise BadRequest(f"the token file cannot be used: {error.message}") from None
    except OSError as error:
        reason = error.strerror or str(error)
        raise BadRequest(
            f"the token file {path} cannot be used: {reason}; name another one with --token-file"
        ) from None


def _read(path: Path) -> str:
    data = read_private(path, is_secret=True, bytes_max=TOKEN_CHARS_MAX + 2)
    token = data.decode("ascii", "replace").strip()
    if _TOKEN.fullmatch(token) is None:
        raise BadRequest(
            f"the token file {path} has no token of {TOKEN_CHARS_MIN} to {TOKEN_CHARS_MAX} letters"
            " and digits: remove it, and the next start writes a new one"
        )
    return token


def _created(path: Path) -> str:
    token = secrets.token_urlsafe(32)
    with os.fdopen(open_private(path, _NEW), "w") as file:
        file.write(f"{token}\n")
    return token
