"""Folders that the client makes, for their owner alone, those above them too, and syncs."""

import os
from contextlib import suppress
from pathlib import Path


def make_private(folder: Path) -> list[Path]:
    """Make a folder and what is missing above it, each with mode 0700; what is there stays.

    Each name is on the disk before something is put below it: a root that a client makes would go
    in a power cut with all that the daemon acknowledges in it.

    `Path.mkdir` gives its mode to the last folder only, and the umask's to those above it.

    Returns:
        What was missing, the highest first.

    Raises:
        OSError: one of them cannot be made, or is there and is no folder.
    """
    missing = [each for each in (folder, *folder.parents) if not each.is_dir()][::-1]
    for each in missing:
        each.mkdir(mode=0o700, exist_ok=True)
        # A folder in which others may make folders need not be one that they may read.
        with suppress(PermissionError):
            sync_folder(each.parent)
    return missing


def sync_folder(folder: Path) -> None:
    """What was made, moved or removed in a folder is on the disk."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
