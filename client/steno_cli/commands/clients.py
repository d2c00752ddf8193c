"""`steno clients`: the connected clients."""

from argparse import Namespace
from typing import Final

from steno_cli.arguments import Subcommands, command, optional_argument
from steno_cli.connection import connected
from steno_cli.exits import Exit
from steno_cli.render.output import Output
from steno_cli.render.tables import Column, lines_of
from steno_present import contract
from steno_present.safe_text import printable
from steno_present.wording import duration, number
from steno_protocol.replies import ClientEntry, ClientsReport

_COLUMNS: Final = (
    Column("NAME", ("cyan",)),
    Column("PID", is_right=True),
    Column("FOR", ("dim",)),
    Column("REQUESTS", is_right=True),
    Column("DROPPED", is_right=True),
    Column("FOLLOWS"),
    Column("KEY", ("green",)),
)
"""The columns of the table; the last one is only shown beside clients of other machines."""


def add_parser(commands: Subcommands) -> None:
    """Add the command line."""
    parser = command(
        commands, "clients", run,
        "NAME is the name that a client gives itself; KEY is that of its key, if it is on another"
        " machine.",
        example="steno clients demo",
    )  # fmt: skip
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
        output.document(contract.document(report))
        return Exit.DONE
    has_keys = any(entry.key is not None for entry in report.clients)
    columns = _COLUMNS if has_keys else _COLUMNS[:-1]
    rows = [_client_row(entry)[: len(columns)] for entry in report.clients]
    for line in lines_of(output, columns, rows):
        output.write(line)
    if not rows and options.session is not None:
        output.say(f"{options.session} has no followers")
    return Exit.DONE


def _client_row(entry: ClientEntry) -> tuple[str, ...]:
    return (
        printable(entry.name or "?", one_line=True),
        "?" if entry.pid is None else str(entry.pid),
        duration(entry.connected_s),
        number(entry.requests),
        number(entry.dropped),
        printable(" ".join(entry.subscriptions) or "-", one_line=True),
        entry.key or "-",
    )
