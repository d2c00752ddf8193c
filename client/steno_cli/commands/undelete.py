"""`steno undelete`: a session restored from the trash."""

from argparse import Namespace

from steno import BlockingClient
from steno_cli.arguments import Subcommands, command, key_option, path_text
from steno_cli.connection import connected
from steno_cli.exits import Exit
from steno_cli.render.output import Output
from steno_cli.session_ids import meant
from steno_present import contract
from steno_protocol.errors import NotFound


def add_parser(commands: Subcommands) -> None:
    """Add the command line."""
    parser = command(
        commands, "undelete", run,
        "Also restores the sessions that were deleted with it. `steno sessions --trash` lists the"
        " deleted sessions; its short ids are enough unless --key is given. Prints the id.",
        example="steno undelete demo",
    )  # fmt: skip
    parser.add_argument(
        "session", metavar="SESSION", help="the id of a deleted session or a unique prefix"
    )
    parser.add_argument(
        "--trash", metavar="FOLDER", type=path_text,
        help="its folder in the trash (default: that of the latest deletion)",
    )  # fmt: skip
    key_option(parser)


def run(options: Namespace, output: Output) -> int:
    """Restore a session from the trash."""
    with connected(options) as client:
        session = options.session if options.key else _full_id(client, options.session)
        moved = client.undelete(session, trash=options.trash, key=options.key)
    if output.as_json:
        output.document(contract.document(moved))
        return Exit.DONE
    output.write(moved.session)
    output.say(f"{moved.session} is restored: `steno show {moved.session}` shows it")
    return Exit.DONE


def _full_id(client: BlockingClient, text: str) -> str:
    """The only deleted session that a text means; the text itself if it is an id or means none.

    Raises:
        NotFound: the text means several.
    """
    ids = sorted({entry.session for entry in client.trash()})
    found = meant(text, ids)
    if len(found) > 1:
        raise NotFound(
            f"several deleted sessions have an id that begins with {text}: {', '.join(found[:5])};"
            " give more of it",
            session=text,
        )
    return found[0] if found else text
