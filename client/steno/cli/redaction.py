"""Masks in what a command or the viewer sends: the patterns in force, and masked records."""

from pathlib import Path
from typing import Any

import msgspec

from steno._redaction.patterns import patterns_of
from steno._redaction.redactor import Redactor
from steno.cli.configuration import text_of_file
from steno.values import Record
from steno_protocol import paths
from steno_protocol.replies import SessionStat
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


def masked_record(redactor: Redactor, record: Record) -> Record:
    """A record with its secrets masked; the same one if it has none."""
    value = redactor.value(record.record)
    return record if value == record.record else Record(record.cursor, value, _line(value))


def masked_line(redactor: Redactor, raw: bytes) -> bytes:
    """A line of a session's file with its secrets masked; the same one if it has none."""
    value = msgspec.json.decode(raw)
    masked = redactor.value(value)
    return raw if masked == value else _line(masked)


def _line(value: Any) -> bytes:
    return _encode(value) + b"\n"
