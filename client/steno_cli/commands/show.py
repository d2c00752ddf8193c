"""`steno show`: a conversation in readable form."""

from argparse import Namespace
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Final

from steno import BlockingSession
from steno.values import Record, RecordsEvent, Reset
from steno_cli.arguments import (
    argument,
    command,
    default,
    flag,
    follow_option,
    one_of,
    position,
    whole_number,
)
from steno_cli.closing import say_open_calls
from steno_cli.connection import connected
from steno_cli.exits import Exit, WrongUsage
from steno_cli.origins import Programs, origin_of, program_option, rows_of
from steno_cli.readable import conversation_for
from steno_cli.records import Since, check_span, follow, report_damaged, since_option
from steno_cli.render.output import Output
from steno_cli.render.progress import Progress
from steno_cli.render.tables import table
from steno_present import contract
from steno_present.conversation import Conversation
from steno_present.open_calls import OpenCalls
from steno_present.safe_text import printable
from steno_present.wording import count
from steno_protocol.positions import Position
from steno_protocol.records import is_message_role

if TYPE_CHECKING:
    from steno_redact.redactor import Redactor

_LINES_OF_A_MESSAGE: Final = 4
"""Lines read for each of the last messages of -n, checkpoints and token counts among them; if they
are too few, this many times more."""


@command(
    "show",
    "Messages, tool calls and their results, checkpoints and token counts in order. Thoughts"
    " and long results are folded; images appear as type and size. `steno export` writes"
    " Markdown, and --json the state as a document.",
    argument(
        "session", metavar="SESSION", nargs="?",
        help="a session id or a unique prefix (--program: the latest)",
    ),
    default(by_prefix=True),
    program_option,
    argument("-n", "--last", metavar="N", type=whole_number, help="show only the last N messages"),
    one_of(
        argument(
            "--at", metavar="POSITION", type=position,
            help="show the session as it was before POSITION",
        ),
        argument("--generation", metavar="N", type=whole_number, help="show a past generation"),
        follow_option,
    ),
    since_option,
    argument(
        "--format", choices=("terminal", "plain"),
        help="terminal: Markdown laid out and code in colours, with the extra `stenod[terminal]`;"
        " plain: texts as they are (default: terminal on a terminal with colours if the extra is"
        " installed, otherwise plain)",
    ),
    flag("--full", help="fold nothing"),
    flag("--no-pager", help="do not page output that is longer than the terminal (PAGER, or less)"),
    flag("--redact", help="mask secrets; `steno redact` shows what is found"),
    example="steno show demo -n 3\nsteno show demo --since 2h\nsteno show demo --at 0:12",
)  # fmt: skip
def run(options: Namespace, output: Output) -> int:
    """Show the present state or a past one, and with -f each new record."""
    _choose(options, output)
    if output.as_json:
        return _show_state(options, output)
    conversation = conversation_for(output, options.format, full=options.full)
    redactor = _redactor(options)
    masked = _shown_records(redactor)
    with connected(options, output=output) as client:
        session = client.session(options.session)
        since = Since(options.since)
        head = _head(output, session, redactor)
        if options.follow:

            def print_records(event: RecordsEvent) -> None:
                shown = map(masked, since.records(event.records()))
                _print(output.write, conversation, shown)

            def print_reset(event: Reset) -> None:
                output.lines(conversation.rule(f"{event.why}: {_kept(event.kept)}"))

            start = _start(session, options)
            output.lines(head)
            with session.subscribe("start" if start is None else start) as events:
                follow(events, output, print_records, print_reset)
            return Exit.DONE
        check_span(client, options.session, options.at)
        _, until = _span(options)
        records = session.records(_start(session, options), until)
        shown = _begun(map(masked, since.records(records)), output, options.session)
        # The reader may leave the pager before the last record.
        has_lines = True
        calls = OpenCalls()
        with _paged(options, output) as write:
            for line in head:
                write(line)
            has_lines = _print(write, conversation, _noted(shown, calls))
            for line in conversation.open_calls(calls.calls()):
                write(line)
        report_damaged(output, records.damaged)
        if options.at is None and options.generation is None:
            say_open_calls(output, options.session, calls)
    if not has_lines:
        output.say(f"{options.session} has no record there")
    return Exit.DONE


# What one option needs is imported with it.


def _redactor(options: Namespace) -> "Redactor | None":
    if not options.redact:
        return None
    from steno_cli.configuration import redactor_of  # noqa: PLC0415

    return redactor_of(options)


def _shown_records(redactor: "Redactor | None") -> Callable[[Record], Record]:
    if redactor is None:
        return _unmasked
    from steno_redact.records import masked_record  # noqa: PLC0415

    return partial(masked_record, redactor)


def _unmasked(record: Record) -> Record:
    return record


def _paged(options: Namespace, output: Output) -> AbstractContextManager[Callable[[str], None]]:
    if options.no_pager or not output.is_terminal:
        return nullcontext(output.write)
    from steno_cli.render.pager import paged  # noqa: PLC0415
    from steno_cli.stdin import is_typed  # noqa: PLC0415

    # The reader of a pager types.
    return paged(output) if is_typed() else nullcontext(output.write)


def _choose(options: Namespace, output: Output) -> None:
    """Find the session that the options mean.

    Raises:
        NotFound: no session comes from the program.
        WrongUsage: they name neither a session nor a program.
    """
    if options.session is None and not options.programs:
        raise WrongUsage(
            "name a session, or with --program the one whose latest session is shown: `steno"
            " sessions` lists them"
        )
    if options.session is None:
        with connected(options, output=output) as client:
            options.session = Programs(client, options.programs).latest(client)
        output.say(f"this is {options.session}")


def _head(output: Output, session: BlockingSession, redactor: "Redactor | None") -> list[str]:
    """The lines about the origin of a session; none if it is steno's own."""
    rows = rows_of(origin_of(session, redactor))
    if not rows:
        return []
    lines = [printable(line, one_line=True) for line in table(rows)]
    return [*(output.style(line, "dim") for line in lines), ""]


def _begun(records: Iterator[Record], output: Output, session: str) -> Iterator[Record]:
    """The records, once the first one is there.

    The daemon reads a large session when it opens it; the first record arrives after that.
    """
    with Progress(output, f"opening {session}"):
        first = next(records, None)
    return records if first is None else chain([first], records)


def _show_state(options: Namespace, output: Output) -> int:
    if options.follow:
        raise WrongUsage("--json shows one state: follow a session with `steno tail -f --json`")
    if options.format is not None:
        raise WrongUsage("--json is a format of its own: leave --format out")
    if options.last is not None:
        raise WrongUsage("--json shows one state: read its last records with `steno tail --json`")
    if options.since is not None:
        raise WrongUsage("--json shows one state: read its last part with `steno read --since`")
    redactor = _redactor(options)
    with connected(options, output=output) as client:
        past = options.at if options.generation is None else options.generation
        session = client.session(options.session)
        state, origin = session.history_at(past), origin_of(session, redactor)
    document = {**contract.state(options.session, state), "origin": contract.origin(origin)}
    if redactor is not None:
        document = redactor.fields(document, frozenset({"session", "head", "origin"}))
    output.document(document)
    return Exit.DONE


def _span(options: Namespace) -> tuple[Position | None, Position | None]:
    until: Position | None = options.at
    if until is not None:
        return Position(until.generation, 0), until
    if options.generation is not None:
        return Position(options.generation, 0), None
    return None, None


def _noted(records: Iterable[Record], calls: OpenCalls) -> Iterator[Record]:
    for record in records:
        calls.add(record)
        yield record


def _start(session: BlockingSession, options: Namespace) -> Position | None:
    """The position to begin after; with -n, the place of the first of the last messages."""
    first, until = _span(options)
    wanted: int | None = options.last
    if wanted is None:
        return first
    end = until or _end(session, first)
    span = _LINES_OF_A_MESSAGE * wanted
    while True:
        begin = Position(end.generation, max(0, end.line - span))
        found = [
            record.cursor
            for record in session.records(begin, end)
            if is_message_role(record.record.get("role"))
        ]
        if not wanted:
            return end
        if len(found) >= wanted:
            return found[-wanted]
        if begin.line == 0:
            return begin
        span *= _LINES_OF_A_MESSAGE


def _end(session: BlockingSession, first: Position | None) -> Position:
    """The end of the present generation, or of the past one that begins there."""
    if first is None:
        return Position.parse(session.stat().head)
    lines = sum(1 for _ in session.lines(after=first))
    return Position(first.generation, lines)


def _print(
    write: Callable[[str], None], conversation: Conversation, records: Iterable[Record]
) -> bool:
    """Print the records; returns whether there was a line to print."""
    has_lines = False
    for record in records:
        lines = conversation.record(record)
        if lines:
            write("\n".join(lines))
            has_lines = True
    return has_lines


def _kept(lines: int) -> str:
    if lines < 2:
        return "the first line stays" if lines else "no line stays"
    return f"the first {count(lines, 'line')} stay"
