"""`steno undo`: the last turns of a session removed, or a fork before them."""

from argparse import Namespace
from collections import deque
from typing import Any

from steno import BlockingSession
from steno.values import decode_object
from steno_cli.arguments import (
    Subcommands,
    change_options,
    command,
    number_from,
    session_argument,
    title_option,
    why_option,
)
from steno_cli.changes import print_ack, print_fork
from steno_cli.connection import connected
from steno_cli.exits import Exit, WrongUsage
from steno_cli.going_back import done_with, present_turns
from steno_cli.render.output import Output
from steno_cli.render.tables import shortened
from steno_present.messages import is_summary, texts_of
from steno_present.safe_text import printable
from steno_present.wording import count
from steno_protocol import timeline_entries
from steno_protocol.errors import NotFound
from steno_protocol.positions import Position
from steno_protocol.records import shows_checkpoint

_WORDS_COLUMNS = 60
"""Columns of the first dropped text that the message quotes."""


def add_parser(commands: Subcommands) -> None:
    """Add the command line."""
    parser = command(
        commands, "undo", run,
        "Drops the last message of the user and all that follows it; where the session has a wire"
        " file with turns, the last turn. The dropped records stay in a past generation, and `steno"
        " redo` brings them back. With --to the session stays as it is, and a new one is made that"
        " ends before these turns.",
        example="steno undo demo --turns 2",
    )  # fmt: skip
    session_argument(parser)
    parser.add_argument(
        "--turns",
        metavar="N",
        type=number_from(1),
        default=1,
        help="number of turns to drop (default: 1)",
    )
    parser.add_argument(
        "--to", metavar="NEW",
        help="change nothing: fork the session before these turns, under this id",
    )  # fmt: skip
    title_option(parser)
    why_option(parser)
    change_options(parser)


def run(options: Namespace, output: Output) -> int:
    """Drop the last turns of a session, or fork it before them."""
    if options.to is not None:
        return _fork(options, output)
    if options.title is not None:
        raise WrongUsage("--title is the title of a new session: give its id with --to")
    with connected(options) as client:
        session = client.session(options.session)
        head: Position = options.expect or Position.parse(session.stat().head)
        done = done_with(options.key, session.timeline(), timeline_entries.REVERTED)
        # A repeat names the place again that its first attempt named.
        place = Position.parse(done["position"]) if done else _place(session, head, options.turns)
        dropped = _first_text(session, place)
        ack = session.revert_to(
            place, why=options.why, key=options.key, expect=head, durability=options.durability
        )
    print_ack(options, output, ack)
    if not output.as_json and not ack.duplicate:
        size = count(head.line - place.line, "record")
        again = f"`steno redo {options.session}` brings back what was dropped"
        output.say(f"{size} dropped{dropped}: {again}")
    return Exit.DONE


def _fork(options: Namespace, output: Output) -> int:
    if options.expect is not None or options.why is not None:
        raise WrongUsage("--expect and --why belong to a change: leave them out with --to")
    with connected(options) as client:
        fork = client.session(options.session).undo(
            options.turns, options.to, title=options.title, key=options.key
        )
        return print_fork(output, fork)


def _place(session: BlockingSession, head: Position, turns: int) -> Position:
    """Where the last turns begin in the present state.

    Raises:
        NotFound: it has fewer turns; nothing was changed.
    """
    begun = session.turns()
    if any(turn.at is not None for turn in begun):
        places = present_turns(begun, session.timeline(), head)[-turns:]
    else:
        places = list(_messages_of_user(session, head, turns))
    if len(places) < turns:
        there = count(len(places), "turn") if places else "no turn"
        raise NotFound(
            f"{session.id} has {there} to undo in its present state, which ends at {head}: `steno"
            f" timeline {session.id}` shows its past states",
            session=session.id,
            head=str(head),
        )
    return places[0]


def _messages_of_user(session: BlockingSession, head: Position, last: int) -> deque[Position]:
    found = deque[Position](maxlen=last)
    for number, line in enumerate(session.lines(until=head)):
        # Most lines are no message of a user, and need not be decoded.
        record = decode_object(line) if b'"user"' in line else None
        if record is not None and _is_of_user(record):
            found.append(Position(head.generation, number))
    return found


def _first_text(session: BlockingSession, place: Position) -> str:
    """The first words of the first dropped message with a text, as an end of a clause."""
    for line in session.lines(after=place):
        record = decode_object(line) or {}
        if _is_of_user(record):
            text = printable(" ".join(texts_of(record)), one_line=True)
            return f", from “{shortened(text, _WORDS_COLUMNS)}” on" if text else ""
    return ""


def _is_of_user(record: dict[str, Any]) -> bool:
    """Whether a record is a user's own message, and not a checkpoint's or the summary of others."""
    is_made = shows_checkpoint(record) or is_summary(record)
    return record.get("role") == "user" and not is_made
