"""`steno undelete`: a session restored from the trash."""

from argparse import Namespace

from steno.cli.arguments import Subcommands, command, key_option, path_text, session_argument
from steno.cli.connection import connected
from steno.cli.exits import Exit
from steno.cli.render import contract
from steno.cli.render.output import Output


def add_parser(commands: Subcommands) -> None:
    """Add the command line."""
    parser = command(
        commands, "undelete", run,
        "Also restores the sessions that were deleted with it. `steno sessions --trash` lists the"
        " deleted sessions. Prints the id.",
        example="steno undelete demo",
    )  # fmt: skip
    session_argument(parser, by_prefix=False)
    parser.add_argument(
        "--trash", metavar="FOLDER", type=path_text,
        help="its folder in the trash (default: that of the latest deletion)",
    )  # fmt: skip
    key_option(parser)


def run(options: Namespace, output: Output) -> int:
    """Restore a session from the trash."""
    with connected(options) as client:
        moved = client.undelete(options.session, trash=options.trash, key=options.key)
    if output.as_json:
        output.document(contract.reply(moved))
        return Exit.DONE
    output.write(moved.session)
    output.say(f"{moved.session} is restored: `steno show {moved.session}` shows it")
    return Exit.DONE
