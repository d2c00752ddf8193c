"""The port of a `tcp://host:*` address, kept across restarts of the daemon."""

from contextlib import suppress
from pathlib import Path

from steno_protocol import paths

_ANY_PORT = ":*"
"""The end of an address whose port the system chooses."""


def candidates(wanted: str, root: Path) -> list[str]:
    """The addresses to try in order: clients know the last port, so that it comes first.

    Args:
        wanted: the configured address.
        root: the root of the daemon.
    """
    if not wanted.endswith(_ANY_PORT):
        return [wanted]
    path = root / paths.PORT
    # A FIFO in its place would block the daemon.
    kept = path.read_text(encoding="utf-8", errors="replace") if path.is_file() else ""
    port = kept.strip()
    is_port = port.isascii() and port.isdecimal() and 0 < int(port[:6]) <= 65535
    return [f"{wanted.removesuffix('*')}{port}", wanted] if is_port else [wanted]


def keep(endpoint: str, root: Path) -> None:
    """Store the port of the address at which the daemon listens.

    A failure costs the next daemon the same port and nothing else.
    """
    with suppress(OSError):
        (root / paths.PORT).write_text(f"{endpoint.rpartition(':')[2]}\n", encoding="utf-8")
