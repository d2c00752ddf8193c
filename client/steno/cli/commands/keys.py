"""The subcommands of `keys`: access for clients on other machines."""

from argparse import Namespace
from pathlib import Path

from steno._connect.connection import new_key_pair
from steno._connect.folders import make_private
from steno._connect.key_files import locked, read_private, replace
from steno.cli.connection import root_in_use
from steno.cli.exits import Exit
from steno.cli.render.output import Output
from steno.cli.transfer.destination import new_file
from steno_protocol import credentials
from steno_protocol.credentials import Allowed, ClientKey, KeyPair
from steno_protocol.errors import Exists, NotFound
from steno_protocol.rights import RIGHTS


def new(options: Namespace, output: Output) -> int:
    """Make a client's key, and the daemon's own if it has none, and let the client in."""
    folder = _folder(options)
    name = credentials.check_key_name(options.key_name)
    path = Path(options.output) if options.output else folder / f"{name}.key"
    with locked(folder):
        clients = _clients(folder)
        if any(client.name == name for client in clients):
            raise Exists(f"a client {name} is let in already: revoke it first")
        pair, server = KeyPair(*new_key_pair()), _server(folder)
        _write_new(path, credentials.encode_client_key(ClientKey(pair, server.public), name))
        allowed = Allowed(name, pair.public, RIGHTS[options.right])
        _save(folder, [*clients, allowed])
    if output.as_json:
        output.document({**_entry(allowed), "file": str(path)})
    else:
        output.write(str(path))
        output.say(
            f"{name} may {options.right}; send this file to the client over a channel that"
            " no other person can read"
        )
    return Exit.DONE


def show(options: Namespace, output: Output) -> int:
    """List the admitted clients."""
    clients = _clients(_folder(options))
    if output.as_json:
        output.document({"clients": [_entry(client) for client in clients]})
    elif not clients:
        output.say("no client of another machine is admitted: create a key with `steno keys new`")
    else:
        width = max(len(client.name) for client in clients)
        for client in clients:
            output.write(f"{client.name:{width}}  {client.right.label:5}  {client.public}")
    return Exit.DONE


def revoke(options: Namespace, output: Output) -> int:
    """Let a client in no longer; it is refused within a second, also where it is connected."""
    folder = _folder(options)
    with locked(folder):
        clients = _clients(folder)
        left = [client for client in clients if client.name != options.key_name]
        if len(left) == len(clients):
            raise NotFound(
                f"there is no client {options.key_name}: `steno keys list` shows the clients"
            )
        _save(folder, left)
    if output.as_json:
        output.document({"revoked": options.key_name})
    else:
        output.say(f"{options.key_name} is revoked")
    return Exit.DONE


def _folder(options: Namespace) -> Path:
    return root_in_use(options) / credentials.KEYS_FOLDER


def _clients(folder: Path) -> list[Allowed]:
    path = folder / credentials.CLIENTS_FILE
    if not path.exists():
        return []
    return credentials.decode_clients(read_private(str(path)), str(path))


def _save(folder: Path, clients: list[Allowed]) -> None:
    replace(folder / credentials.CLIENTS_FILE, credentials.encode_clients(clients))


def _server(folder: Path) -> KeyPair:
    path = folder / credentials.SERVER_FILE
    if not path.exists():
        _write_new(path, credentials.encode_pair(KeyPair(*new_key_pair())))
    return credentials.decode_pair(read_private(str(path)), str(path))


def _write_new(path: Path, text: str) -> None:
    """Make a key file, whole or not at all: half of the daemon's own would be in the way for ever.

    Raises:
        Exists: there is one already; a key is never overwritten.
    """
    make_private(path.parent)
    try:
        with new_file(path) as file:
            file.write(text.encode())
    except Exists:
        raise Exists(
            f"{path} is there already, and a key file is never overwritten: move it away, or say"
            " with -o where the new one goes"
        ) from None


def _entry(client: Allowed) -> dict[str, str]:
    return {"name": client.name, "right": client.right.label, "public": client.public}
