"""`steno replay`: events with their original pauses."""

import argparse
import time
from argparse import Namespace
from typing import Final

from steno.values import WireRecord
from steno_cli.arguments import Subcommands, command, session_argument, span_options
from steno_cli.command_limits import REPLAY_PAUSE_S_MAX
from steno_cli.connection import connected
from steno_cli.exits import Exit
from steno_cli.records import check_span, print_event, report_damaged, report_no_event
from steno_cli.render.output import Output
from steno_protocol.commands import ReadWire

_SPEED_MAX: Final = 1e6
"""At this speed, no noticeable pause is left."""


def add_parser(commands: Subcommands) -> None:
    """Add the command line."""
    parser = command(
        commands, "replay", run,
        f"Pauses longer than {REPLAY_PAUSE_S_MAX:g} s are shortened to that.",
        example="steno replay demo --speed 10",
    )  # fmt: skip
    session_argument(parser)
    span_options(parser)
    parser.add_argument(
        "--speed", metavar="N", type=_speed, default=1.0,
        help="speed factor; 0 does not pause (default: 1)",
    )  # fmt: skip


def _speed(text: str) -> float:
    try:
        speed = float(text)
    except ValueError:
        speed = -1.0
    if not 0 <= speed < _SPEED_MAX:
        raise argparse.ArgumentTypeError(
            f"{text!r} is not a number from 0 on, below {_SPEED_MAX:,.0f}"
        )
    return speed


def run(options: Namespace, output: Output) -> int:
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
        report_no_event(output, options)
    return Exit.DONE


def _pause_s(before: WireRecord, event: WireRecord, speed: float) -> float:
    """The pause before an event; 0 at speed 0, and if the clock of the writer went back."""
    if speed == 0:
        return 0.0
    pause_s = (event.timestamp - before.timestamp) / speed
    return min(max(0.0, pause_s), REPLAY_PAUSE_S_MAX)
