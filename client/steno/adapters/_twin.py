"""A session's file with two names: the caller's and `context.jsonl`.

Both name one inode, so an append through either is in both. A rewrite makes a new inode, and the
caller's name has to follow it; a program that dies in between leaves the old one, which is then
recognised as a generation that the session left behind.
"""

import fcntl
import os
import re
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from steno.local import open_private
from steno_protocol import paths

_LOCK: Final = "names.lock"


def adopt(path: Path, context: Path) -> None:
    """Make `path` and the session's file names of one inode."""
    if _inode(path) == _inode(context):
        return
    context.parent.mkdir(mode=0o700, exist_ok=True)
    with alone(context.parent):
        # In this order: the file at `path` was the session's file before it was left behind.
        given, own = _inode(path), _inode(context)
        if given == own:
            return
        if own is not None and given in _left_behind(context.parent):
            _put(context, path)
        else:
            # Another program replaced the file: the daemon detects it and keeps the old contents.
            _put(path, context)


def follow_rewrite(path: Path, context: Path, rotated: Path) -> None:
    """After a rewrite, give the new file the caller's name, and the old one the next number."""
    with alone(context.parent):
        _number(path, rotated)
        _put(context, path)


@contextmanager
def alone(folder: Path) -> Generator[None]:
    """Hold the lock of the names: a slow process must not restore an outdated name."""
    lock = open_private(folder / _LOCK, os.O_RDWR | os.O_CREAT)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
    finally:
        # Not left to `close`: a child that was forked meanwhile has the file open, too.
        fcntl.flock(lock, fcntl.LOCK_UN)
        os.close(lock)


def _put(source: Path, target: Path) -> None:
    """Give `source` a second name, in place of the file that has it."""
    aside = target.with_name(f"{target.name}.link")
    aside.unlink(missing_ok=True)
    os.link(source, aside)
    aside.replace(target)
    # Nothing was renamed when both are the same file already.
    aside.unlink(missing_ok=True)


def _number(path: Path, rotated: Path) -> None:
    """Give `rotated` the next number: files with higher numbers are younger."""
    name = re.compile(rf"{re.escape(path.stem)}_(\d+){re.escape(path.suffix)}")
    found = [name.fullmatch(each.name) for each in path.parent.iterdir()]
    number = 1 + max((int(match[1]) for match in found if match), default=0)
    while True:
        with suppress(FileExistsError):
            os.link(rotated, path.with_name(f"{path.stem}_{number}{path.suffix}"))
            return
        number += 1


def _left_behind(folder: Path) -> set[tuple[int, int] | None]:
    return {_inode(file) for file in folder.iterdir() if paths.generation_of(file.name)}


def _inode(path: Path) -> tuple[int, int] | None:
    try:
        found = path.lstat()
    except FileNotFoundError:
        return None
    return found.st_dev, found.st_ino
