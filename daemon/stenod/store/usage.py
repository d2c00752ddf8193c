"""Disk usage of sessions, and the free space of their disk."""

import errno
import os
from collections.abc import Iterator
from contextlib import suppress
from typing import Final

from steno_protocol import compression, paths

BLOCK_BYTES: Final = 4096
"""The unit in which most file systems give room to files and folders."""

NEW_SESSION_BYTES: Final = 4 * BLOCK_BYTES
"""A session without records: its folder, context, timeline and recovery point."""

_NESTS: Final = (paths.QUARANTINE, paths.UPLOADS)
"""Folders of a session with its own files; any other folder may be a session of its own."""

_CHANGING: Final = frozenset({paths.CONTEXT, paths.WIRE, paths.STATE})
"""The files that clients change, beside the streams."""


def free_bytes(path: str) -> int:
    """Return the free space on the disk of a folder, which may not exist yet.

    Raises:
        OSError: the file system does not report it.
    """
    while not os.path.lexists(path) and path != "/":
        path = os.path.dirname(path)  # noqa: PTH120 (as text)
    found = os.statvfs(path)
    if not found.f_blocks:
        # A file system in memory (ramfs) or of a program (FUSE) may report neither size nor room.
        raise OSError(errno.ENOTSUP, "the file system does not report its size", path)
    return found.f_bavail * found.f_frsize


def session_bytes(path: str) -> int:
    """Return the bytes of a session's own files; files that vanish meanwhile count as 0."""
    return sum(map(_bytes_of, _own_files(path)))


def forked_bytes(path: str) -> int:
    """Return the bytes of a session's own files in a fork, to which streams are expanded."""
    return sum(_plain_bytes_of(entry) or _bytes_of(entry) for entry in _own_files(path))


def _own_files(path: str) -> Iterator["os.DirEntry[str]"]:
    for folder in (path, *(f"{path}/{nest}" for nest in _NESTS)):
        with suppress(OSError), os.scandir(folder) as entries:
            yield from entries


def tree_bytes(folder: str) -> int:
    """Return the bytes that all files in a folder and below it take; vanishing ones count as 0.

    Files and folders are counted in whole blocks: thousands of small sessions have few bytes and
    fill a disk all the same.
    """
    total = 0
    waiting = [folder]
    while waiting:
        with suppress(OSError), os.scandir(waiting.pop()) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    waiting.append(entry.path)
                    total += BLOCK_BYTES
                else:
                    total += max(1, -(-_bytes_of(entry) // BLOCK_BYTES)) * BLOCK_BYTES
    return total


def changed_at(folder: str) -> float:
    """Return the Unix time of the last change of a session and of those below it, in seconds.

    The files that clients change count: contexts, wire files, streams and metadata.

    Raises:
        OSError: a folder or file cannot be read.
    """
    latest = 0.0
    waiting = [folder]
    while waiting:
        with os.scandir(waiting.pop()) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    waiting.append(entry.path)
                elif entry.name in _CHANGING or paths.stored_stream_of(entry.name):
                    latest = max(latest, entry.stat(follow_symlinks=False).st_mtime)
    return latest


def _plain_bytes_of(entry: "os.DirEntry[str]") -> int | None:
    """Return the bytes that a compressed stream says to have once it is expanded."""
    if not paths.is_compressed(entry.name) or paths.stored_stream_of(entry.name) is None:
        return None
    with suppress(OSError), open(entry.path, "rb") as file:  # noqa: PTH123 (as text)
        return compression.plain_size(file.read(compression.HEAD_BYTES))
    return None


def _bytes_of(entry: "os.DirEntry[str]") -> int:
    with suppress(OSError):
        if entry.is_file(follow_symlinks=False):
            return entry.stat(follow_symlinks=False).st_size
    return 0
