"""Folders that the client makes: for their owner alone, and those above them too."""

from pathlib import Path


def make_private(folder: Path) -> list[Path]:
    """Make a folder and what is missing above it, each with mode 0700; what is there stays.

    `Path.mkdir` gives its mode to the last folder only, and the umask's to those above it.

    Returns:
        What was missing, the highest first.

    Raises:
        OSError: one of them cannot be made, or is there and is no folder.
    """
    missing = [each for each in (folder, *folder.parents) if not each.is_dir()][::-1]
    for each in missing:
        each.mkdir(mode=0o700, exist_ok=True)
    return missing
