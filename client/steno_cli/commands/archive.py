"""`steno archive`: a session hidden from lists."""

from argparse import Namespace

from steno_cli.arguments import Subcommands, command, session_argument
from steno_cli.changes import set_archived
from steno_cli.render.output import Output


def add_parser(commands: Subcommands) -> None:
    """Add the command line."""
    parser = command(
        commands, "archive", run,
        "The session can still be read and written by its id.",
        example="steno archive demo",
    )  # fmt: skip
    session_argument(parser)
    parser.set_defaults(changes=True)


def run(options: Namespace, output: Output) -> int:
    """Change the mark of the session."""
    return set_archived(options, output, archived=True)
