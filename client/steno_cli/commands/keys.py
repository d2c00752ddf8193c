"""`steno keys`: the keys of clients on other machines."""

from argparse import Namespace
from pathlib import Path

from steno.local import locked, make_private, new_key_pair, read_secret, replace
from steno_cli.arguments import action, argument, command_with_actions, flag, path_text
from steno_cli.connection import root_in_use
from steno_cli.destination import new_file
from steno_cli.exits import WrongUsage
from steno_cli.render.output import Output
from steno_protocol import credentials
from steno_protocol.credentials import Allowed, ClientKey, KeyPair
from steno_protocol.errors import Exists, NotFound
from steno_protocol.rights import RIGHTS, Right

command_with_actions(
    "keys",
    "Each client has its own key and one right: read, write (reversible changes) or admin"
    " (delete, repair, gc and drain too). The daemon listens on TCP if `network.listen` is set"
    " in config.toml, and accepts only clients with a key.",
    example="steno keys new laptop --right write\nsteno keys list\nsteno keys revoke laptop",
)


@action(
    "keys new", "create a key for a client",
    "Prints the path of the key file for the client. The file holds a secret and is readable"
    " only by you.",
    argument("key_name", metavar="NAME", help="letters, digits, _ and -"),
    argument(
        "--right", choices=list(RIGHTS), default=Right.WRITE.label,
        help="the right of the client (default: write)",
    ),
    argument(
        "-o", "--output", metavar="FILE", type=path_text,
        help="the key file (default: keys/NAME.key in the root)",
    ),
    flag("--token", help="print the key as one word for STENO_TOKEN, and write no key file"),
    example="steno keys new laptop --right read -o laptop.key\nsteno keys new sandbox --token",
)  # fmt: skip
def new_key(options: Namespace, output: Output) -> int:
    """Create a key for a client and admit it; creates the daemon's own key if necessary.

    Raises:
        WrongUsage: the key is to be printed, and a file is named.
        Exists: the client has a key.
    """
    if options.token and options.output:
        raise WrongUsage("--token writes no file: leave out -o, or --token")
    folder = _folder(options)
    name = credentials.check_key_name(options.key_name)
    path = Path(options.output) if options.output else folder / f"{name}.key"
    with locked(folder):
        clients = _clients(folder)
        if any(client.name == name for client in clients):
            raise Exists(
                f"a client {name} has a key already: revoke it with `steno keys revoke` first"
            )
        pair, server = KeyPair(*new_key_pair()), _server(folder)
        key = ClientKey(pair, server.public)
        if not options.token:
            _write_new(path, credentials.encode_client_key(key, name))
        allowed = Allowed(name, pair.public, RIGHTS[options.right])
        _save(folder, [*clients, allowed])
    if options.token:
        token = credentials.encode_token(key)
        return output.answer(
            {**_entry(allowed), "token": token},
            token,
            message=f"{name} has the right {options.right}; this is a secret, and is shown only"
            f" now: give it to the client as {credentials.TOKEN_VARIABLE}",
        )
    return output.answer(
        {**_entry(allowed), "file": str(path)},
        str(path),
        message=f"{name} has the right {options.right}; send this file to the client over a"
        " channel that no other person can read",
    )


@action("keys list", "list the clients with a key", "", example="steno keys list --json")
def list_keys(options: Namespace, output: Output) -> int:
    """List the admitted clients."""
    clients = _clients(_folder(options))
    document = {"clients": [_entry(client) for client in clients]}
    if not clients:
        message = "no client of another machine is admitted: create a key with `steno keys new`"
        return output.answer(document, message=message)
    width = max(len(each.name) for each in clients)
    rows = (f"{each.name:{width}}  {each.right.label:5}  {each.public}" for each in clients)
    return output.answer(document, *rows)


@action(
    "keys revoke", "revoke a client's key",
    "The client is refused within a second, even if it is connected.",
    argument("key_name", metavar="NAME", help="the name of the key"),
    example="steno keys revoke laptop",
)  # fmt: skip
def revoke(options: Namespace, output: Output) -> int:
    """Refuse a client from now on; the daemon does so within a second."""
    folder = _folder(options)
    with locked(folder):
        clients = _clients(folder)
        left = [client for client in clients if client.name != options.key_name]
        if len(left) == len(clients):
            raise NotFound(
                f"there is no client {options.key_name}: `steno keys list` shows the clients"
            )
        _save(folder, left)
    message = f"{options.key_name} is revoked"
    return output.answer({"revoked": options.key_name}, message=message)


def _folder(options: Namespace) -> Path:
    return root_in_use(options) / credentials.KEYS_FOLDER


def _clients(folder: Path) -> list[Allowed]:
    path = folder / credentials.CLIENTS_FILE
    if not path.exists():
        return []
    return credentials.decode_clients(read_secret(str(path)), str(path))


def _save(folder: Path, clients: list[Allowed]) -> None:
    replace(folder / credentials.CLIENTS_FILE, credentials.encode_clients(clients))


def _server(folder: Path) -> KeyPair:
    path = folder / credentials.SERVER_FILE
    if not path.exists():
        _write_new(path, credentials.encode_pair(KeyPair(*new_key_pair())))
    return credentials.decode_pair(read_secret(str(path)), str(path))


def _write_new(path: Path, text: str) -> None:
    """Create a key file, whole or not at all: half a key of the daemon would block it for ever.

    Raises:
        Exists: the file exists; a key is never overwritten.
    """
    make_private(path.parent)
    try:
        with new_file(path) as file:
            file.write(text.encode())
    except Exists:
        raise Exists(
            f"{path} exists, and a key file is never overwritten: move it away, or name another"
            " file with -o"
        ) from None


def _entry(client: Allowed) -> dict[str, str]:
    return {"name": client.name, "right": client.right.label, "public": client.public}
