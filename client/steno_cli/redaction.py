"""Masks in what a command or the viewer sends: the patterns in force, and masked records.

The patterns are imported by the functions that mask: to compile them costs a command as much as
the rest of its start.
"""

import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from steno.local import sync_file, write_masks
from steno_cli.configuration import text_of_file
from steno_protocol import paths
from steno_protocol.settings import redaction_table
from steno_redact.records import masked_bytes

if TYPE_CHECKING:
    from steno_redact.redactor import Redactor

_encode = msgspec.json.Encoder().encode


def redactor_of(root: Path | None) -> "Redactor":
    """What masks secrets, with the patterns of `config.toml`; those of steno alone without a root.

    Raises:
        BadRequest: the file cannot be read, or a pattern in it is not valid; the message names the
            file, the pattern and the remedy.
    """
    from steno_redact.patterns import patterns_of  # noqa: PLC0415
    from steno_redact.redactor import Redactor  # noqa: PLC0415

    if root is None:
        return Redactor()
    path = root / paths.CONFIG
    return Redactor(patterns_of(redaction_table(text_of_file(path), str(path)), str(path)))


def writing_redactor(root: Path) -> "Callable[[str], Redactor | None]":
    """What masks the files of a session that a command writes itself, by the session's id.

    Raises:
        BadRequest: as `redactor_of`; also what is returned, if the file cannot be read.
    """
    from steno_redact.writing import Masks  # noqa: PLC0415

    masks = write_masks(str(root))
    return masks.redactor_of if isinstance(masks, Masks) else _none


def _none(_: str) -> None:
    """Mask no session."""


def mask_files(redactor: "Redactor", folder: Path) -> None:
    """Mask the lines and documents in a new folder; what they contained is nowhere else in it.

    Uploads and other files stay as they are.

    Raises:
        OSError: a file cannot be read or written.
    """
    for file in sorted(folder.rglob("*.json*")):
        if file.suffix in {".json", ".jsonl"} and file.is_file() and not file.is_symlink():
            _mask_file(redactor, file)


def _mask_file(redactor: "Redactor", file: Path) -> None:
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
