"""The command line of access from other machines: keys new, list, revoke."""

from steno.cli.arguments import Subcommands, actions, command, place
from steno_protocol.rights import RIGHTS, Right


def add_keys(commands: Subcommands) -> None:
    parser = command(
        commands, "keys", "", "say who may talk to the daemon from another machine",
        "Each client has a key of its own and one right: read, write (changes that can be brought"
        " back) or admin (delete, repair, gc and drain, too). The daemon listens on TCP when"
        " `network.listen` in config.toml says so, and lets nobody in without a key.",
        example="steno keys new laptop --right write\nsteno keys list\nsteno keys revoke laptop",
    )  # fmt: skip
    under = actions(parser)
    _add_new(under)
    command(under, "list", "keys:show", "list who is let in", example="steno keys list --json")
    revoke = command(
        under, "revoke", "keys:revoke", "let a client in no longer",
        "It is refused within a second, also where it is connected already.",
        example="steno keys revoke laptop",
    )  # fmt: skip
    revoke.add_argument("key_name", metavar="NAME", help="the name that it was made with")


def _add_new(commands: Subcommands) -> None:
    parser = command(
        commands, "new", "keys:new", "make a key for a client and let it in",
        "Prints the file that the client needs; it holds a secret and is readable by you alone.",
        example="steno keys new laptop --right read -o laptop.key",
    )  # fmt: skip
    parser.add_argument("key_name", metavar="NAME", help="letters, digits, _ and -")
    parser.add_argument(
        "--right", choices=list(RIGHTS), default=Right.WRITE.label,
        help="what the client may do (default: write)",
    )  # fmt: skip
    parser.add_argument(
        "-o",
        "--output",
        metavar="FILE",
        type=place,
        help="where to (default: keys/NAME.key in the root)",
    )
