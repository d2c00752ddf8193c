"""Compressed past generations, read without the daemon."""

import tempfile
from typing import BinaryIO, cast

from steno import _system as system
from steno_protocol import compression, paths


def expanded(file: BinaryIO, name: str) -> BinaryIO:
    """Return a file with the plain bytes, from their start, if a name is a compressed generation's.

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
