"""`steno tail`: the last records or events, and new ones as they come."""

import shlex
import time
from argparse import Namespace
from collections.abc import Callable

from steno import BlockingClient
from steno.values import Record, RecordsEvent, WireRecord
from steno_cli.arguments import (
    after_option,
    argument,
    command,
    flag,
    follow_option,
    one_of,
    session_argument,
    whole_number,
)
from steno_cli.command_limits import SESSION_POLL_S
from steno_cli.connection import connected
from steno_cli.exits import Exit, WrongUsage
from steno_cli.readable import conversation_for
from steno_cli.records import (
    check_span,
    follow,
    print_event,
    print_record,
    report_damaged,
)
from steno_cli.render.output import Output
from steno_present import contract
from steno_protocol import paths
from steno_protocol.commands import List, ReadWire
from steno_protocol.errors import NotFound
from steno_protocol.positions import Position
from steno_protocol.replies import Lines, Sessions


@command(
    "tail",
    "On a terminal in readable form, as `steno show`; in a pipe the records as JSON. With -f,"
    " prints each new record once it is durable: no gap and no duplicate, across"
    " rewrites and restarts of the daemon. -5 is short for -n 5. --wait waits for the session"
    " with the full id SESSION until another client creates it.",
    session_argument,
    one_of(
        argument(
            "-n", "--lines", metavar="N", type=whole_number, default=10,
            help="the number of the last lines (default: 10)",
        ),
        after_option,
    ),
    follow_option,
    flag("--wait", help="with -f, wait until the session exists"),
    flag("--wire", help="print events of the wire file instead of records"),
    example="steno tail demo -5\nsteno tail demo -n 3 -f\nsteno tail demo -f --wait",
)  # fmt: skip
def run(options: Namespace, output: Output) -> int:
    """Print the last lines, and with -f each new one."""
    if options.wait and not options.follow:
        raise WrongUsage("--wait waits for new records, and only -f prints those: add -f")
    tail = _tail_events if options.wire else _tail_records
    with connected(options, output=output) as client:
        if options.wait:
            _wait_for_session(client, options, output)
        try:
            tail(client, options, output)
        except NotFound as error:
            if not options.follow or _exists(client, options.session):
                raise
            waiting = shlex.join(["steno", "tail", "-f", options.session, "--wait"])
            raise NotFound(
                f"{error.message}; `{waiting}` waits for it", session=options.session
            ) from error
    return Exit.DONE


def _wait_for_session(client: BlockingClient, options: Namespace, output: Output) -> None:
    """Return when the session exists.

    Raises:
        BadRequest: the id is not valid.
        BrokenPipeError: the reader of stdout has gone.
    """
    paths.split_session(options.session)
    if _exists(client, options.session):
        return
    output.say(f"there is no session {options.session} yet: waiting for it")
    while not _exists(client, options.session):
        if not output.has_reader:
            raise BrokenPipeError
        time.sleep(SESSION_POLL_S)


def _exists(client: BlockingClient, session: str) -> bool:
    # A list, because a daemon counts a failed request as an error.
    request = List(prefix=session, limit=1)
    return [each.session for each in client.request(request, Sessions)[0].sessions] == [session]


def _tail_records(client: BlockingClient, options: Namespace, output: Output) -> None:
    session = client.session(options.session)
    check_span(client, options.session, options.after)
    after = options.after
    if after is None:
        head = Position.parse(client.stat(options.session).head)
        after = Position(head.generation, max(0, head.line - options.lines))
    show = _printer(output)
    if options.follow:
        with session.subscribe(after) as events:
            follow(events, output, lambda event: _print_records(show, event))
        return
    records = session.records(after)
    for record in records:
        show(record)
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


def _printer(output: Output) -> Callable[[Record], None]:
    """Prints a record: for a reader at a terminal, as it is stored for a program."""
    if output.as_json or not output.is_terminal:
        return lambda record: print_record(output, record)
    conversation = conversation_for(output)

    def show(record: Record) -> None:
        for line in conversation.record(record):
            output.write(line)

    return show


def _print_records(show: Callable[[Record], None], event: RecordsEvent) -> None:
    for record in event.records():
        show(record)


def _print_stored_events(output: Output, event: RecordsEvent) -> None:
    for each in event.wire_records():
        _print_stored(output, each)


def _print_stored(output: Output, event: WireRecord) -> None:
    """Print an event: on one line of a terminal, as it is stored, or as a document."""
    if output.is_terminal and not output.as_json:
        print_event(output, event)
    else:
        output.json_line(contract.record(event) if output.as_json else event.raw)
