"""The commands about the wire file of a session: its events, listed, replayed and appended."""

import json
import time
from argparse import Namespace
from math import isfinite
from typing import Any, Final, cast

from steno.parts import encode_events
from steno.values import WireRecord
from steno_cli.arguments import (
    argument,
    change_options,
    command,
    create_options,
    flag,
    number_where,
    optional_argument,
    session_argument,
    span_options,
)
from steno_cli.changes import change
from steno_cli.command_limits import REPLAY_PAUSE_S_MAX
from steno_cli.connection import connected
from steno_cli.exits import Exit, WrongUsage
from steno_cli.records import check_span, print_event, report_damaged
from steno_cli.render.output import Output
from steno_cli.stdin import text_or_stdin
from steno_present.wording import count
from steno_protocol.commands import ReadWire
from steno_protocol.wire import check_event, metadata_line

_SPEED_MAX: Final = 1e6
"""At this speed, no noticeable pause is left."""


@command(
    "wire",
    "Prints position, time, type and payload, one event per line. Lines that are not events"
    " are skipped and their number is printed on stderr; with --strict, the first such line"
    " ends the command with 1 and its position.",
    session_argument, span_options,
    flag("--strict", help="fail at the first line that is not an event"),
    example="steno wire demo --after 0:100",
)  # fmt: skip
def wire(options: Namespace, output: Output) -> int:
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
        _say_no_event(output, options)
    elif output.is_terminal and not output.as_json:
        output.say(f"{count(shown, 'event')} of version {version}")
    return Exit.DONE


@command(
    "replay", f"Pauses longer than {REPLAY_PAUSE_S_MAX:g} s are shortened to that.",
    session_argument, span_options,
    argument(
        "--speed", metavar="N", default=1.0,
        type=number_where(
        lambda found: 0 <= found < _SPEED_MAX,
        f"is not a number from 0 on, below {_SPEED_MAX:,.0f}",
        ),
        help="speed factor; 0 does not pause (default: 1)",
    ),
    example="steno replay demo --speed 10",
)  # fmt: skip
def replay(options: Namespace, output: Output) -> int:
    """Print the events with the pauses between them."""
    with connected(options, output=output) as client:
        check_span(client, options.session, options.after, options.until, ReadWire)
        events = client.session(options.session).wire_records(options.after, options.until)
        before: WireRecord | None = None
        for event in events:
            if before is not None:
                time.sleep(_pause_s(before, event, options.speed))
            print_event(output, event)
            output.flush()
            before = event
        report_damaged(output, events.damaged, "event")
    if before is None:
        _say_no_event(output, options)
    return Exit.DONE


def _pause_s(before: WireRecord, event: WireRecord, speed: float) -> float:
    """The pause before an event; 0 at speed 0, and if the clock of the writer went back."""
    if speed == 0:
        return 0.0
    pause_s = (event.timestamp - before.timestamp) / speed
    return min(max(0.0, pause_s), REPLAY_PAUSE_S_MAX)


def _say_no_event(output: Output, options: Namespace) -> None:
    output.say(f"{options.session} has no event there: `steno help emit` shows how to append one")


@command(
    "emit",
    "Prints the new head of the wire file once the event is durable. Creates a missing session"
    " with a note; in a mount, only with --create.",
    session_argument, argument("type", metavar="TYPE", help="the type of the event"),
    optional_argument("payload", str, "a JSON object, or - for stdin (default: {})"),
    argument(
        "--timestamp", metavar="SECONDS",
        type=number_where(isfinite, "is no time: give seconds since 1970"),
        help="Unix time of the event (default: now)",
    ),
    argument(
        "--header", metavar="JSON",
        help="more fields for the file's header line, a JSON object; used if the file is new",
    ),
    create_options, change_options(),
    example='steno emit demo TurnBegin \'{"user_input": "hi"}\'',
)  # fmt: skip
def emit(options: Namespace, output: Output) -> int:
    """Append an event to the wire file."""
    events = encode_events(options.type, _payload(options), options.timestamp)
    header = None if options.header is None else _object(options.header, "header")
    return change(
        options,
        output,
        lambda session, how: session.append_wire(events, header=header, **how),
        lambda: [metadata_line(header), *map(check_event, events)],
    )


def _payload(options: Namespace) -> dict[str, Any]:
    if options.payload is None:
        return {}
    return _object(text_or_stdin(options, "payload"), "payload")


def _object(text: str, what: str) -> dict[str, Any]:
    try:
        found = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise WrongUsage(f"the {what} is no JSON: {error}") from None
    if not isinstance(found, dict):
        raise WrongUsage(f"the {what} is not a JSON object: put it into one")
    return cast("dict[str, Any]", found)
