"""`steno emit`: an event appended to a session's wire file."""

import argparse
import json
from argparse import Namespace
from math import isfinite, nan
from typing import Any, cast

from steno.parts import encode_events
from steno_cli.arguments import (
    Subcommands,
    change_options,
    command,
    create_options,
    optional_argument,
    session_argument,
)
from steno_cli.changes import change
from steno_cli.exits import WrongUsage
from steno_cli.render.output import Output
from steno_cli.stdin import text_or_stdin
from steno_protocol.wire import check_event, metadata_line


def add_parser(commands: Subcommands) -> None:
    """Add the command line."""
    parser = command(
        commands, "emit", run,
        "Prints the new head of the wire file once the event is durable. Creates a missing session"
        " with a note; in a mount, only with --create.",
        example='steno emit demo TurnBegin \'{"user_input": "hi"}\'',
    )  # fmt: skip
    session_argument(parser)
    parser.add_argument("type", metavar="TYPE", help="the type of the event")
    optional_argument(parser, "payload", str, "a JSON object, or - for stdin (default: {})")
    parser.add_argument(
        "--timestamp",
        metavar="SECONDS",
        type=_unix_time,
        help="Unix time of the event (default: now)",
    )
    parser.add_argument(
        "--header", metavar="JSON",
        help="more fields for the file's header line, a JSON object; used if the file is new",
    )  # fmt: skip
    create_options(parser)
    change_options(parser)


def _unix_time(text: str) -> float:
    try:
        found = float(text)
    except ValueError:
        found = nan
    if not isfinite(found):
        raise argparse.ArgumentTypeError(f"{text!r} is no time: give seconds since 1970")
    return found


def run(options: Namespace, output: Output) -> int:
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
