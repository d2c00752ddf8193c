"""`steno checkpoint`: a new checkpoint."""

from argparse import Namespace

from steno_cli.arguments import (
    Subcommands,
    add_user_message_option,
    change_options,
    command,
    create_options,
    session_argument,
)
from steno_cli.changes import change
from steno_cli.render.output import Output


def add_parser(commands: Subcommands) -> None:
    """Add the command line."""
    parser = command(
        commands, "checkpoint", run,
        "Prints the id, and on stderr the handle, which a revert and all other commands take"
        " as well and which is refused once another checkpoint has the id.",
        example="steno checkpoint demo",
    )  # fmt: skip
    session_argument(parser)
    add_user_message_option(parser)
    create_options(parser)
    change_options(parser)


def run(options: Namespace, output: Output) -> int:
    """Append a checkpoint and print its id."""
    visible = options.add_user_message
    return change(options, output, lambda session, how: session.checkpoint(visible, **how))
