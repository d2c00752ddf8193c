"""The command line of access from other machines: keys new, list, revoke."""

from steno.cli.arguments import Subcommands, actions, command, place
from steno_protocol.rights import RIGHTS, Right


def add_keys(commands: Subcommands) -> None:
    parser = command(
        commands, "keys", "", "manage the keys of clients on other machines",
        "Each client has its own key and one right: read, write (reversible changes) or admin"
        " (delete, repair, gc and drain too). The daemon listens on TCP if `network.listen` is set"
        " in config.toml, and accepts only clients with a key.",
        example="steno keys new laptop --right write\nsteno keys list\nsteno keys revoke laptop",
    )  # fmt: skip
    under = actions(parser)
    _add_new(under)
    command(
        under, "list", "keys:show", "list the clients with a key", example="steno keys list --json"
    )
    revoke = command(
        under, "revoke", "keys:revoke", "revoke a client's key",
        "The client is refused within a second, even if it is connected.",
        example="steno keys revoke laptop",
    )  # fmt: skip
    revoke.add_argument("key_name", metavar="NAME", help="the name of the key")


def _add_new(commands: Subcommands) -> None:
    parser = command(
        commands, "new", "keys:new", "create a key for a client",
        "Prints the path of the key file for the client. The file holds a secret and is readable"
        " only by you.",
        example="steno keys new laptop --right read -o laptop.key",
    )  # fmt: skip
    parser.add_argument("key_name", metavar="NAME", help="letters, digits, _ and -")
    parser.add_argument(
        "--right", choices=list(RIGHTS), default=Right.WRITE.label,
        help="the right of the client (default: write)",
    )  # fmt: skip
    parser.add_argument(
        "-o",
        "--output",
        metavar="FILE",
        type=place,
        help="the key file (default: keys/NAME.key in the root)",
    )
