"""Private folders, made and synced to the disk."""

import os
from contextlib import suppress
from pathlib import Path

from steno._connect.private_files import sync_file


def make_private(folder: Path) -> list[Path]:
    """Make a folder and its missing parents, each with mode 0700; existing ones keep their mode.

    Each name is synced before the next folder is made: otherwise a power cut could remove a new
    root together with all changes that the daemon has acknowledged in it.

    `Path.mkdir` gives its mode to the last folder only, and the umask's to the parents.

    Returns:
        The new folders, the highest first.

    Raises:
        OSError: a folder cannot be made, or another kind of file has its name.
    """
    missing = [each for each in (folder, *folder.parents) if not each.is_dir()][::-1]
    for each in missing:
        each.mkdir(mode=0o700, exist_ok=True)
        # A folder that is writable for others may not be readable for them.
        with suppress(PermissionError):
            sync_folder(each.parent)
    return missing


def sync_folder(folder: Path) -> None:
    """Sync a folder: new, moved and removed names in it are then on the disk."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        sync_file(handle)
    finally:
        os.close(handle)
