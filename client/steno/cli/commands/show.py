"""`steno show`: a conversation in readable form."""

import os
import shlex
import shutil
from argparse import Namespace
from collections.abc import Callable, Generator, Iterable
from contextlib import contextmanager
from typing import assert_never

from steno.cli.arguments import Subcommands, command, position, session_argument, whole_number
from steno.cli.connection import connected
from steno.cli.exits import Exit, WrongUsage
from steno.cli.records import check_span, report_damaged
from steno.cli.render import contract
from steno.cli.render.conversation import Conversation
from steno.cli.render.output import Output
from steno.cli.render.wording import count
from steno.cli.since import Since, since_option
from steno.cli.stdin import is_typed
from steno.values import DmailEvent, Live, Record, RecordsEvent, Reset, SubscriptionEvent
from steno_protocol.errors import StenoError
from steno_protocol.positions import Position


def add_parser(commands: Subcommands) -> None:
    """Add the command line."""
    parser = command(
        commands, "show", run,
        "Messages, tool calls and their results, checkpoints and token counts in order. Thoughts"
        " and long results are folded; images appear as type and size.",
        example="steno show demo --since 2h\nsteno show demo --at 0:12",
    )  # fmt: skip
    session_argument(parser)
    past = parser.add_mutually_exclusive_group()
    past.add_argument(
        "--at", metavar="POSITION", type=position, help="show the session as it was before POSITION"
    )
    past.add_argument("--generation", metavar="N", type=whole_number, help="show a past generation")
    past.add_argument(
        "-f", "--follow", action="store_true", help="print new records as they become durable"
    )
    since_option(parser)
    parser.add_argument("--full", action="store_true", help="fold nothing")
    parser.add_argument(
        "--no-pager", action="store_true",
        help="do not page output that is longer than the terminal (PAGER, or less)",
    )  # fmt: skip


def run(options: Namespace, output: Output) -> int:
    """Show the present state or a past one, and with -f each new record."""
    if output.as_json:
        return _show_state(options, output)
    with connected(options) as client:
        session = client.session(options.session)
        conversation = Conversation(output.width, output.style, full=options.full)
        since = Since(options.since)
        if options.follow:
            with session.subscribe("start") as events:
                for event in events:
                    _print_event(output, conversation, event, since)
                    output.flush()
            return Exit.DONE
        check_span(client, options.session, options.at)
        records = session.records(*_span(options))
        # The reader may leave the pager before the last record.
        has_lines = True
        with _paged(output, wanted=not options.no_pager) as write:
            has_lines = _print(write, conversation, since.records(records))
        report_damaged(output, records.damaged)
    if not has_lines:
        output.say(f"{options.session} has no record there")
    return Exit.DONE


def _show_state(options: Namespace, output: Output) -> int:
    if options.follow:
        raise WrongUsage("--json shows one state: follow a session with `steno tail -f --json`")
    if options.since is not None:
        raise WrongUsage("--json shows one state: read its last part with `steno read --since`")
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


def _print(
    write: Callable[[str], None], conversation: Conversation, records: Iterable[Record]
) -> bool:
    """Print the records; returns whether there was a line to print."""
    has_lines = False
    for record in records:
        for line in conversation.record(record):
            write(line)
            has_lines = True
    return has_lines


def _print_event(
    output: Output, conversation: Conversation, event: SubscriptionEvent, since: Since
) -> None:
    match event:
        case RecordsEvent():
            _print(output.write, conversation, since.records(event.records()))
        case Reset():
            kept = f"the first {count(event.kept, 'line')} stay" if event.kept else "no line stays"
            for line in conversation.rule(f"{event.why}: {kept}"):
                output.write(line)
        case Live() | DmailEvent():
            pass
        case _:
            assert_never(event)


@contextmanager
def _paged(output: Output, *, wanted: bool) -> Generator[Callable[[str], None]]:
    """The function that writes the lines of a long text.

    A pager needs a terminal for the output and the input.
    """
    if not (wanted and output.is_terminal and is_typed()):
        yield output.write
        return
    lines: list[str] = []
    try:
        yield lines.append
    except StenoError:
        # The lines before the error are shown, too.
        _show_lines(output, lines)
        raise
    _show_lines(output, lines)


def _show_lines(output: Output, lines: list[str]) -> None:
    """Write the lines; through the pager if they do not fit on the screen."""
    pager = os.environ.get("PAGER", "less")
    # The prompt of the shell takes one row.
    is_long = len(lines) >= shutil.get_terminal_size().lines - 1
    words = shlex.split(pager)
    is_there = bool(words) and shutil.which(words[0]) is not None
    if is_long and os.environ.get("PAGER") and not is_there:
        output.say(f"the pager {pager} cannot be run: it is not on the PATH")
    if not (is_long and is_there):
        for line in lines:
            output.write(line)
        return
    # Imported here: the import takes as long as a short command.
    import pydoc  # noqa: PLC0415

    # `less` passes the colours on only with -R.
    os.environ.setdefault("LESS", "FRX")
    output.flush()
    pydoc.pager("".join(f"{output.fitted(line)}\n" for line in lines))
