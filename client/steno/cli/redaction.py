"""Masks in what a command or the viewer sends: the patterns in force, and masked records."""

import os
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

from steno._connect.private_files import sync_file
from steno._connect.write_masks import write_masks
from steno._redaction.patterns import patterns_of
from steno._redaction.redactor import Redactor
from steno.cli.configuration import text_of_file
from steno.values import Record, decode_object
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


def writing_redactor(root: Path) -> Callable[[str], Redactor | None]:
    """What masks the files of a session that a command writes itself, by the session's id.

    Raises:
        BadRequest: as `redactor_of`; also what is returned, if the file cannot be read.
    """
    masks = write_masks(str(root))
    return _none if masks is None else masks.redactor_of


def _none(_: str) -> None:
    """Mask no session."""


def mask_files(redactor: Redactor, folder: Path) -> None:
    """Mask the lines and documents in a new folder; what they contained is nowhere else in it.

    Uploads and other files stay as they are.

    Raises:
        OSError: a file cannot be read or written.
    """
    for file in sorted(folder.rglob("*.json*")):
        if file.suffix in {".json", ".jsonl"} and file.is_file() and not file.is_symlink():
            _mask_file(redactor, file)


def _mask_file(redactor: Redactor, file: Path) -> None:
    changed = file.stat()
    masked = file.with_name(f".masked-{file.name}")
    with file.open("rb") as lines, masked.open("xb") as copy:
        os.fchmod(copy.fileno(), changed.st_mode & 0o777)
        if file.suffix == ".json":
            copy.write(masked_bytes(redactor, lines.read()))
        else:
            copy.writelines(masked_bytes(redactor, line) for line in lines)
        copy.flush()
        sync_file(copy.fileno())
    os.utime(masked, ns=(changed.st_atime_ns, changed.st_mtime_ns))
    masked.replace(file)


def masked_bytes(redactor: Redactor, raw: bytes) -> bytes:
    """A line or a document; one that is no JSON object as a text. A line stays one line."""
    if decode_object(raw) is not None:
        masked = masked_line(redactor, raw)
        return masked if raw.endswith(b"\n") or masked is raw else masked.rstrip(b"\n")
    text = raw.removesuffix(b"\n")
    shown = redactor.text(text.decode("utf-8", "surrogateescape"))
    return shown.encode("utf-8", "surrogateescape") + raw[len(text) :]


def is_same_line(redactor: Redactor | None, kept: bytes, source: bytes) -> bool:
    """Whether a line of an import is the source's, masked or not at that time."""
    if kept == source or redactor is None:
        return kept == source
    masked = masked_bytes(redactor, source)
    return masked in (kept, masked_bytes(redactor, kept))


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
