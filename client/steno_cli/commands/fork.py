"""`steno fork`: a new session from a past state."""

from argparse import Namespace

from steno_cli.arguments import (
    Subcommands,
    checkpoint,
    command,
    key_option,
    number_from,
    position,
    session_argument,
    title_option,
)
from steno_cli.changes import print_fork
from steno_cli.connection import connected
from steno_cli.render.output import Output


def add_parser(commands: Subcommands) -> None:
    """Add the command line."""
    parser = command(
        commands, "fork", run,
        "The fork is atomic and does not change SESSION. Its wire file is cut at the same instant"
        " as its context. Prints the new id. Without an option, the fork is a copy of the present"
        " state.",
        example="steno fork demo demo-2 --turn 3",
    )  # fmt: skip
    session_argument(parser)
    parser.add_argument("new", metavar="NEW", help="the id of the new session")
    instant = parser.add_mutually_exclusive_group()
    instant.add_argument(
        "--at", metavar="POSITION", type=position, help="the state before POSITION"
    )
    instant.add_argument(
        "--checkpoint",
        metavar="N",
        type=checkpoint,
        help="the state after a revert to this checkpoint, an id or a handle",
    )
    instant.add_argument(
        "--turn", metavar="N", type=number_from(-1),
        help="the state at the end of turn N, counted from 0; -1 is before the first turn",
    )  # fmt: skip
    parser.add_argument(
        "--close-calls", action="store_true",
        help="append a result to each call of the fork that has none, as `steno repair` does",
    )  # fmt: skip
    title_option(parser)
    key_option(parser)


def run(options: Namespace, output: Output) -> int:
    """Create a new session from a past state of another one."""
    with connected(options) as client:
        fork = client.session(options.session).fork(
            options.new,
            at=options.at,
            checkpoint=options.checkpoint,
            turn=options.turn,
            title=options.title,
            key=options.key,
        )
        return print_fork(output, fork, close=options.close_calls)
