"""`steno clear`: all records removed."""

from argparse import Namespace

from steno_cli.arguments import Subcommands, change_options, command, session_argument, why_option
from steno_cli.changes import change
from steno_cli.render.output import Output


def add_parser(commands: Subcommands) -> None:
    """Add the command line."""
    parser = command(
        commands, "clear", run,
        "Prints the new head. The removed records stay in a past generation; `steno restore` brings"
        " them back.",
        example="steno clear demo",
    )  # fmt: skip
    session_argument(parser)
    why_option(parser)
    change_options(parser)


def run(options: Namespace, output: Output) -> int:
    """Remove all records."""
    return change(options, output, lambda session, how: session.clear(why=options.why, **how))
