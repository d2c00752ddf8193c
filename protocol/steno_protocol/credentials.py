"""Key files of daemons and clients that communicate over TCP.

Keys are CURVE keys (RFC 26 of ZeroMQ) in Z85 text (RFC 32), which needs no quoting in TOML. A
secret never appears in a `repr`, a message or a log.

A token is the contents of a client's key file as one word, for an environment that has no files:
it travels no more than a key file does, since both sides prove their keys without sending them.
"""

import base64
import re
import tomllib
from collections.abc import Iterable, Mapping
from typing import Any, Final

import msgspec

from steno_protocol._json import is_object
from steno_protocol.errors import BadRequest
from steno_protocol.rights import RIGHTS, Right

TOKEN_VARIABLE: Final = "STENO_TOKEN"  # noqa: S105 (a name)
"""The environment variable with a client's token."""

_TOKEN: Final = "steno_"  # noqa: S105 (its beginning, by which people and masks recognise one)

_KEY_CHARS: Final = 40

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


def encode_token(key: ClientKey) -> str:
    """Encode a client's keys as one word of letters, digits, `_` and `-`."""
    keys = key.own.public + key.own.secret + key.server
    return _TOKEN + base64.urlsafe_b64encode(keys.encode()).decode()


def decode_token(text: str) -> ClientKey:
    """Decode a client's token.

    Raises:
        BadRequest: it is no token; the message has no part of it.
    """
    try:
        keys = base64.urlsafe_b64decode(text.strip().removeprefix(_TOKEN)).decode()
    except ValueError:
        keys = ""
    parts = [keys[start : start + _KEY_CHARS] for start in range(0, len(keys), _KEY_CHARS)]
    if len(parts) != 3 or not all(map(_Z85.fullmatch, parts)):
        raise BadRequest(
            f"{TOKEN_VARIABLE} is no token: `steno keys new NAME --token` prints one, which has to"
            " be copied whole"
        )
    public, secret, server = parts
    return ClientKey(KeyPair(public, secret), server)


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
