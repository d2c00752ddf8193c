"""The port of a `tcp://host:*` address, kept across restarts of the daemon."""

import os
from contextlib import suppress
from pathlib import Path
from typing import Final

from steno_protocol import paths
from steno_protocol.errors import Unauthorized
from steno_system.private_files import open_private, read_private

_ANY_PORT = ":*"
"""The end of an address whose port the system chooses."""

_PORT_BYTES_MAX: Final = 64
"""More than any port number has."""


def candidates(wanted: str, root: Path) -> list[str]:
    """The addresses to try in order: clients know the last port, so that it comes first.

    Args:
        wanted: the configured address.
        root: the root of the daemon.
    """
    if not wanted.endswith(_ANY_PORT):
        return [wanted]
    try:
        port = read_private(root / paths.PORT, bytes_max=_PORT_BYTES_MAX).decode().strip()
    except (OSError, Unauthorized, UnicodeDecodeError):
        port = ""
    is_port = port.isascii() and port.isdecimal() and 0 < int(port[:6]) <= 65535
    return [f"{wanted.removesuffix('*')}{port}", wanted] if is_port else [wanted]


def keep(endpoint: str, root: Path) -> None:
    """Store the port of the address at which the daemon listens.

    A failure costs the next daemon the same port and nothing else.
    """
    with suppress(OSError, Unauthorized):
        handle = open_private(root / paths.PORT, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(f"{endpoint.rpartition(':')[2]}\n")
