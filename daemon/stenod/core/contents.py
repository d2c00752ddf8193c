"""Fingerprints of what commands ask for, by which a key that is used again is compared.

The first use of a key and a repeat of it are compared by the CRC-32 of what the caller gave. It is
computed from the command when it is decided on, and from the files when the key is looked up, so
that it needs no place of its own on the disk.

Source: the IETF draft "The Idempotency-Key HTTP Header Field", section 2.6: a key that comes again
with another payload is an error.
"""

import re
import zlib
from collections.abc import Mapping, Sequence
from typing import Final

from steno_protocol import timeline_entries
from steno_protocol.commands import (
    Checkpoint,
    DeliverDmail,
    Mutation,
    RestoreGeneration,
    RevertTo,
    SendDmail,
    UpdateTokenCount,
    WriteSystemPrompt,
)
from steno_protocol.timeline_entries import TimelineEntry

_FACTS: Final = re.compile(rb'(?:,"_at":"[^"]*")?(?:,"_by":"[^"]*")?,"_id":"[^"]*"\}\s*\Z')
"""What steno splices in before the last brace of a line."""

_FACTS_BYTES_MAX: Final = 1024

_MESSAGE: Final = b'"message":'

_ARGUMENTS: Final[Mapping[str, Sequence[str]]] = {
    timeline_entries.REVERTED: ["checkpoint_id"],
    timeline_entries.RESTORED: ["from"],
    timeline_entries.DELIVERED: ["mail"],
    timeline_entries.SENT: ["checkpoint_id", "message"],
}
"""The details of an entry that are what its command asked for, in the order of `of_command`."""


def of_records(records: Sequence[bytes]) -> int:
    """The fingerprint of an append: of its records as the gate let them pass."""
    return zlib.crc32(records[0] if len(records) == 1 else b"\n".join(records))


def of_events(events: Sequence[bytes]) -> int:
    """The fingerprint of wire events, from their messages on.

    A process that repeats what another one began makes the same event at another time.
    """
    return of_records([event[max(0, event.find(_MESSAGE)) :] for event in events])


def of_lines(lines: Sequence[bytes], *, are_events: bool) -> int:
    """As `of_records` or `of_events`, of lines of a file that bear steno's own keys."""
    records = [_without_facts(line) for line in lines]
    return of_events(records) if are_events else of_records(records)


def of_arguments(*arguments: object) -> int:
    """The fingerprint of a command that has no records."""
    return zlib.crc32("\0".join(map(str, arguments)).encode(errors="surrogatepass"))


def of_command(command: Mutation) -> int | None:
    """The fingerprint of a command by its arguments; None for one that has none to compare."""
    match command:
        case Checkpoint():
            return of_arguments(int(command.add_user_message))
        case UpdateTokenCount():
            return of_arguments(command.token_count)
        case WriteSystemPrompt():
            return of_arguments(command.prompt)
        case RevertTo():
            return of_arguments(command.checkpoint_id)
        case RestoreGeneration():
            return of_arguments(command.generation)
        case DeliverDmail():
            return of_arguments(command.mail_id)
        case SendDmail():
            return of_arguments(command.checkpoint_id, command.message)
        case _:
            # A compaction asks its model again when it is repeated: its summary is not the caller's
            # wish, and neither a clear nor a repair has arguments.
            return None


def of_entry(entry: TimelineEntry) -> int | None:
    """As `of_command`, of the timeline's entry of a rewrite or of a mail that was sent."""
    if entry.kind == timeline_entries.PROMPTED:
        found = entry.details.get("contents")
        return found if isinstance(found, int) else None
    names = _ARGUMENTS.get(entry.kind)
    if names is None or not all(name in entry.details for name in names):
        return None
    return of_arguments(*(entry.details[name] for name in names))


def _without_facts(line: bytes) -> bytes:
    match = _FACTS.search(line, max(0, len(line) - _FACTS_BYTES_MAX))
    return line if match is None else line[: match.start()] + b"}"
