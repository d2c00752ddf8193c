"""Keys of daemons and clients that talk over TCP: what stands in their files.

Keys are CURVE keys (RFC 26 of ZeroMQ) in Z85 text (RFC 32), which needs no quoting in TOML. A
secret never appears in a `repr`, a message or a log.
"""

import re
import tomllib
from collections.abc import Iterable, Mapping
from typing import Any, Final

import msgspec

from steno_protocol._json import is_object
from steno_protocol.errors import BadRequest
from steno_protocol.rights import RIGHTS, Right

KEYS_FOLDER: Final = "keys"
"""Folder below the root: the daemon's key and the list of clients."""

SERVER_FILE: Final = "server.key"
CLIENTS_FILE: Final = "clients.toml"

_Z85: Final = re.compile(r"[0-9a-zA-Z.\-:+=^!/*?&<>()\[\]{}@%$#]{40}")
_NAME: Final = re.compile(r"[A-Za-z0-9_-]{1,64}")


class KeyPair(msgspec.Struct, frozen=True):
    """A public key and its secret key."""

    public: str
    secret: str

    def __repr__(self) -> str:
        """Without the secret, which must not reach a log."""
        return f"KeyPair(public={self.public!r})"


class ClientKey(msgspec.Struct, frozen=True):
    """What a client needs to talk to one daemon."""

    own: KeyPair
    server: str


class Allowed(msgspec.Struct, frozen=True):
    """A client that a daemon lets in."""

    name: str
    public: str
    right: Right


def check_key_name(name: str) -> str:
    """`name` itself if a key can bear it; raises BadRequest."""
    if _NAME.fullmatch(name) is None:
        raise BadRequest(f"{name[:80]!r} names no key: use 1 to 64 letters, digits, _ and -")
    return name


def encode_pair(pair: KeyPair) -> str:
    """The daemon's key file."""
    return f'public = "{pair.public}"\nsecret = "{pair.secret}"\n'


def decode_pair(text: str, path: str) -> KeyPair:
    """Read a daemon's key file.

    Raises:
        BadRequest: it is none; the message names `path` and never what stands there.
    """
    table = _table(text, path)
    return KeyPair(_key(table, "public", path), _key(table, "secret", path))


def encode_client_key(key: ClientKey, name: str) -> str:
    """A client's key file."""
    return f'# The key of the client {name}.\n{encode_pair(key.own)}server = "{key.server}"\n'


def decode_client_key(text: str, path: str) -> ClientKey:
    """Read a client's key file; raises BadRequest as `decode_pair`."""
    return ClientKey(decode_pair(text, path), _key(_table(text, path), "server", path))


def encode_clients(clients: Iterable[Allowed]) -> str:
    """The list of the admitted clients."""
    return "\n".join(
        f'[{client.name}]\npublic = "{client.public}"\nright = "{client.right.label}"\n'
        for client in clients
    )


def decode_clients(text: str, path: str) -> list[Allowed]:
    """Read the list of the admitted clients.

    Raises:
        BadRequest: one entry is invalid; then no client is admitted, because the intent is unknown.
    """
    found: list[Allowed] = []
    for name, entry in _table(text, path).items():
        if not is_object(entry):
            raise BadRequest(f"{path}: {name} is no table: write [{name}], public and right")
        right = RIGHTS.get(str(entry.get("right")))
        if right is None:
            raise BadRequest(f"{path}: the right of {name} has to be one of {', '.join(RIGHTS)}")
        found.append(Allowed(check_key_name(name), _key(entry, "public", path), right))
    return found


def _table(text: str, path: str) -> dict[str, Any]:
    try:
        return tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        # Not TOML, or more than its reader takes in. Only the place: the line may hold a secret.
        where = re.search(r"at line \d+", str(error))
        raise BadRequest(
            f"{path} is not TOML ({where[0] if where else 'at its end'}): make it with"
            " `steno keys new`"
        ) from None


def _key(table: Mapping[str, Any], name: str, path: str) -> str:
    value = table.get(name)
    if not isinstance(value, str) or _Z85.fullmatch(value) is None:
        raise BadRequest(
            f"{path}: {name} is no key of 40 characters in Z85: make it with `steno keys new`"
        )
    return value
