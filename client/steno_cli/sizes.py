"""Sizes of files and folders that a progress line needs in advance."""

import os
import stat
from pathlib import Path


def size_of(path: Path) -> int:
    """The bytes of a regular file; 0 for anything else, and for what cannot be looked at."""
    try:
        found = path.lstat()
    except OSError:
        return 0
    return found.st_size if stat.S_ISREG(found.st_mode) else 0


def size_below(folder: Path) -> int:
    """The bytes of all regular files in a folder and below; symbolic links are not followed."""
    return sum(size_of(Path(place, name)) for place, _, names in os.walk(folder) for name in names)
