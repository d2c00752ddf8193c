"""`steno undo`: a fork of a session before its last turns."""

from argparse import Namespace

from steno_cli.arguments import (
    Subcommands,
    command,
    key_option,
    number_from,
    session_argument,
    title_option,
)
from steno_cli.changes import print_fork
from steno_cli.connection import connected
from steno_cli.render.output import Output


def add_parser(commands: Subcommands) -> None:
    """Add the command line."""
    parser = command(
        commands, "undo", run,
        "SESSION is not changed. Prints the id of the new session.",
        example="steno undo demo --turns 2",
    )  # fmt: skip
    session_argument(parser)
    parser.add_argument(
        "--turns",
        metavar="N",
        type=number_from(1),
        default=1,
        help="number of turns to drop (default: 1)",
    )
    parser.add_argument(
        "--to", metavar="NEW",
        help="the id of the new session (default: SESSION-undo- and some digits)",
    )  # fmt: skip
    title_option(parser)
    key_option(parser)


def run(options: Namespace, output: Output) -> int:
    """Fork a session before its last turns."""
    with connected(options) as client:
        fork = client.session(options.session).undo(
            options.turns, options.to, title=options.title, key=options.key
        )
        return print_fork(output, fork)
