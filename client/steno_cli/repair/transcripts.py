"""Transcripts of any program that are checked in place, without a daemon."""

import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from steno.local import NotRegular, expanded
from steno_cli.command_limits import CHECK_HANDLES_MAX
from steno_follow.recognition import foreign_format
from steno_protocol import compression, limits, paths
from steno_protocol.checks import Facts
from steno_protocol.errors import BadRequest, NotFound
from steno_protocol.private_files import kind_of

_READ: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY
_FOLDER: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC


@dataclass(frozen=True, slots=True)
class Transcripts:
    """The files of one folder that can be checked.

    Attributes:
        folder: the path of the folder.
        names: the files, in order of their names.
        is_session: it is a session's folder, whose files refer to each other.
        is_owned: a steno daemon wrote it, and its timeline contains positions in its files.
        is_whole: the whole folder is checked, and not one file of it.
    """

    folder: Path
    names: tuple[str, ...]
    is_session: bool
    is_owned: bool
    is_whole: bool

    def program_of(self, name: str) -> str | None:
        """The name of the program that wrote a file; None if nothing shows it."""
        if self.is_session:
            return "steno" if self.is_owned else "kimi-cli"
        try:
            kind = foreign_format(self.folder / name)
        except OSError:
            # The check reports a file that cannot be read.
            return None
        return None if kind is None else kind.program


def transcripts_at(target: str) -> Iterator[Transcripts]:
    """The transcripts at a path: one file, or all below a folder, folder by folder.

    A symbolic link as the path itself is followed, one below it is not.

    Raises:
        NotFound: the path does not exist.
        BadRequest: it is neither a file nor a folder.
    """
    path = Path(target).expanduser()
    try:
        path = path.resolve(strict=True)
        mode = path.stat().st_mode
    except OSError as error:
        raise NotFound(f"{target} cannot be found: {error.strerror}") from None
    if stat.S_ISREG(mode):
        there = {each.name for each in path.parent.iterdir()}
        yield _described(path.parent, (path.name,), there, is_whole=False)
    elif stat.S_ISDIR(mode):
        yield from _below(path)
    else:
        raise BadRequest(f"{target} is neither a file nor a folder: name a JSONL file")


def _below(top: Path) -> Iterator[Transcripts]:
    for folder, folders, files in os.walk(top):
        # The files of a quarantine are known to be damaged.
        folders[:] = sorted(set(folders) - {paths.QUARANTINE})
        names = tuple(sorted(name for name in files if _is_transcript(Path(folder, name))))
        there = {*files, *folders}
        if names or paths.CONTEXT in there:
            yield _described(Path(folder), names, there, is_whole=True)


def _is_transcript(path: Path) -> bool:
    try:
        return path.suffix == ".jsonl" and stat.S_ISREG(path.lstat().st_mode)
    except FileNotFoundError:
        return False


def _described(
    folder: Path, names: tuple[str, ...], there: set[str], *, is_whole: bool
) -> Transcripts:
    # A folder with past generations is a session even without a present one.
    is_session = paths.CONTEXT in there or any(map(paths.generation_of, there))
    is_owned = is_session and paths.TIMELINE in there
    return Transcripts(folder, names, is_session, is_owned, is_whole)


class LocalFolder:
    """An open folder for a check, which follows no link in it and waits for no pipe.

    Attributes:
        handle: the open folder.
    """

    def __init__(self, folder: Path) -> None:
        self.handle: int = os.open(folder, _FOLDER)
        self._files: dict[str, int] = {}

    def names(self, below: str = "") -> list[str]:
        """The names in it, or in the folder `below`; empty if that does not exist."""
        if not below:
            return list(dict.fromkeys(map(paths.plain_file, _names(self.handle))))
        try:
            nest = os.open(below, _FOLDER | os.O_NOFOLLOW, dir_fd=self.handle)
        except OSError:
            return []
        try:
            return _names(nest)
        finally:
            os.close(nest)

    def facts(self, name: str) -> Facts | None:
        """Size and inode of a name, whatever its type; None if it does not exist."""
        try:
            found = os.stat(name, dir_fd=self.handle, follow_symlinks=False)
        except FileNotFoundError:
            if not self._is_compressed(name):
                return None
            packed = self.open(paths.compressed_file(name))
            found = os.fstat(packed)
            # Without a whole head it is damaged, which the check of its lines reports.
            size = compression.plain_size(os.pread(packed, compression.HEAD_BYTES, 0))
            return Facts(found.st_size if size is None else size, found.st_ino)
        return Facts(found.st_size, found.st_ino)

    def _is_compressed(self, name: str) -> bool:
        return paths.is_compressible(name) and paths.compressed_file(name) in _names(self.handle)

    def read(self, name: str, size: int, offset: int) -> bytes:
        """Up to `size` bytes of a file from `offset`."""
        return os.pread(self.open(name), size, offset)

    def open(self, name: str) -> int:
        """The handle of a file; the least recently used handle is closed when there are too many.

        Raises:
            OSError: the file cannot be read, or is no regular file.
        """
        handle = self._files.pop(name, None)
        if handle is None:
            if len(self._files) >= CHECK_HANDLES_MAX:
                os.close(self._files.pop(next(iter(self._files))))
            try:
                handle = self._open(name)
            except FileNotFoundError:
                if not self._is_compressed(name):
                    raise
                packed = paths.compressed_file(name)
                try:
                    with expanded(os.fdopen(self._open(packed), "rb"), packed) as file:
                        handle = os.dup(file.fileno())
                except BadRequest as error:
                    raise compression.Unexpandable(error, packed) from None
        # Inserted again, so that the order of the dictionary is the order of use.
        self._files[name] = handle
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            raise NotRegular("it was just replaced by something that is no regular file")
        return handle

    def _open(self, name: str) -> int:
        mode = os.stat(name, dir_fd=self.handle, follow_symlinks=False).st_mode
        if not stat.S_ISREG(mode):
            raise NotRegular(f"it is {kind_of(mode)}, and has to be a regular file")
        return os.open(name, _READ, dir_fd=self.handle)

    def blocks(self, name: str) -> Iterator[bytes]:
        """The content of a file, block by block."""
        offset = 0
        while data := self.read(name, limits.BLOCK_BYTES, offset):
            offset += len(data)
            yield data

    def close(self) -> None:
        """Close the folder and its files."""
        for handle in [*self._files.values(), self.handle]:
            os.close(handle)


def _names(handle: int) -> list[str]:
    with os.scandir(handle) as entries:
        return [entry.name for entry in entries]
