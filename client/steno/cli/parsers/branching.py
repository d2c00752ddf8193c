"""The command lines that make a session of another one's past: fork, undo."""

from steno.cli.arguments import (
    Subcommands,
    checkpoint_id,
    command,
    key,
    number_from,
    position,
    session_argument,
    title,
)


def add_fork(commands: Subcommands) -> None:
    parser = command(
        commands, "fork", "fork:fork", "create a new session from a past state",
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
        type=checkpoint_id,
        help="the state after a revert to this checkpoint",
    )
    instant.add_argument(
        "--turn", metavar="N", type=number_from(-1),
        help="the state at the end of turn N, counted from 0; -1 is before the first turn",
    )  # fmt: skip
    title(parser)
    key(parser)


def add_undo(commands: Subcommands) -> None:
    parser = command(
        commands, "undo", "fork:undo", "fork a session before its last turns",
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
    title(parser)
    key(parser)
