"""The commands that change the records of a session, or make a new one from its past."""

from argparse import Namespace
from collections import deque
from typing import Any

from steno import BlockingSession
from steno.values import decode_object
from steno_cli.arguments import (
    add_user_message_option,
    argument,
    change_options,
    checkpoint,
    checkpoint_or_line_argument,
    command,
    create_options,
    flag,
    key_option,
    number_from,
    one_of,
    optional_argument,
    position,
    session_argument,
    title_option,
    whole_number,
    why_option,
)
from steno_cli.changes import change, print_ack, print_fork
from steno_cli.connection import connected
from steno_cli.exits import Exit, WrongUsage
from steno_cli.going_back import done_with, present_turns, undone
from steno_cli.render.output import Output
from steno_cli.render.tables import shortened
from steno_cli.stdin import text_or_stdin
from steno_present.messages import is_summary, texts_of
from steno_present.safe_text import printable
from steno_present.wording import count
from steno_protocol import timeline_entries
from steno_protocol.errors import NotFound
from steno_protocol.positions import Position
from steno_protocol.records import shows_checkpoint, system_prompt_record

_WORDS_COLUMNS = 60
"""Columns of the first dropped text that the message of an undo quotes."""


@command(
    "checkpoint",
    "Prints the id, and on stderr the handle, which a revert and all other commands take"
    " as well and which is refused once another checkpoint has the id.",
    session_argument, add_user_message_option, create_options, change_options(),
    example="steno checkpoint demo",
)  # fmt: skip
def create_checkpoint(options: Namespace, output: Output) -> int:
    """Append a checkpoint and print its id."""
    visible = options.add_user_message
    return change(options, output, lambda session, how: session.checkpoint(visible, **how))


@command(
    "revert",
    "Prints the new head. The removed records stay in a past generation; `steno restore` brings"
    " them back.",
    session_argument, checkpoint_or_line_argument, why_option, change_options(),
    example="steno revert demo 3 --why 'wrong way'",
)  # fmt: skip
def revert(options: Namespace, output: Output) -> int:
    """Remove a checkpoint, or a line, and everything after it."""
    target, why = options.checkpoint, options.why
    return change(options, output, lambda session, how: session.revert_to(target, why=why, **how))


@command(
    "clear",
    "Prints the new head. The removed records stay in a past generation; `steno restore` brings"
    " them back.",
    session_argument, why_option, change_options(),
    example="steno clear demo",
)  # fmt: skip
def clear(options: Namespace, output: Output) -> int:
    """Remove all records."""
    return change(options, output, lambda session, how: session.clear(why=options.why, **how))


@command(
    "restore", "The present state becomes a past generation, so a restore can be undone.",
    session_argument,
    argument(
        "generation", metavar="GENERATION", type=whole_number,
        help="the number of the generation",
    ),
    why_option, change_options(),
    example="steno restore demo 0",
)  # fmt: skip
def restore(options: Namespace, output: Output) -> int:
    """Restore a past generation."""
    target, why = options.generation, options.why
    return change(
        options, output, lambda session, how: session.restore_generation(target, why=why, **how)
    )


@command(
    "prompt",
    "With TEXT (or - for stdin), sets the system prompt; a session with records is rewritten."
    " Without, prints the current one.",
    session_argument, optional_argument("text", str, "the prompt, or - for stdin"),
    create_options, change_options(given="text"),
    example="steno prompt demo - < prompt.md",
)  # fmt: skip
def prompt(options: Namespace, output: Output) -> int:
    """Set the system prompt, or print the present one."""
    if options.text is not None:
        text = text_or_stdin(options, "text")
        return change(
            options,
            output,
            lambda session, how: session.write_system_prompt(text, **how),
            lambda: system_prompt_record(text),
        )
    with connected(options, output=output) as client:
        found = client.session(options.session).history_at().system_prompt
    if found is None:
        message = f"the session {options.session} has no system prompt: give one as TEXT"
        return output.answer({"session": options.session, "system_prompt": None}, message=message)
    shown = printable(found) if output.is_terminal else found
    return output.answer({"session": options.session, "system_prompt": found}, shown)


@command(
    "fork",
    "The fork is atomic and does not change SESSION. Its wire file is cut at the same instant"
    " as its context. Prints the new id. Without an option, the fork is a copy of the present"
    " state.",
    session_argument, argument("new", metavar="NEW", help="the id of the new session"),
    one_of(
        argument("--at", metavar="POSITION", type=position, help="the state before POSITION"),
        argument(
            "--checkpoint", metavar="N", type=checkpoint,
            help="the state after a revert to this checkpoint, an id or a handle",
        ),
        argument(
            "--turn", metavar="N", type=number_from(-1),
            help="the state at the end of turn N, counted from 0; -1 is before the first turn",
        ),
    ),
    flag(
        "--close-calls",
        help="append a result to each call of the fork that has none, as `steno repair` does",
    ),
    title_option, key_option(),
    example="steno fork demo demo-2 --turn 3",
)  # fmt: skip
def fork(options: Namespace, output: Output) -> int:
    """Create a new session from a past state of another one."""
    with connected(options) as client:
        made = client.session(options.session).fork(
            options.new,
            at=options.at,
            checkpoint=options.checkpoint,
            turn=options.turn,
            title=options.title,
            key=options.key,
        )
        return print_fork(output, made, close=options.close_calls)


@command(
    "undo",
    "Drops the last message of the user and all that follows it; where the session has a wire"
    " file with turns, the last turn. The dropped records stay in a past generation, and `steno"
    " redo` brings them back. With --to the session stays as it is, and a new one is made that"
    " ends before these turns.",
    session_argument,
    argument(
        "--turns", metavar="N", type=number_from(1), default=1,
        help="number of turns to drop (default: 1)",
    ),
    argument(
        "--to", metavar="NEW",
        help="change nothing: fork the session before these turns, under this id",
    ),
    title_option, why_option, change_options(),
    example="steno undo demo --turns 2",
)  # fmt: skip
def undo(options: Namespace, output: Output) -> int:
    """Drop the last turns of a session, or fork it before them."""
    if options.to is not None:
        return _fork_before(options, output)
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


def _fork_before(options: Namespace, output: Output) -> int:
    if options.expect is not None or options.why is not None:
        raise WrongUsage("--expect and --why belong to a change: leave them out with --to")
    with connected(options) as client:
        made = client.session(options.session).undo(
            options.turns, options.to, title=options.title, key=options.key
        )
        return print_fork(output, made)


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


@command(
    "redo",
    "Works while nothing was written since the undo; afterwards `steno timeline` shows the past"
    " states, and `steno restore` brings one back.",
    session_argument, why_option, change_options(),
    example="steno redo demo",
)  # fmt: skip
def redo(options: Namespace, output: Output) -> int:
    """Restore the generation before the last undo."""
    with connected(options) as client:
        session = client.session(options.session)
        head: Position = options.expect or Position.parse(session.stat().head)
        timeline = session.timeline()
        done = done_with(options.key, timeline, timeline_entries.RESTORED)
        # A repeat names the generation again that its first attempt named.
        generation = done["from"] if done else undone(timeline, head)
        if generation is None:
            raise NotFound(
                f"{session.id} has no undo to bring back: none was the last change, or something"
                f" was written since; `steno timeline {session.id}` shows its past states",
                session=session.id,
                head=str(head),
            )
        ack = session.restore_generation(
            generation,
            why=options.why,
            key=options.key,
            expect=head,
            durability=options.durability,
        )
    print_ack(options, output, ack)
    return Exit.DONE
