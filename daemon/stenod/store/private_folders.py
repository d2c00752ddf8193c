"""Folders that only this user may enter."""

from pathlib import Path


def make_private(folder: Path) -> list[Path]:
    """Make a folder and its missing parents, each with mode 0700; existing ones keep their mode.

    `Path.mkdir` gives its mode to the last folder only, and the umask's to the parents.

    Returns:
        The new folders, the highest first; none of their names is synced.

    Raises:
        OSError: a folder cannot be made, or another kind of file has its name.
    """
    missing = [each for each in (folder, *folder.parents) if not each.is_dir()][::-1]
    for each in missing:
        each.mkdir(mode=0o700, exist_ok=True)
    return missing
