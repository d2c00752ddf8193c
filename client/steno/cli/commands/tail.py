"""`steno tail`: the last records or events, and new ones as they come."""

from argparse import Namespace

from steno._sync.client import BlockingClient
from steno.cli.arguments import Subcommands, command, position, session_argument, whole_number
from steno.cli.connection import connected
from steno.cli.exits import Exit
from steno.cli.records import check_span, follow, print_record, report_damaged
from steno.cli.render import contract
from steno.cli.render.output import Output
from steno.values import RecordsEvent, WireRecord
from steno_protocol.commands import ReadWire
from steno_protocol.positions import Position
from steno_protocol.replies import Lines


def add_parser(commands: Subcommands) -> None:
    """Add the command line."""
    parser = command(
        commands, "tail", run,
        "With -f, prints each new record once it is durable: no gap and no duplicate, across"
        " rewrites and restarts of the daemon.",
        example="steno tail demo -n 3 -f",
    )  # fmt: skip
    session_argument(parser)
    start = parser.add_mutually_exclusive_group()
    start.add_argument(
        "-n", "--lines", metavar="N", type=whole_number, default=10, help="(default: 10)"
    )
    start.add_argument("--after", metavar="POSITION", type=position, help="start after POSITION")
    parser.add_argument(
        "-f", "--follow", action="store_true", help="print new records as they become durable"
    )
    parser.add_argument(
        "--wire", action="store_true", help="print events of the wire file instead of records"
    )


def run(options: Namespace, output: Output) -> int:
    """Print the last lines, and with -f each new one."""
    with connected(options) as client:
        tail = _tail_events if options.wire else _tail_records
        tail(client, options, output)
    return Exit.DONE


def _tail_records(client: BlockingClient, options: Namespace, output: Output) -> None:
    session = client.session(options.session)
    check_span(client, options.session, options.after)
    after = options.after
    if after is None:
        head = Position.parse(client.stat(options.session).head)
        after = Position(head.generation, max(0, head.line - options.lines))
    if options.follow:
        with session.subscribe(after) as events:
            follow(events, output, lambda event: _print_records(output, event))
        return
    records = session.records(after)
    for record in records:
        print_record(output, record)
    report_damaged(output, records.damaged)


def _tail_events(client: BlockingClient, options: Namespace, output: Output) -> None:
    session = client.session(options.session)
    check_span(client, options.session, options.after, command=ReadWire)
    after = options.after
    if after is None:
        first, _ = client.request(ReadWire(session=options.session, bytes_max=1), Lines)
        head = Position.parse(first.head or first.next)
        after = Position(0, max(0, head.line - options.lines))
    if options.follow:
        with session.subscribe(after, records="wire") as subscription:
            follow(subscription, output, lambda event: _print_stored_events(output, event))
        return
    events = session.wire_records(after)
    for event in events:
        _print_stored(output, event)
    report_damaged(output, events.damaged, "event")


def _print_records(output: Output, event: RecordsEvent) -> None:
    for record in event.records():
        print_record(output, record)


def _print_stored_events(output: Output, event: RecordsEvent) -> None:
    for each in event.wire_records():
        _print_stored(output, each)


def _print_stored(output: Output, event: WireRecord) -> None:
    """Print an event as it is stored, or as a document with its cursor."""
    output.json_line(contract.record(event) if output.as_json else event.raw)
