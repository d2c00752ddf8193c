"""Folders in which copies of sessions are prepared, in the tree of their root.

sessions/.imports/<key>/            locked by this process; the key of the daemon's command
sessions/.imports/<key>/session/    the copy, which the daemon locks as it moves it
"""

import fcntl
import os
import shutil
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from steno.local import make_private, sync_file
from steno.parts import new_key
from steno_protocol import paths
from steno_protocol.errors import Busy


@contextmanager
def folder_aside(tree: Path) -> Generator[Path]:
    """The folder of unfinished copies; removes those of an import that was killed.

    It is in the tree, so that a rename stays in its file system.

    Raises:
        Busy: another import is running.
    """
    aside = tree / paths.IMPORTS
    make_private(aside)
    handle = os.open(aside, os.O_RDONLY | os.O_DIRECTORY)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise Busy(f"another import into {tree} is running: wait until it is done") from None
        _empty(aside)
        try:
            yield aside
        finally:
            _empty(aside)
    finally:
        os.close(handle)


def _empty(aside: Path) -> None:
    for path in aside.iterdir():
        _discard(path)


@contextmanager
def nest_in(aside: Path) -> Generator[Path]:
    """A new folder named by a key, locked so that the daemon does not remove it."""
    while True:
        nest = aside / new_key()
        nest.mkdir(mode=0o700)
        # A daemon that starts may have removed it before it was locked.
        with suppress(FileNotFoundError), _locked(nest) as is_locked:
            if is_locked and nest.exists():
                try:
                    yield nest
                finally:
                    _discard(nest)
                return


def _discard(nest: Path) -> None:
    """Remove a folder with an unfinished copy, unless the daemon moves the copy to its place now.

    It removes the rest itself, at the next start and daily.
    """
    with suppress(FileNotFoundError):
        copy = nest / paths.PREPARED
        if not copy.is_dir():
            shutil.rmtree(nest)
            return
        with _locked(copy) as is_locked:
            if is_locked:
                shutil.rmtree(nest)


@contextmanager
def _locked(folder: Path) -> Generator[bool]:
    """Lock a folder until the block ends; False if another process has it locked."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
        else:
            yield True
    finally:
        os.close(handle)


@contextmanager
def new_file(path: Path) -> Generator[BinaryIO]:
    """A new file for the user alone, on the disk at the end of the block."""
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    with os.fdopen(handle, "wb") as file:
        yield file
        file.flush()
        sync_file(file.fileno())
