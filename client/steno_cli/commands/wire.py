"""`steno wire`: the events of a session's wire file."""

from argparse import Namespace

from steno_cli.arguments import Subcommands, command, session_argument, span_options
from steno_cli.connection import connected
from steno_cli.exits import Exit
from steno_cli.records import check_span, print_event, report_damaged, report_no_event
from steno_cli.render.output import Output
from steno_present.wording import count
from steno_protocol.commands import ReadWire


def add_parser(commands: Subcommands) -> None:
    """Add the command line."""
    parser = command(
        commands, "wire", run,
        "Prints position, time, type and payload, one event per line. Lines that are not events"
        " are skipped and their number is printed on stderr; with --strict, the first such line"
        " ends the command with 1 and its position.",
        example="steno wire demo --after 0:100",
    )  # fmt: skip
    session_argument(parser)
    span_options(parser)
    parser.add_argument(
        "--strict", action="store_true", help="fail at the first line that is not an event"
    )


def run(options: Namespace, output: Output) -> int:
    """List the events, one a line."""
    with connected(options, output=output) as client:
        session = client.session(options.session)
        check_span(client, options.session, options.after, options.until, ReadWire)
        version = session.wire_version()
        events = session.wire_records(options.after, options.until, strict=options.strict)
        shown = 0
        for event in events:
            print_event(output, event)
            shown += 1
        report_damaged(output, events.damaged, "event", "; --strict stops at the first")
    if not shown:
        report_no_event(output, options)
    elif output.is_terminal and not output.as_json:
        output.say(f"{count(shown, 'event')} of version {version}")
    return Exit.DONE
