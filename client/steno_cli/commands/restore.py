"""`steno restore`: a past generation restored."""

from argparse import Namespace

from steno_cli.arguments import (
    Subcommands,
    change_options,
    command,
    session_argument,
    whole_number,
    why_option,
)
from steno_cli.changes import change
from steno_cli.render.output import Output


def add_parser(commands: Subcommands) -> None:
    """Add the command line."""
    parser = command(
        commands, "restore", run,
        "The present state becomes a past generation, so a restore can be undone.",
        example="steno restore demo 0",
    )  # fmt: skip
    session_argument(parser)
    parser.add_argument(
        "generation", metavar="GENERATION", type=whole_number, help="the number of the generation"
    )
    why_option(parser)
    change_options(parser)


def run(options: Namespace, output: Output) -> int:
    """Restore a past generation."""
    target, why = options.generation, options.why
    return change(
        options, output, lambda session, how: session.restore_generation(target, why=why, **how)
    )
