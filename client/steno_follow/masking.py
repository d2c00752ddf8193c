"""Masks in the files that an import writes itself."""

import os
from collections.abc import Callable
from pathlib import Path

from steno.local import sync_file, write_masks
from steno_redact.records import masked_bytes
from steno_redact.redactor import Redactor
from steno_redact.writing import Masks


def writing_redactor(root: Path) -> Callable[[str], Redactor | None]:
    """What masks the files of a session that a command writes itself, by the session's id.

    Raises:
        BadRequest: the patterns in the root's `config.toml` are not valid, or the file cannot be
            read; what is returned may raise it, too.
    """
    masks = write_masks(str(root))
    return masks.redactor_of if isinstance(masks, Masks) else _none


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
