"""Key files of daemons and clients that communicate over TCP.

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
        """Omit the secret, which must not reach a log."""
        return f"KeyPair(public={self.public!r})"


class ClientKey(msgspec.Struct, frozen=True):
    """The keys of a client for one daemon: its own pair and the daemon's public key."""

    own: KeyPair
    server: str


class Allowed(msgspec.Struct, frozen=True):
    """A client that a daemon admits."""

    name: str
    public: str
    right: Right


def check_key_name(name: str) -> str:
    """Return `name` if it can name a key, else raise BadRequest."""
    if _NAME.fullmatch(name) is None:
        raise BadRequest(f"{name[:80]!r} cannot name a key: use 1 to 64 letters, digits, _ and -")
    return name


def encode_pair(pair: KeyPair) -> str:
    """Encode the daemon's key file."""
    return f'public = "{pair.public}"\nsecret = "{pair.secret}"\n'


def decode_pair(text: str, path: str) -> KeyPair:
    """Decode a daemon's key file.

    Raises:
        BadRequest: the text is not a key file; the message names `path` and no contents.
    """
    table = _table(text, path)
    return KeyPair(_key(table, "public", path), _key(table, "secret", path))


def encode_client_key(key: ClientKey, name: str) -> str:
    """Encode a client's key file."""
    return f'# The key of the client {name}.\n{encode_pair(key.own)}server = "{key.server}"\n'


def decode_client_key(text: str, path: str) -> ClientKey:
    """Decode a client's key file; raises BadRequest as `decode_pair`."""
    return ClientKey(decode_pair(text, path), _key(_table(text, path), "server", path))


def encode_clients(clients: Iterable[Allowed]) -> str:
    """Encode the list of the admitted clients."""
    return "\n".join(
        f'[{client.name}]\npublic = "{client.public}"\nright = "{client.right.label}"\n'
        for client in clients
    )


def decode_clients(text: str, path: str) -> list[Allowed]:
    """Decode the list of the admitted clients.

    Raises:
        BadRequest: an entry is invalid; then no client is admitted, because the intent is unknown.
    """
    found: list[Allowed] = []
    for name, entry in _table(text, path).items():
        if not is_object(entry):
            raise BadRequest(f"{path}: {name} is not a table: write [{name}], public and right")
        right = RIGHTS.get(str(entry.get("right")))
        if right is None:
            raise BadRequest(f"{path}: the right of {name} has to be one of {', '.join(RIGHTS)}")
        found.append(Allowed(check_key_name(name), _key(entry, "public", path), right))
    return found


def _table(text: str, path: str) -> dict[str, Any]:
    try:
        return tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        # The message names only the place of the error, since the line may contain a secret.
        where = re.search(r"at line \d+", str(error))
        raise BadRequest(
            f"{path} is not TOML ({where[0] if where else 'at its end'}): create it with"
            " `steno keys new`"
        ) from None


def _key(table: Mapping[str, Any], name: str, path: str) -> str:
    value = table.get(name)
    if not isinstance(value, str) or _Z85.fullmatch(value) is None:
        raise BadRequest(
            f"{path}: {name} is not a key of 40 characters in Z85: create it with `steno keys new`"
        )
    return value
