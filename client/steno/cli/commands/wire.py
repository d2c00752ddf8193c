"""The subcommands about a session's wire file: wire, turns, replay, and tail with --wire."""

import json
import time
from argparse import Namespace

from steno._sync.client import BlockingClient
from steno.cli.command_limits import REPLAY_PAUSE_S_MAX
from steno.cli.commands.read import check_span, follow
from steno.cli.connection import connected
from steno.cli.exits import Exit
from steno.cli.render import contract
from steno.cli.render.output import Output, printable, shortened
from steno.cli.render.texts import texts_of
from steno.cli.render.wording import instant, number
from steno.values import RecordsEvent, WireRecord
from steno_protocol.commands import ReadWire
from steno_protocol.positions import Position
from steno_protocol.replies import Lines


def wire(options: Namespace, output: Output) -> int:
    """List the events: for a person one a line, with --json as documents."""
    with connected(options) as client:
        session = client.session(options.session)
        check_span(client, options.session, options.after, options.until, ReadWire)
        version = session.wire_version()
        events = session.wire_records(options.after, options.until, strict=options.strict)
        shown = 0
        for event in events:
            _show(output, event)
            shown += 1
        _tell_damaged(output, events.damaged, "; --strict stops at the first")
    if not shown:
        _tell_none(options, output)
    elif output.is_terminal and not output.as_json:
        output.say(f"{number(shown)} of version {version}")
    return Exit.DONE


def turns(options: Namespace, output: Output) -> int:
    """List the turns, with the numbers that `fork --turn` takes."""
    with connected(options) as client:
        found = client.session(options.session).turns()
    for turn_number, turn in enumerate(found):
        if output.as_json:
            output.document(contract.turn(turn_number, turn))
            continue
        said = " ".join(texts_of({"content": turn.user_input}))
        line = f"{turn_number:>3}  {turn.cursor}  {instant(turn.timestamp)}  {said}"
        line = printable(line, one_line=True)
        output.write(line if output.width is None else shortened(line, output.width))
    if not found:
        output.say(f"no turn of {options.session} is known: the event TurnBegin begins one")
    return Exit.DONE


def replay(options: Namespace, output: Output) -> int:
    """Print the events with the pauses that lay between them."""
    with connected(options) as client:
        check_span(client, options.session, options.after, options.until, ReadWire)
        events = client.session(options.session).wire_records(options.after, options.until)
        before: WireRecord | None = None
        for event in events:
            if before is not None:
                time.sleep(_pause_s(before, event, options.speed))
            _show(output, event)
            output.flush()
            before = event
        _tell_damaged(output, events.damaged)
    if before is None:
        _tell_none(options, output)
    return Exit.DONE


def tail(options: Namespace, output: Output) -> int:
    """Print the last events as they lie in the file, and with -f those that come."""
    with connected(options) as client:
        session = client.session(options.session)
        check_span(client, options.session, options.after, command=ReadWire)
        after = options.after or _last_lines(client, options.session, options.lines)
        if options.follow:
            with session.subscribe(after, records="wire") as followed:
                follow(followed, output, lambda event: _print_events(output, event))
            return Exit.DONE
        events = session.wire_records(after)
        for event in events:
            _print_event(output, event)
        _tell_damaged(output, events.damaged)
    return Exit.DONE


def _print_events(output: Output, event: RecordsEvent) -> None:
    for each in event.wire_records():
        _print_event(output, each)


def _print_event(output: Output, event: WireRecord) -> None:
    output.json_line(contract.record(event) if output.as_json else event.raw)


def _show(output: Output, event: WireRecord) -> None:
    """One event on one line, cut to the width of a terminal."""
    if output.as_json:
        output.json_line(contract.record(event))
        return
    begins = f"{event.cursor}  {instant(event.timestamp)}  "
    kind = printable(event.type, one_line=True)
    payload = printable(json.dumps(event.payload, ensure_ascii=False), one_line=True)
    room = None if output.width is None else output.width - len(begins) - len(kind) - 2
    if room is not None and len(payload) > room:
        payload = payload[: max(0, room - 1)] + "…"
    output.write(f"{begins}{output.style(kind, 'bold')}  {payload}")


def _pause_s(before: WireRecord, event: WireRecord, speed: float) -> float:
    """How long to wait; nothing at speed 0, nor when the clock of the writer went back."""
    if speed == 0:
        return 0.0
    pause_s = (event.timestamp - before.timestamp) / speed
    return min(max(0.0, pause_s), REPLAY_PAUSE_S_MAX)


def _tell_none(options: Namespace, output: Output) -> None:
    output.say(f"no event of {options.session} lies there: `steno emit` appends one")


def _tell_damaged(output: Output, damaged: int, hint: str = "") -> None:
    if damaged:
        what = "line was no event and was" if damaged == 1 else "lines were no events and were"
        output.say(f"{number(damaged)} {what} passed over{hint}")


def _last_lines(client: BlockingClient, session: str, lines: int) -> Position:
    first, _ = client.request(ReadWire(session=session, bytes_max=1), Lines)
    head = Position.parse(first.head or first.next)
    return Position(0, max(0, head.line - lines))
