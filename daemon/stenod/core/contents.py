"""Fingerprints of commands, to detect a reused idempotency key.

A repeat is compared with the first use of its key by the CRC-32 of the caller's input. The
fingerprint is computed from the command when it is decided, and from the files when the key is
looked up, so it is not stored.

Source: the IETF draft "The Idempotency-Key HTTP Header Field", section 2.6: reusing a key with
another payload is an error.
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
"""The keys that steno inserts before the last brace of a line."""

_FACTS_BYTES_MAX: Final = 1024

_MESSAGE: Final = b'"message":'

_ARGUMENTS: Final[Mapping[str, Sequence[str]]] = {
    timeline_entries.REVERTED: ["checkpoint_id"],
    timeline_entries.RESTORED: ["from"],
    timeline_entries.DELIVERED: ["mail"],
    timeline_entries.SENT: ["checkpoint_id", "message"],
}
"""The details of an entry that are its command's arguments, in the order of `of_command`."""


def of_records(records: Sequence[bytes]) -> int:
    """Return the fingerprint of an append, from its checked records."""
    return zlib.crc32(records[0] if len(records) == 1 else b"\n".join(records))


def of_events(events: Sequence[bytes]) -> int:
    """Return the fingerprint of wire events, without the timestamps before their messages.

    A process that repeats another's append creates the same event with another timestamp.
    """
    return of_records([event[max(0, event.find(_MESSAGE)) :] for event in events])


def of_lines(lines: Sequence[bytes], *, are_events: bool) -> int:
    """Return the fingerprint of lines of a file, after removing steno's own keys."""
    records = [_without_facts(line) for line in lines]
    return of_events(records) if are_events else of_records(records)


def of_arguments(*arguments: object) -> int:
    """Return the fingerprint of a command without records."""
    return zlib.crc32("\0".join(map(str, arguments)).encode(errors="surrogatepass"))


def of_command(command: Mutation) -> int | None:
    """Return the fingerprint of a command by its arguments; None if it has none to compare."""
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
            # A repeated compaction has another summary, because its model is asked again; a clear
            # and a repair have no arguments.
            return None


def of_entry(entry: TimelineEntry) -> int | None:
    """Return the fingerprint of a command from its timeline entry, a rewrite or a sent mail."""
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
