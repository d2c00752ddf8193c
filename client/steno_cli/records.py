"""Records and events on stdout: spans of a file, lines, subscriptions, and those since a time."""

import argparse
import json
import re
import time
from collections.abc import Callable, Iterable, Iterator
from datetime import datetime, timedelta
from typing import Final, assert_never

from steno import BlockingClient, BlockingSubscription
from steno.parts import check_reached
from steno.values import (
    DmailEvent,
    Live,
    Record,
    RecordsEvent,
    Reset,
    WireRecord,
)
from steno_cli.arguments import argument
from steno_cli.command_limits import READER_POLL_S
from steno_cli.exits import WrongUsage
from steno_cli.render.output import Output
from steno_cli.render.tables import shortened
from steno_present import contract
from steno_present.messages import written_at
from steno_present.safe_text import printable
from steno_present.wording import count, instant, number
from steno_protocol.commands import Read
from steno_protocol.positions import Position
from steno_protocol.replies import Lines

_UNITS: Final = {"s": 1, "m": 60, "min": 60, "h": 3600, "d": 86_400, "w": 604_800}
_SPAN: Final = re.compile(r"(\d{1,9}(?:\.\d{1,3})?)(s|m|min|h|d|w)", re.ASCII)
_TIME_OF_DAY: Final = re.compile(r"\d{1,2}:\d{2}(?::\d{2})?", re.ASCII)


def check_span(
    client: BlockingClient,
    session: str,
    after: Position | None,
    until: Position | None = None,
    command: type[Read] = Read,
) -> None:
    """Refuse a span beyond the end of the file, before anything is printed.

    Raises:
        NotFound: the file ends before one of the positions.
        WrongUsage: the second position is before the first.
    """
    last = until or after
    if last is None:
        return
    if after is not None and last < after:
        raise WrongUsage(f"{last} is before {after}: exchange them", session=session)
    probe = command(session=session, after=str(last), until=str(last), bytes_max=1)
    reply, _ = client.request(probe, Lines)
    check_reached(session, last, Position.parse(reply.next))


def print_record(output: Output, record: Record) -> None:
    """Print a record: its bytes in the file, or a document with its cursor."""
    if output.as_json:
        output.json_line(contract.record(record))
    else:
        output.json_line(record.raw if record.raw.endswith(b"\n") else record.raw + b"\n")


def print_event(output: Output, event: WireRecord) -> None:
    """Print an event on one line, cut to the width of a terminal."""
    if output.as_json:
        output.json_line(contract.record(event))
        return
    start = f"{event.cursor}  {instant(event.timestamp)}  "
    kind = printable(event.type, one_line=True)
    payload = printable(json.dumps(event.payload, ensure_ascii=False), one_line=True)
    room = None if output.width is None else output.width - len(start) - len(kind) - 2
    output.write(f"{start}{output.style(kind, 'bold')}  {shortened(payload, room)}")


def report_damaged(output: Output, damaged: int, noun: str = "record", hint: str = "") -> None:
    """Print the number of skipped lines, if any."""
    if damaged:
        lines = f"line was no {noun} and was" if damaged == 1 else f"lines were no {noun}s and were"
        output.say(f"{number(damaged)} {lines} skipped{hint}")


def follow(
    events: BlockingSubscription,
    output: Output,
    show: Callable[[RecordsEvent], None],
    show_reset: Callable[[Reset], None] | None = None,
) -> None:
    """Print a subscription as it comes, until the reader of stdout has gone.

    A rewrite is a message, unless `show_reset` prints it.
    """
    # An idle session writes nothing, and only a write fails when the reader has gone.
    while output.has_reader:
        event = events.next_event(READER_POLL_S)
        match event:
            case None:
                continue
            case RecordsEvent():
                show(event)
            case Reset() if show_reset is not None:
                show_reset(event)
            case Reset():
                _say_reset(event, output)
            case Live() | DmailEvent():
                pass
            case _:
                assert_never(event)
        output.flush()


def _say_reset(event: Reset, output: Output) -> None:
    if not output.as_json:
        output.flush()
    kept = f"its first {count(event.kept, 'line')}" if event.kept else "no line"
    output.answer(
        contract.reset(event),
        message=f"the session was {event.why}: generation {event.generation} begins and keeps"
        f" {kept}",
    )


# --- the option --since -------------------------------------------------------------------------


def since(text: str) -> float:
    """The type of a past time, as Unix time in seconds: `2h` ago, `15:04`, `2026-11-21`.

    A time without a zone is local. A time of day is its most recent occurrence.
    """
    span = _SPAN.fullmatch(text)
    if span is not None:
        return time.time() - float(span[1]) * _UNITS[span[2]]
    try:
        if _TIME_OF_DAY.fullmatch(text):
            return _last(text)
        return datetime.fromisoformat(text).timestamp()
    except (ValueError, OverflowError, OSError):
        raise argparse.ArgumentTypeError(
            f"{text!r} is no time: give 90s, 15min, 2h, 3d, 15:04, 2026-11-21 or 2026-11-21T15:04"
        ) from None


def _last(time_of_day: str) -> float:
    now = datetime.now().astimezone()
    hour, *rest = map(int, time_of_day.split(":"))
    at = now.replace(hour=hour, minute=rest[0], second=rest[1] if rest[1:] else 0, microsecond=0)
    return (at if at <= now else at - timedelta(days=1)).timestamp()


since_option = argument(
    "--since", metavar="TIME", type=since,
    help="only records written at TIME or later: an age (90s, 15min, 2h, 3d) or a time (15:04,"
    " 2026-11-21, 2026-11-21T15:04)",
)  # fmt: skip


class Since:
    """A filter that drops the records before a time.

    A record without a time of its own follows the record before it.

    Args:
        at: Unix time in seconds; None drops nothing.
    """

    def __init__(self, at: float | None) -> None:
        self._at = at

    def records(self, records: Iterable[Record]) -> Iterator[Record]:
        """The records from the first one on that is known to be no older than the time."""
        for record in records:
            if self._at is not None:
                written = written_at(record.record)
                if written is None or written < self._at:
                    continue
                self._at = None
            yield record
