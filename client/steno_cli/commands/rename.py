"""`steno rename`: another id for a session."""

from argparse import Namespace

from steno_cli.arguments import Subcommands, command, key_option, session_argument
from steno_cli.connection import connected
from steno_cli.exits import Exit
from steno_cli.render.output import Output
from steno_present import contract


def add_parser(commands: Subcommands) -> None:
    """Add the command line."""
    parser = command(
        commands, "rename", run,
        "Also renames the sessions below it. The new id is in the same root or mount. Followers of"
        " the old id end, and the old id is free. A unique prefix of SESSION is enough unless --key"
        " is given. Prints the new id.",
        example="steno rename demo team/demo",
    )  # fmt: skip
    session_argument(parser)
    parser.add_argument("new", metavar="NEW-ID", help="the new id of the session")
    key_option(parser)


def run(options: Namespace, output: Output) -> int:
    """Give a session another id."""
    with connected(options) as client:
        moved = client.rename(options.session, options.new, key=options.key)
    if output.as_json:
        output.document(contract.document(moved))
        return Exit.DONE
    output.write(moved.session)
    output.say(f"{options.session} is now {moved.session}")
    return Exit.DONE
