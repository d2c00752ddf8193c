"""`steno revert`: a checkpoint and everything after it removed."""

from argparse import Namespace

from steno_cli.arguments import (
    Subcommands,
    change_options,
    checkpoint_or_line_argument,
    command,
    session_argument,
    why_option,
)
from steno_cli.changes import change
from steno_cli.render.output import Output


def add_parser(commands: Subcommands) -> None:
    """Add the command line."""
    parser = command(
        commands, "revert", run,
        "Prints the new head. The removed records stay in a past generation; `steno restore` brings"
        " them back.",
        example="steno revert demo 3 --why 'wrong way'",
    )  # fmt: skip
    session_argument(parser)
    checkpoint_or_line_argument(parser)
    why_option(parser)
    change_options(parser)


def run(options: Namespace, output: Output) -> int:
    """Remove a checkpoint, or a line, and everything after it."""
    target, why = options.checkpoint, options.why
    return change(options, output, lambda session, how: session.revert_to(target, why=why, **how))
