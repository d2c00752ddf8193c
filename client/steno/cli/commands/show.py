"""The subcommand `show`: a conversation for a person, or its state as one document."""

from argparse import Namespace
from collections.abc import Iterable
from typing import Protocol, assert_never

from steno._sync.client import BlockingSession
from steno.cli.commands.read import check_span, tell_damaged
from steno.cli.connection import connected
from steno.cli.exits import Exit, WrongUsage
from steno.cli.render import contract
from steno.cli.render.conversation import Conversation
from steno.cli.render.output import Output
from steno.cli.render.paging import paged
from steno.cli.render.times import Since
from steno.cli.render.wording import count
from steno.values import DmailEvent, Live, Record, RecordsEvent, Reset, SubscriptionEvent
from steno_protocol.positions import Position


class Lines(Protocol):
    """Where lines go: the output itself, or a pager."""

    def write(self, text: str, /) -> None:
        """One line."""
        ...


def show(options: Namespace, output: Output) -> int:
    """Show the present, a past state, or what comes."""
    if output.as_json:
        return _show_state(options, output)
    with connected(options) as client:
        session = client.session(options.session)
        conversation = Conversation(output.width, output.style, full=options.full)
        if options.follow:
            return _follow(session, conversation, output, Since(options.since))
        check_span(client, options.session, options.at)
        records = session.records(*_span(options))
        # A user who leaves the pager early has seen some.
        has_lines = True
        with paged(output, wanted=not options.no_pager) as screen:
            has_lines = _print(screen, conversation, Since(options.since).records(records))
        tell_damaged(output, records.damaged)
    if not has_lines:
        output.say(f"no record of {options.session} lies there")
    return Exit.DONE


def _show_state(options: Namespace, output: Output) -> int:
    if options.follow:
        raise WrongUsage("--json shows one state: follow a session with `steno tail -f --json`")
    if options.since is not None:
        raise WrongUsage("--json shows one state: take its last part with `steno read --since`")
    with connected(options) as client:
        past = options.at if options.generation is None else options.generation
        state = client.session(options.session).history_at(past)
    output.document(contract.state(options.session, state))
    return Exit.DONE


def _span(options: Namespace) -> tuple[Position | None, Position | None]:
    until: Position | None = options.at
    if until is not None:
        return Position(until.generation, 0), until
    if options.generation is not None:
        return Position(options.generation, 0), None
    return None, None


def _print(screen: Lines, conversation: Conversation, records: Iterable[Record]) -> bool:
    """Show the records; False when there was nothing of them to show."""
    has_lines = False
    for record in records:
        for line in conversation.record(record):
            screen.write(line)
            has_lines = True
    return has_lines


def _follow(
    session: BlockingSession, conversation: Conversation, output: Output, since: Since
) -> int:
    with session.subscribe("start") as events:
        for event in events:
            _print_event(output, conversation, event, since)
            output.flush()
    return Exit.DONE


def _print_event(
    output: Output, conversation: Conversation, event: SubscriptionEvent, since: Since
) -> None:
    match event:
        case RecordsEvent():
            _print(output, conversation, since.records(event.records()))
        case Reset():
            kept = f"the first {count(event.kept, 'line')} stay" if event.kept else "nothing stays"
            for line in conversation.rule(f"{event.why}: {kept}"):
                output.write(line)
        case Live() | DmailEvent():
            pass
        case _:
            assert_never(event)
