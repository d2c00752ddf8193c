"""Access for remote clients, set up as `steno keys` does."""

import re
from pathlib import Path

from steno._connect.connection import new_key_pair
from steno._connect.folders import make_private
from steno._connect.key_files import read_secret, replace
from steno_protocol import credentials, paths
from steno_protocol.credentials import Allowed, ClientKey, KeyPair
from steno_protocol.rights import RIGHTS
from support.daemon_log import DaemonLog

_LISTENING = re.compile(r'listening endpoint="(tcp://[^"]+)"')


def allow(root: Path, name: str, right: str = "write") -> Path:
    """Admit a new client, and return its key file."""
    folder = root / credentials.KEYS_FOLDER
    make_private(folder)
    pair = KeyPair(*new_key_pair())
    _save(folder, [*_clients(folder), Allowed(name, pair.public, RIGHTS[right])])
    path = folder / f"{name}.key"
    replace(path, credentials.encode_client_key(ClientKey(pair, _server_key(folder)), name))
    return path


def revoke(root: Path, name: str) -> None:
    """Admit a client no longer."""
    folder = root / credentials.KEYS_FOLDER
    _save(folder, [client for client in _clients(folder) if client.name != name])


def listen(root: Path, address: str = "127.0.0.1") -> None:
    """Configure the daemon of a root to listen at a free port."""
    (root / paths.CONFIG).write_text(f'[network]\nlisten = "tcp://{address}:*"\n')


def endpoint_of(daemon: DaemonLog) -> str:
    """The address at which a daemon listens for other machines."""
    found = _LISTENING.search(daemon.wait_for("listening endpoint="))
    assert found is not None
    return found[1]


def _server_key(folder: Path) -> str:
    path = folder / credentials.SERVER_FILE
    if not path.exists():
        replace(path, credentials.encode_pair(KeyPair(*new_key_pair())))
    return credentials.decode_pair(read_secret(str(path)), str(path)).public


def _clients(folder: Path) -> list[Allowed]:
    path = folder / credentials.CLIENTS_FILE
    return credentials.decode_clients(read_secret(str(path)), str(path)) if path.exists() else []


def _save(folder: Path, clients: list[Allowed]) -> None:
    replace(folder / credentials.CLIENTS_FILE, credentials.encode_clients(clients))


def admit(keys: Path, *clients: Allowed) -> None:
    """Admit only these clients from the next message on."""
    fresh = keys / "fresh"
    fresh.write_text(credentials.encode_clients(clients))
    fresh.chmod(0o600)
    fresh.rename(keys / credentials.CLIENTS_FILE)
