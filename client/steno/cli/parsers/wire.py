"""The command lines about a session's wire file: wire, turns, replay, emit."""

import argparse
from math import isfinite, nan
from typing import Final

from steno.cli.arguments import (
    Subcommands,
    command,
    create,
    mutation,
    optional_argument,
    position,
    session_argument,
)
from steno.cli.command_limits import REPLAY_PAUSE_S_MAX

_SPEED_MAX: Final = 1e6
"""At this speed, no noticeable pause is left."""


def add_wire(commands: Subcommands) -> None:
    parser = command(
        commands, "wire", "wire:wire", "list the events of a session's wire file",
        "Prints position, time, type and payload, one event per line. Lines that are not events"
        " are skipped and their number is printed on stderr; with --strict, the first such line"
        " ends the command with 1 and its position.",
        example="steno wire demo --after 0:100",
    )  # fmt: skip
    session_argument(parser)
    _wire_span(parser)
    parser.add_argument(
        "--strict", action="store_true", help="fail at the first line that is not an event"
    )


def add_turns(commands: Subcommands) -> None:
    parser = command(
        commands, "turns", "wire:turns", "list the turns of a session",
        "Prints number, position in the wire file, time and the user's input. `steno fork --turn`"
        " takes the number.",
        example="steno turns demo",
    )  # fmt: skip
    session_argument(parser)


def add_replay(commands: Subcommands) -> None:
    parser = command(
        commands, "replay", "wire:replay", "replay the events with their original pauses",
        f"Pauses longer than {REPLAY_PAUSE_S_MAX:g} s are shortened to that.",
        example="steno replay demo --speed 10",
    )  # fmt: skip
    session_argument(parser)
    _wire_span(parser)
    parser.add_argument(
        "--speed", metavar="N", type=_speed, default=1.0,
        help="speed factor; 0 does not pause (default: 1)",
    )  # fmt: skip


def add_emit(commands: Subcommands) -> None:
    parser = command(
        commands, "emit", "write:emit", "append an event to a session's wire file",
        "Prints the new head of the wire file once the event is durable. Creates a missing session"
        " and says so; in a mount, only with --create.",
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
    create(parser)
    mutation(parser)


def _wire_span(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--after", metavar="POSITION", type=position, help="start after POSITION")
    parser.add_argument("--until", metavar="POSITION", type=position, help="stop at POSITION")


def _unix_time(text: str) -> float:
    try:
        found = float(text)
    except ValueError:
        found = nan
    if not isfinite(found):
        raise argparse.ArgumentTypeError(f"{text!r} is no time: give seconds since 1970")
    return found


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
