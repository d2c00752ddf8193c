"""Masks in what a command or the viewer sends: the patterns in force, and masked records."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

from steno._redaction.patterns import patterns_of
from steno._redaction.redactor import Redactor
from steno.cli.configuration import text_of_file
from steno.values import Record
from steno_protocol import paths
from steno_protocol.replies import SessionEntry, SessionStat
from steno_protocol.settings import redaction_table

_encode = msgspec.json.Encoder().encode


def redactor_of(root: Path | None) -> Redactor:
    """What masks secrets, with the patterns of `config.toml`; those of steno alone without a root.

    Raises:
        BadRequest: the file cannot be read, or a pattern in it is not valid; the message names the
            file, the pattern and the remedy.
    """
    if root is None:
        return Redactor()
    path = root / paths.CONFIG
    return Redactor(patterns_of(redaction_table(text_of_file(path), str(path)), str(path)))


def masked_stat(redactor: Redactor, stat: SessionStat) -> SessionStat:
    """What describes a session, with its title and its labels masked."""
    title, labels = redactor.text(stat.title), tuple(map(redactor.text, stat.labels))
    return msgspec.structs.replace(stat, title=title, labels=labels)


def masked_entry(redactor: Redactor, entry: SessionEntry) -> SessionEntry:
    """A line of the list of sessions, with its title and its labels masked."""
    title, labels = redactor.text(entry.title), tuple(map(redactor.text, entry.labels))
    return msgspec.structs.replace(entry, title=title, labels=labels)


def masked_record(redactor: Redactor, record: Record) -> Record:
    """A record with its secrets masked; the same one if it has none."""
    value = redactor.value(record.record)
    # A value without a secret comes back as it is, and need not be compared.
    return (
        record
        if value is record.record or value == record.record
        else Record(record.cursor, value, _line(value))
    )


def shown_records(redactor: Redactor | None) -> Callable[[Record], Record]:
    """What is shown of a record: it itself, or with its secrets masked."""
    return _exact if redactor is None else partial(masked_record, redactor)


def _exact(record: Record) -> Record:
    return record


def masked_line(redactor: Redactor, raw: bytes) -> bytes:
    """A line of a session's file with its secrets masked; the same one if it has none."""
    value = msgspec.json.decode(raw)
    masked = redactor.value(value)
    return raw if masked == value else _line(masked)


def _line(value: Any) -> bytes:
    return _encode(value) + b"\n"
