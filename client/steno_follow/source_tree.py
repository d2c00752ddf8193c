"""A folder or file outside the root, read below one handle and without links.

Another user may write the folder of an import. Between the listing and the opening of a transcript
that user could replace it, or a folder above it, by a link to a private file of the reader. So each
name is opened below the handle of its folder, a link is refused, and only regular files are read,
without waiting for a FIFO.
"""

import errno
import os
import stat
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path, PurePath
from typing import BinaryIO, Final, NamedTuple

from steno.local import NotRegular, open_regular
from steno_follow.limits import IMPORT_DEPTH_MAX
from steno_protocol.errors import BadRequest, NotFound, TooLarge
from steno_protocol.private_files import kind_of

_TOP: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_FOLDER: Final = _TOP | os.O_NOFOLLOW
_FILE: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC


_DATABASE: Final = b"SQLite format 3\0"
"""The first bytes of a file of SQLite."""


def is_gone(path: str | Path) -> bool:
    """Return whether nothing is at a path; an error of a file system says nothing about it."""
    try:
        os.lstat(path)
    except (FileNotFoundError, NotADirectoryError):
        return True
    except OSError:
        return False
    return False


class Entry(NamedTuple):
    """A file or folder.

    Attributes:
        name: its name.
        is_folder: it is a folder, and not a regular file.
    """

    name: str
    is_folder: bool


class SourceTree:
    """The folder of an import, or the folder of its one file.

    A path that the user gave may be a link; a link below it is passed over.

    Args:
        given: the path.
        database: the database whose sessions its files are.

    Attributes:
        top: the folder, an absolute path.
        only: the name of the one file that is imported; None for the whole folder.
        database: the database whose sessions are the files of the folder; None if it has none.

    Raises:
        NotFound: there is no such path.
        BadRequest: it is neither a folder nor a regular file.
    """

    def __init__(self, given: Path, database: Path | None = None) -> None:
        try:
            path = given.resolve(strict=True)
            mode = path.stat().st_mode
        except (FileNotFoundError, NotADirectoryError):
            raise NotFound(
                f"{given} does not exist: name a session folder, or a tree of them"
            ) from None
        except (OSError, RuntimeError) as error:
            raise BadRequest(f"{given} cannot be read: {error}") from None
        if not (stat.S_ISDIR(mode) or stat.S_ISREG(mode)):
            raise BadRequest(f"{given} is {kind_of(mode)}: name a file or a folder")
        is_folder = stat.S_ISDIR(mode)
        self.given = given
        self.top: Path = path if is_folder else path.parent
        self.only: str | None = None if is_folder else path.name
        self.database: Path | None = database
        self._handle = os.open(self.top, _TOP)

    def close(self) -> None:
        """Close the handle."""
        os.close(self._handle)

    def refresh(self) -> None:
        """Open the folder anew if another one is at its path, or its handle is stale."""
        try:
            is_same = os.path.samestat(os.fstat(self._handle), os.lstat(self.top))
        except OSError:
            is_same = False
        if not is_same:
            # Without an answer the old handle stays, and says so.
            with suppress(OSError):
                handle = os.open(self.top, _FOLDER)
                os.close(self._handle)
                self._handle = handle

    def path(self, inside: PurePath) -> Path:
        """The path of a place in the folder, for messages."""
        return self.top / inside

    def name_of(self, inside: PurePath) -> Path:
        """The path that says where a transcript comes from, the same at each import."""
        if self.database is None:
            return self.path(inside)
        return self.database / inside.with_suffix("")

    def is_gone(self, named: Path) -> bool:
        """Whether a transcript that came from here is there no more."""
        if self.database is None:
            return named.is_relative_to(self.top) and is_gone(named)
        if not named.is_relative_to(self.database):
            return False
        return not self.has_file(named.relative_to(self.database).with_suffix(".jsonl"))

    def entries(self, inside: PurePath) -> list[Entry]:
        """The files and folders of a folder by name; links and other things are passed over.

        Raises:
            OSError: it is no folder, or cannot be read.
        """
        with self._folder(inside) as handle, os.scandir(handle) as found:
            entries = [
                Entry(each.name, each.is_dir(follow_symlinks=False))
                for each in found
                if each.is_dir(follow_symlinks=False) or each.is_file(follow_symlinks=False)
            ]
        return sorted(entries)

    def check_depth(self, inside: PurePath) -> None:
        """Refuse a folder that lies too deep.

        Raises:
            TooLarge: it does.
        """
        if len(inside.parts) > IMPORT_DEPTH_MAX:
            raise TooLarge(
                f"{self.path(PurePath(*inside.parts[:3]))} has folders more than"
                f" {IMPORT_DEPTH_MAX} levels below {self.given}: move the deepest ones away, or"
                " import a folder below"
            )

    def has_file(self, inside: PurePath) -> bool:
        """Whether a regular file is there."""
        return stat.S_ISREG(self._mode(inside))

    def has_folder(self, inside: PurePath) -> bool:
        """Whether a folder is there."""
        return stat.S_ISDIR(self._mode(inside))

    def _mode(self, inside: PurePath) -> int:
        with suppress(OSError):
            return self.stat(inside).st_mode
        return 0

    def stat(self, inside: PurePath) -> os.stat_result:
        """The properties of a name; a link is not followed.

        Raises:
            OSError: it does not exist, or a part of its path is a link.
        """
        with self._folder(inside.parent) as handle:
            name = inside.name or "."
            return os.stat(name, dir_fd=handle, follow_symlinks=False)

    def size(self, inside: PurePath) -> int:
        """The bytes of a regular file; 0 for anything else."""
        with suppress(OSError):
            found = self.stat(inside)
            return found.st_size if stat.S_ISREG(found.st_mode) else 0
        return 0

    def open(self, inside: PurePath) -> BinaryIO:
        """Open a regular file for reading.

        Raises:
            NotRegular: it is a link or another kind of file.
            OSError: it does not exist, or may not be read.
        """
        with self._folder(inside.parent) as folder:
            try:
                handle = os.open(inside.name, _FILE, dir_fd=folder)
            except OSError as error:
                if error.errno in {errno.ELOOP, errno.ENXIO}:
                    what = "a link" if error.errno == errno.ELOOP else "no regular file"
                    raise self._replaced(inside, what) from None
                raise self._named(error, inside) from None
        mode = os.fstat(handle).st_mode
        if not stat.S_ISREG(mode):
            os.close(handle)
            raise self._replaced(inside, kind_of(mode))
        return os.fdopen(handle, "rb")

    @contextmanager
    def _folder(self, inside: PurePath) -> Generator[int]:
        handle = os.dup(self._handle)
        try:
            for part in inside.parts:
                below = os.open(part, _FOLDER, dir_fd=handle)
                os.close(handle)
                handle = below
            yield handle
        except OSError as error:
            raise self._named(error, inside) from None
        finally:
            os.close(handle)

    def _replaced(self, inside: PurePath, what: str) -> NotRegular:
        return NotRegular(
            f"{self.path(inside)} is {what}, and has to be a regular file: it was not read"
        )

    def _named(self, error: OSError, inside: PurePath) -> OSError:
        """Give an error the whole path: the call had the last name of it only."""
        if error.strerror is not None and not str(error.filename).startswith("/"):
            error.filename = str(self.path(inside))
        return error


def database_at(path: Path, name: str) -> Path | None:
    """The SQLite database at a path: the file itself, or the one of a name in its folder.

    Args:
        path: what the user gave.
        name: the name in a folder.

    Returns:
        The path of the database; None if there is none.
    """
    file = path / name if path.is_dir() else path
    with suppress(OSError), open_regular(file) as content:
        return file if content.read(len(_DATABASE)) == _DATABASE else None
    return None


class Walk:
    """Every folder of a tree, those above before those below.

    Attributes:
        left_out: the folders that were not searched, with the reason.
        error: why the last folder could not be read; None if it could.
    """

    def __init__(self, tree: SourceTree) -> None:
        self._tree = tree
        self.left_out: list[tuple[Path, str]] = []
        self.error: OSError | None = None

    def below(self, inside: PurePath) -> list[Entry]:
        """The entries of a folder; none if it lies too deep or cannot be read, which is noted."""
        if len(inside.parts) > IMPORT_DEPTH_MAX:
            why = f"it lies more than {IMPORT_DEPTH_MAX} folders deep: import a nearer folder"
            # The path itself may be longer than a message.
            self.left_out.append((self._tree.path(PurePath(*inside.parts[:3], "...")), why))
            return []
        self.error = None
        try:
            return self._tree.entries(inside)
        except OSError as error:
            self.error = error
            why = f"it cannot be read: {error.strerror or error}"
            self.left_out.append((self._tree.path(inside), why))
            return []
