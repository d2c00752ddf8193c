"""The subcommands that print records: read, tail."""

from argparse import Namespace
from collections.abc import Callable, Iterable
from typing import assert_never

from steno._sansio.reading import check_reached
from steno._sync.client import BlockingClient
from steno.cli.connection import connected
from steno.cli.exits import Exit, WrongUsage
from steno.cli.render import contract
from steno.cli.render.output import Output
from steno.cli.render.times import Since
from steno.cli.render.wording import count, number
from steno.values import DmailEvent, Live, Record, RecordsEvent, Reset, SubscriptionEvent
from steno_protocol.commands import Read
from steno_protocol.positions import Position
from steno_protocol.replies import Lines


def read(options: Namespace, output: Output) -> int:
    """Print the records between two positions of one generation."""
    after = _start(options)
    with connected(options) as client:
        check_span(client, options.session, after, options.until)
        records = client.session(options.session).records(
            after, options.until, strict=options.strict
        )
        for record in Since(options.since).records(records):
            print_record(output, record)
        tell_damaged(output, records.damaged, "; --strict stops at the first")
    return Exit.DONE


def tail(options: Namespace, output: Output) -> int:
    """Print the last records, and with -f those that come."""
    with connected(options) as client:
        session = client.session(options.session)
        check_span(client, options.session, options.after)
        after = options.after or _last_lines(client, options.session, options.lines)
        if options.follow:
            with session.subscribe(after) as events:
                follow(events, output, lambda event: _print_records(output, event))
            return Exit.DONE
        records = session.records(after)
        for record in records:
            print_record(output, record)
        tell_damaged(output, records.damaged)
    return Exit.DONE


def check_span(
    client: BlockingClient,
    session: str,
    after: Position | None,
    until: Position | None = None,
    command: type[Read] = Read,
) -> None:
    """Refuse what the file does not have, before anything of it is printed.

    Raises:
        NotFound: the file ends before one of the positions.
        WrongUsage: the second one lies before the first.
    """
    last = until or after
    if last is None:
        return
    if after is not None and last < after:
        raise WrongUsage(f"{last} lies before {after}: exchange them", session=session)
    asked = command(session=session, after=str(last), until=str(last), bytes_max=1)
    reply, _ = client.request(asked, Lines)
    check_reached(session, last, Position.parse(reply.next))


def print_record(output: Output, record: Record) -> None:
    """One record: its bytes as they lie in the file, or a document with its cursor."""
    if output.as_json:
        output.json_line(contract.record(record))
    else:
        output.json_line(record.raw if record.raw.endswith(b"\n") else record.raw + b"\n")


def tell_damaged(output: Output, damaged: int, hint: str = "") -> None:
    """Say how many lines were passed over, if any."""
    if damaged:
        what = "line was no record and was" if damaged == 1 else "lines were no records and were"
        output.say(f"{number(damaged)} {what} passed over{hint}")


def follow(
    events: Iterable[SubscriptionEvent], output: Output, show: Callable[[RecordsEvent], None]
) -> None:
    """Print what a subscription brings, at once: records by `show`, and what a rewrite did."""
    for event in events:
        match event:
            case RecordsEvent():
                show(event)
            case Reset():
                if output.as_json:
                    output.document(contract.reset(event))
                else:
                    output.flush()
                    _tell_reset(output, event)
            case Live() | DmailEvent():
                pass
            case _:
                assert_never(event)
        output.flush()


def _tell_reset(output: Output, reset: Reset) -> None:
    """Say what a rewrite did to the lines before it."""
    kept = f"its first {count(reset.kept, 'line')} stay" if reset.kept else "no line stays"
    output.say(f"the session was {reset.why}: generation {reset.generation} begins, {kept}")


def _print_records(output: Output, event: RecordsEvent) -> None:
    for record in event.records():
        print_record(output, record)


def _start(options: Namespace) -> Position | None:
    """Where to begin; a place to end at says which generation is meant, too."""
    after: Position | None = options.after
    until: Position | None = options.until
    if options.generation is not None:
        after = Position(options.generation, 0)
    if after is None and until is not None:
        after = Position(until.generation, 0)
    if after is not None and until is not None and after.generation != until.generation:
        raise WrongUsage(
            f"{after} and {until} lie in different generations, which are different files:"
            " read one generation at a time",
            session=options.session,
        )
    return after


def _last_lines(client: BlockingClient, session: str, lines: int) -> Position:
    head = Position.parse(client.stat(session).head)
    return Position(head.generation, max(0, head.line - lines))
