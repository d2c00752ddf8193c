"""The files of the index, and the lock of the process that fills it.

    <cache>/steno/search/<hash of the root or address>/
        lock                locked by the one process that fills the index
        of                  the root or address, for people
        index-1-3.db        version 1 of the tables, the third index made; with -wal and -shm

An index that is damaged, or of another version, is never changed: the next number is made. SQLite
would mix the files of two indexes with the same name while another process has the old one open.
"""

import fcntl
import os
import re
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from hashlib import blake2b
from pathlib import Path
from typing import Final

from steno.local import open_private, own_private
from steno_protocol.errors import StorageFailed, Unauthorized
from steno_search.index import VERSION, Damaged, Index
from steno_search.limits import LOCK_POLL_S

_NAME: Final = re.compile(r"index-(\d{1,9})-(\d{1,9})\.db")


def cache_folder() -> Path:
    """The folder of all search indexes of this user."""
    given = os.environ.get("XDG_CACHE_HOME", "")
    base = Path(given) if given.startswith("/") else Path.home() / ".cache"
    return base / "steno" / "search"


class IndexFolder:
    """The index of one root or daemon.

    Args:
        base: the folder of all indexes.
        of: the path of the root, or the address of the daemon.
        masks: the fingerprint of the patterns that mask its texts; an index with others is made
            anew.
    """

    def __init__(self, base: Path, of: str, masks: int = 0) -> None:
        self._of = of
        self._masks = masks
        self.path: Path = base / blake2b(os.fsencode(of), digest_size=12).hexdigest()

    def open(self) -> Index | None:
        """The present index, to search in it; None if there is none, or it is damaged."""
        found = self._present()
        if found is None:
            return None
        try:
            index = Index(found)
            if index.masks == self._masks:
                return index
            index.close()
            return None
        except (Damaged, StorageFailed):
            if found == self._present():
                return None
            # Another process made a new one meanwhile.
            return self.open()

    @contextmanager
    def filling(
        self, wait_s: float = 0.0, waiting: Callable[[], None] = lambda: None
    ) -> Generator["Filling | None"]:
        """Hold the lock; yields None if another process keeps it for this long.

        Args:
            wait_s: seconds to wait for the lock.
            waiting: called again and again meanwhile.

        Raises:
            StorageFailed: the folder cannot be made.
            Unauthorized: the folder belongs to another user.
        """
        self._make()
        descriptor = open_private(self.path / "lock", os.O_RDWR | os.O_CREAT)
        try:
            if not _locked(descriptor, wait_s, waiting):
                yield None
                return
            filling = Filling(self)
            try:
                yield filling
            finally:
                filling.close()
        finally:
            os.close(descriptor)

    def make(self, *, anew: bool) -> Index:
        """Open the present index, or make the next one; the caller has the lock."""
        found = None if anew else self._present()
        if found is not None:
            with suppress(Damaged):
                index = Index(found, creates=True)
                if index.masks == self._masks:
                    return index
                index.close()
        numbers = [number for _, number in self._files()]
        path = self.path / f"index-{VERSION}-{max(numbers, default=0) + 1}.db"
        # SQLite gives the mode of the file to the files that it puts beside it.
        os.close(open_private(path, os.O_RDWR | os.O_CREAT | os.O_EXCL))
        index = Index(path, creates=True)
        index.note_masks(self._masks)
        self._remove_old(path.name)
        return index

    def _present(self) -> Path | None:
        numbers = [number for version, number in self._files() if version == VERSION]
        return self.path / f"index-{VERSION}-{max(numbers)}.db" if numbers else None

    def _files(self) -> list[tuple[int, int]]:
        """Version and number of each index."""
        try:
            names = [file.name for file in self.path.iterdir()]
        except FileNotFoundError:
            return []
        found = [match for name in names if (match := _NAME.fullmatch(name))]
        return [(int(match[1]), int(match[2])) for match in found]

    def _remove_old(self, present: str) -> None:
        """Remove the indexes before the present one; one of a newer version stays."""
        for version, number in self._files():
            name = f"index-{version}-{number}.db"
            if version <= VERSION and name != present:
                for ending in ("", "-wal", "-shm"):
                    (self.path / f"{name}{ending}").unlink(missing_ok=True)

    def _make(self) -> None:
        try:
            for each in (self.path.parent, self.path):
                own_private(each)
            state = self.path.lstat()
            if state.st_uid != os.getuid():
                raise Unauthorized(
                    f"the search index {self.path} belongs to another user: remove it, or set"
                    " XDG_CACHE_HOME"
                )
            if state.st_mode & 0o077:
                self.path.chmod(0o700)
            note = self.path / "of"
            if not note.exists():
                note.write_bytes(os.fsencode(self._of) + b"\n")
                note.chmod(0o600)
        except OSError as error:
            raise StorageFailed(
                f"the folder of the search index cannot be made: {error}; make room there, or set"
                " XDG_CACHE_HOME"
            ) from None


class Filling:
    """The index while this process has the lock.

    Args:
        folder: its folder.
    """

    def __init__(self, folder: IndexFolder) -> None:
        self._folder = folder
        self.index: Index = folder.make(anew=False)

    def make_anew(self) -> None:
        """Begin an empty index; the one before is removed."""
        self.index.close()
        self.index = self._folder.make(anew=True)

    def close(self) -> None:
        """Close the index."""
        self.index.close()


def _locked(descriptor: int, wait_s: float, waiting: Callable[[], None]) -> bool:
    """Take the lock; returns False when another process kept it for this long."""
    end = time.monotonic() + wait_s
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() >= end:
                return False
            waiting()
            time.sleep(LOCK_POLL_S)
        else:
            return True
