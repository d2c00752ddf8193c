"""Versions of the distribution and of the protocol."""

from typing import Final

__version__: Final = "0.1.0"
"""The version of the client, of the daemon and of the command."""

PROTOCOL_MAGIC: Final = b"STENO/2"
"""The first line of every message; its number changes only with the message format."""

PROTOCOL_VERSION: Final = 2
"""Version of the protocol in `hello`, raised when old clients could misread a new daemon."""
