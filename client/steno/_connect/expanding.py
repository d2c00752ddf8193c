"""Compressed past generations and streams, read without the daemon."""

import tempfile
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO, cast

import steno_system as system
from steno._connect.safe_open import open_regular
from steno_protocol import compression, paths


def open_stored(path: Path) -> tuple[BinaryIO, str]:
    """Open a file of a session as it is stored, plain or compressed, and return the name it has.

    Raises:
        NotRegular, OSError: as `open_regular`.
    """
    # Whichever form comes, it has its name before the other one loses its own.
    for name in (path.name, paths.compressed_file(path.name)):
        if paths.is_compressible(path.name):
            with suppress(FileNotFoundError):
                return open_regular(path.with_name(name)), name
    return open_regular(path), path.name


def expanded(file: BinaryIO, name: str) -> BinaryIO:
    """Return a file with the plain bytes, from their start, if a name is a compressed file's.

    Args:
        file: the open file, which is returned if its name is another one, else closed.
        name: its name.

    Raises:
        BadRequest: nothing that is installed can expand it.
        OSError: it is damaged, or there is no room for the plain bytes.
    """
    if not paths.is_compressed(name):
        return file
    whole = cast("BinaryIO", tempfile.TemporaryFile())  # noqa: SIM115  # the caller closes it
    try:
        with file:
            number = file.fileno()
            whole.writelines(
                compression.expanded(lambda size, at: system.read_at(number, size, at), name)
            )
        whole.seek(0)
    except BaseException:
        whole.close()
        raise
    return whole
