"""The subcommand `show`: a conversation for a person, or its state as one document."""

from argparse import Namespace
from collections.abc import Iterable
from typing import assert_never

from steno.blocking import BlockingSession
from steno.cli import contract
from steno.cli.connection import connected
from steno.cli.conversation import Conversation
from steno.cli.exits import Exit, WrongUsage
from steno.cli.output import Output
from steno.cli.reading import tell_damaged
from steno.cli.wording import count
from steno.values import DmailEvent, Live, Record, RecordsEvent, Reset, SubscriptionEvent
from steno_protocol.positions import Position


def show(options: Namespace, output: Output) -> int:
    """Show the present, a past state, or what comes."""
    if options.follow and output.as_json:
        raise WrongUsage("--json shows one state: follow a session with `steno tail -f --json`")
    with connected(options) as client:
        session = client.session(options.session)
        if output.as_json:
            past = options.at if options.generation is None else options.generation
            output.document(contract.state(options.session, session.history_at(past)))
            return Exit.DONE
        conversation = Conversation(output.width, output.style, full=options.full)
        if options.follow:
            return _follow(session, conversation, output)
        records = session.records(*_span(options))
        _print(output, conversation, records)
        tell_damaged(output, records.damaged)
    return Exit.DONE


def _span(options: Namespace) -> tuple[Position | None, Position | None]:
    until: Position | None = options.at
    if until is not None:
        return Position(until.generation, 0), until
    if options.generation is not None:
        return Position(options.generation, 0), None
    return None, None


def _print(output: Output, conversation: Conversation, records: Iterable[Record]) -> None:
    for record in records:
        for line in conversation.record(record):
            output.write(line)


def _follow(session: BlockingSession, conversation: Conversation, output: Output) -> int:
    with session.subscribe("start") as events:
        for event in events:
            _print_event(output, conversation, event)
            output.flush()
    return Exit.DONE


def _print_event(output: Output, conversation: Conversation, event: SubscriptionEvent) -> None:
    match event:
        case RecordsEvent():
            _print(output, conversation, event.records())
        case Reset():
            kept = f"the first {count(event.kept, 'line')} stay" if event.kept else "nothing stays"
            for line in conversation.rule(f"{event.why}: {kept}"):
                output.write(line)
        case Live() | DmailEvent():
            pass
        case _:
            assert_never(event)
