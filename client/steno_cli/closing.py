"""Calls without a result in a session: said, and closed on demand."""

from steno import BlockingSession
from steno.values import Ack
from steno_cli.command_limits import CALLS_LOOKED_BACK_MAX
from steno_cli.render.output import Output
from steno_present.open_calls import OpenCall, OpenCalls, closing, open_calls
from steno_present.wording import count
from steno_protocol.limits import BATCH_RECORDS_MAX
from steno_protocol.positions import Position


def close_calls(
    session: BlockingSession, key: str | None = None
) -> tuple[list[OpenCall], Ack | None]:
    """Append a result to each call that has none, unless the session changes meanwhile.

    Returns:
        The closed calls, and the acknowledgement; None if no call was open.

    Raises:
        Conflict: another writer was faster; nothing was appended.
    """
    head = Position.parse(session.stat().head)
    calls = open_calls(session.records(until=head))[:BATCH_RECORDS_MAX]
    if not calls:
        return [], None
    return calls, session.append_message(closing(calls), key=key, expect=head)


def say_open_calls(output: Output, session: str, calls: OpenCalls) -> None:
    """Print how to close the calls of a session that have no result, if there are any."""
    found = len(calls.calls())
    if found:
        has, it = ("has", "it") if found == 1 else ("have", "them")
        output.say(
            f"{count(found, 'call')} of {session} {has} no result; if none still runs,"
            f" `steno repair {session} --close-calls` closes {it}"
        )


def last_calls(session: BlockingSession) -> OpenCalls:
    """The calls in the last records of a session."""
    head = Position.parse(session.stat().head)
    first = Position(head.generation, max(0, head.line - CALLS_LOOKED_BACK_MAX))
    calls = OpenCalls()
    for record in session.records(first, head):
        calls.add(record)
    return calls
