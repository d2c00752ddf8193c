"""The version of the distribution and the version of the protocol, and nothing else."""

from typing import Final

__version__: Final = "0.1.0"

PROTOCOL_MAGIC: Final = b"STENO/2"
"""The first line of every message; its number changes only with the form of messages."""

PROTOCOL_VERSION: Final = 2
"""Raised when an old client and a new daemon could misunderstand each other; part of `hello`."""
