"""Masked records, lines and descriptions of sessions, for whoever shows or exports them."""

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec

from steno.values import Record, decode_object
from steno_protocol.replies import SessionEntry, SessionStat

if TYPE_CHECKING:
    from steno_redact.redactor import Redactor

_encode = msgspec.json.Encoder().encode


def masked_bytes(redactor: "Redactor", raw: bytes) -> bytes:
    """A line or a document; one that is no JSON object as a text. A line stays one line."""
    if decode_object(raw) is not None:
        masked = masked_line(redactor, raw)
        return masked if raw.endswith(b"\n") or masked is raw else masked.rstrip(b"\n")
    text = raw.removesuffix(b"\n")
    shown = redactor.text(text.decode("utf-8", "surrogateescape"))
    return shown.encode("utf-8", "surrogateescape") + raw[len(text) :]


def is_same_line(redactor: "Redactor | None", kept: bytes, source: bytes) -> bool:
    """Whether a line of an import is the source's, masked or not at that time."""
    if kept == source or redactor is None:
        return kept == source
    masked = masked_bytes(redactor, source)
    return masked in (kept, masked_bytes(redactor, kept))


def masked_stat(redactor: "Redactor", stat: SessionStat) -> SessionStat:
    """What describes a session, with its title and its labels masked."""
    title, labels = redactor.text(stat.title), tuple(map(redactor.text, stat.labels))
    return msgspec.structs.replace(stat, title=title, labels=labels)


def masked_entry(redactor: "Redactor", entry: SessionEntry) -> SessionEntry:
    """A line of the list of sessions, with its title and its labels masked."""
    title, labels = redactor.text(entry.title), tuple(map(redactor.text, entry.labels))
    return msgspec.structs.replace(entry, title=title, labels=labels)


def masked_record(redactor: "Redactor", record: Record) -> Record:
    """A record with its secrets masked; the same one if it has none."""
    value = redactor.value(record.record)
    # A value without a secret comes back as it is, and need not be compared.
    return (
        record
        if value is record.record or value == record.record
        else Record(record.cursor, value, _line(value))
    )


def shown_records(redactor: "Redactor | None") -> Callable[[Record], Record]:
    """What is shown of a record: it itself, or with its secrets masked."""
    return _exact if redactor is None else partial(masked_record, redactor)


def _exact(record: Record) -> Record:
    return record


def masked_line(redactor: "Redactor", raw: bytes) -> bytes:
    """A line of a session's file with its secrets masked; the same one if it has none."""
    value = msgspec.json.decode(raw)
    masked = redactor.value(value)
    return raw if masked == value else _line(masked)


def _line(value: Any) -> bytes:
    return _encode(value) + b"\n"
