"""Removing folders with all that is in them, following no link."""

import errno
import os

from steno_protocol import limits
from stenod.store.disk import Disk


def remove_all(disk: Disk, folder: int, depth: int = limits.FOLDER_DEPTH_MAX) -> None:
    """Empty an open folder; OSError if something stays, and then any part may be gone."""
    if depth == 0:
        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), "too many folders in each other")
    for name in disk.names(folder):
        try:
            below = disk.open_folder(folder, name)
        except NotADirectoryError:
            disk.unlink(folder, name)
            continue
        try:
            remove_all(disk, below, depth - 1)
        finally:
            disk.close(below)
        disk.remove_folder(folder, name)
