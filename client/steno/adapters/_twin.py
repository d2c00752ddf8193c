"""A file that has two names: the one that a caller gave, and `context.jsonl` in a session's folder.

Both name one inode, so what is appended through either is in both. A rewrite makes a new inode, and
the caller's name has to follow it; a program that dies in between leaves the old one, which is then
recognised as a generation that the session left behind.
"""

import os
from contextlib import suppress
from pathlib import Path

from steno_protocol import places


def adopt(path: Path, context: Path) -> None:
    """Make the file at `path` and the session's file one."""
    given, own = _inode(path), _inode(context)
    if given == own:
        return
    if own is not None and given in _left_behind(context.parent):
        _put(context, path)
        return
    # Somebody replaced the file: the daemon sees it, and keeps what was there as a generation.
    context.parent.mkdir(mode=0o700, exist_ok=True)
    _put(path, context)


def follow_rewrite(path: Path, context: Path, rotated: Path) -> None:
    """After a rewrite: the new file gets the caller's name, the old one the next free number."""
    _number(path, rotated)
    _put(context, path)


def _put(source: Path, target: Path) -> None:
    """Give `source` a second name, in place of what has it."""
    aside = target.with_name(f"{target.name}.{os.getpid()}.link")
    aside.unlink(missing_ok=True)
    os.link(source, aside)
    aside.replace(target)
    # Nothing was renamed when both are the same file already.
    aside.unlink(missing_ok=True)


def _number(path: Path, rotated: Path) -> None:
    number = 1
    while True:
        with suppress(FileExistsError):
            os.link(rotated, path.with_name(f"{path.stem}_{number}{path.suffix}"))
            return
        number += 1


def _left_behind(folder: Path) -> set[tuple[int, int] | None]:
    return {_inode(file) for file in folder.iterdir() if places.generation_of(file.name)}


def _inode(path: Path) -> tuple[int, int] | None:
    try:
        found = path.lstat()
    except FileNotFoundError:
        return None
    return found.st_dev, found.st_ino
