"""`steno open`: a session opened, and created if necessary."""

from argparse import Namespace

from steno.parts import opening
from steno_cli.arguments import Subcommands, command, key_option, no_create_option, session_argument
from steno_cli.connection import connected
from steno_cli.exits import Exit
from steno_cli.render.output import Output
from steno_present import contract
from steno_protocol.replies import SessionStat


def add_parser(commands: Subcommands) -> None:
    """Add the command line."""
    parser = command(
        commands, "open", run,
        "Crash recovery runs now instead of at the first append. Prints the head.",
        example="steno open team/planner-1 --exclusive",
    )  # fmt: skip
    session_argument(parser, by_prefix=False)
    parser.set_defaults(makes_root=True)
    no_create_option(parser)
    parser.add_argument(
        "--exclusive", action="store_true", help="fail if the session already exists"
    )
    parser.add_argument(
        "--no-stamp", action="store_true",
        help="for a new session: store records byte for byte, without _id and _by; retries are then"
        " recognised only while the daemon runs",
    )  # fmt: skip
    key_option(parser)


def run(options: Namespace, output: Output) -> int:
    """Open a session, and print its head."""
    with connected(options) as client:
        # `client.open` does not return the reply, which says whether the session was created.
        request = opening(
            options.session,
            client.name,
            options.key,
            create=not options.no_create,
            exclusive=options.exclusive,
            stamp=not options.no_stamp,
        )
        found, _ = client.request(request, SessionStat)
    if output.as_json:
        output.document(contract.document(found))
        return Exit.DONE
    output.write(found.head)
    did = "was created" if found.created else "exists"
    output.say(f"{found.session} {did}, in {found.folder}")
    return Exit.DONE
