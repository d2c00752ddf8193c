"""`steno delete`: a session moved to the trash."""

from argparse import Namespace

from steno import BlockingClient
from steno_cli.arguments import Subcommands, command, key_option, session_argument
from steno_cli.connection import connected
from steno_cli.exits import Exit
from steno_cli.render.output import Output
from steno_cli.stdin import is_typed, stdin
from steno_present import contract
from steno_present.wording import count, moment
from steno_protocol.replies import SessionStat


def add_parser(commands: Subcommands) -> None:
    """Add the command line."""
    parser = command(
        commands, "delete", run,
        "Also deletes the sessions below it. A unique prefix is enough unless --key is given. Asks"
        " for confirmation on a terminal. Prints the trash folder and its time of expiry.",
        example="steno delete demo --yes",
    )  # fmt: skip
    session_argument(parser)
    parser.add_argument("--yes", action="store_true", help="do not ask for confirmation")
    key_option(parser)


def run(options: Namespace, output: Output) -> int:
    """Move a session to the trash, after a confirmation on a terminal."""
    with connected(options) as client:
        if not options.yes and is_typed() and not _is_sure(client, options, output):
            output.say(f"{options.session} stays")
            return Exit.FAILED
        deleted = client.delete(options.session, key=options.key)
    if output.as_json:
        output.document(contract.deleted(options.session, deleted))
        return Exit.DONE
    output.write(str(deleted.trash))
    output.say(
        f"{options.session} is in the trash and expires {moment(deleted.expires_at)}: `steno"
        f" undelete {options.session}` restores it"
    )
    return Exit.DONE


def _is_sure(client: BlockingClient, options: Namespace, output: Output) -> bool:
    stat = client.stat(options.session)
    below = len(client.sessions(f"{options.session}/"))
    more = f" and {count(below, 'session')} below it" if below else ""
    output.ask(f"move {_named(stat)}{more} to the trash? [y/N] ")
    return stdin().readline().strip().lower() in {"y", "yes"}


def _named(stat: SessionStat) -> str:
    return f"{stat.session} ({stat.title})" if stat.title else stat.session
