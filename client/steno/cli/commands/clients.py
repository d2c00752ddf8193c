"""`steno clients`: the connected clients."""

from argparse import Namespace

from steno.cli.arguments import Subcommands, command, optional_argument
from steno.cli.connection import connected
from steno.cli.exits import Exit
from steno.cli.render import contract
from steno.cli.render.output import Output, printable
from steno.cli.render.tables import table
from steno.cli.render.wording import duration, number
from steno_protocol.replies import ClientEntry, ClientsReport


def add_parser(commands: Subcommands) -> None:
    """Add the command line."""
    parser = command(commands, "clients", run, example="steno clients demo")
    optional_argument(
        parser, "session", str, "only clients that follow this session (an id or a unique prefix)"
    )
    parser.set_defaults(by_prefix=True)


def run(options: Namespace, output: Output) -> int:
    """List the connected clients."""
    with connected(options, spawn=False) as client:
        report = client.clients(options.session)
        if options.session is not None and report == ClientsReport(clients=[]):
            # No client follows it, perhaps because there is no such session.
            client.stat(options.session)
    if output.as_json:
        entries = [contract.reply(entry) for entry in report.clients]
        output.document({**contract.reply(report), "clients": entries})
        return Exit.DONE
    rows = [_client_row(entry) for entry in report.clients]
    if rows and output.is_terminal:
        rows.insert(0, ("NAME", "PID", "FOR", "REQUESTS", "DROPPED", "FOLLOWS"))
    for line in table(rows, right=frozenset({1, 3, 4})):
        output.write(printable(line))
    if not rows and options.session is not None:
        output.say(f"{options.session} has no followers")
    return Exit.DONE


def _client_row(entry: ClientEntry) -> tuple[str, ...]:
    return (
        entry.name or "?",
        "?" if entry.pid is None else str(entry.pid),
        duration(entry.connected_s),
        number(entry.requests),
        number(entry.dropped),
        " ".join(entry.subscriptions) or "-",
    )
