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
        commands, "fork", "fork:fork", "make a new session of what this one was",
        "The new session is complete, or not there at all; this one is not touched. Its wire file"
        " is cut at the same instant as its context. Prints its id. (default: as it is now)",
        example="steno fork demo demo-2 --turn 3",
    )  # fmt: skip
    session_argument(parser)
    parser.add_argument("new", metavar="NEW", help="the id of the new session")
    instant = parser.add_mutually_exclusive_group()
    instant.add_argument(
        "--at", metavar="POSITION", type=position, help="what there was before this position"
    )
    instant.add_argument(
        "--checkpoint",
        metavar="N",
        type=checkpoint_id,
        help="what a revert to this checkpoint would leave",
    )
    instant.add_argument(
        "--turn", metavar="N", type=number_from(-1),
        help="up to the end of this turn, counted from 0; -1 is before the first",
    )  # fmt: skip
    title(parser)
    key(parser)


def add_undo(commands: Subcommands) -> None:
    parser = command(
        commands, "undo", "fork:undo", "fork a session before its last turns",
        "The session itself stays as it is. Prints the id of the new one.",
        example="steno undo demo --turns 2",
    )  # fmt: skip
    session_argument(parser)
    parser.add_argument(
        "--turns", metavar="N", type=number_from(1), default=1, help="how many (default: 1)"
    )
    parser.add_argument(
        "--to", metavar="NEW",
        help="the id of the new session (default: SESSION-undo- and some digits)",
    )  # fmt: skip
    title(parser)
    key(parser)
