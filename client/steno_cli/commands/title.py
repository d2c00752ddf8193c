"""`steno title`: the title of a session."""

from argparse import Namespace

from steno_cli.arguments import (
    Subcommands,
    command,
    optional_argument,
    session_argument,
    title_text,
)
from steno_cli.connection import connected
from steno_cli.exits import Exit
from steno_cli.render.output import Output
from steno_present import contract
from steno_present.safe_text import printable


def add_parser(commands: Subcommands) -> None:
    """Add the command line."""
    parser = command(
        commands, "title", run,
        "An empty TEXT removes the title.",
        example="steno title demo 'What is in this folder?'",
    )  # fmt: skip
    session_argument(parser)
    optional_argument(
        parser, "text", title_text, "the title, one line (default: show the current one)"
    )
    parser.set_defaults(changes="text")


def run(options: Namespace, output: Output) -> int:
    """Set a session's title, or print the present one."""
    with connected(options) as client:
        if options.text is None:
            stat = client.stat(options.session)
        else:
            stat = client.session(options.session).describe(title=options.text)
    if output.as_json:
        output.document(contract.description(stat))
    elif options.text is None and not stat.title:
        output.say(f"the session {stat.session} has no title: give one as TEXT")
    elif options.text is None:
        output.write(printable(stat.title, one_line=True))
    return Exit.DONE
