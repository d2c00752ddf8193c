"""Files below folders that are looked at again and again: which are new, changed or gone.

A look costs 3 us a file, so a look at all of many files each time would take a core. The files that
changed lately are looked at each time, and the others take turns. New files are found in folders
that changed.
"""

import os
import stat
from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path, PurePath
from typing import Final, NamedTuple

from steno_follow.limits import WATCH_FOLDERS_MAX, WATCH_LATELY_S, WATCH_STATS_MAX
from steno_follow.search import perhaps_transcripts
from steno_follow.source_tree import SourceTree, Walk
from steno_protocol.errors import NotFound, StenoError

_COARSE_NS: Final = 2_000_000_000
"""The coarsest clock of a file system: a change in the same tick leaves the time as it is."""


_LATELY_NS: Final = int(WATCH_LATELY_S * 1e9)

_TURNS_MIN: Final = 100
"""Files that take their turn even if many others changed lately."""


class Shape(NamedTuple):
    """What a look sees of a file; another value is a change."""

    inode: int
    size: int
    changed_ns: int


@dataclass(slots=True)
class WatchedFile:
    """A file that may be a transcript.

    Attributes:
        tree: the folder or file that was named.
        path: its path.
        shape: what the last look saw; None if it is not there.
        changed_at: when a look saw a change, in seconds of the caller's clock.
        error: the number of the error that the last look got; 0 if the file system answered.
    """

    tree: SourceTree
    path: str
    shape: Shape | None = None
    changed_at: float = 0.0
    error: int = 0

    @property
    def inside(self) -> PurePath:
        """Its place in the tree."""
        # Kept as text: of 100 000 files, paths take 60 MB.
        return PurePath(self.path).relative_to(self.tree.top)


@dataclass(slots=True)
class _Top:
    """A folder or file that was named; it may come later."""

    path: Path
    database: Path | None = None
    tree: SourceTree | None = None
    is_refused: bool = False


@dataclass(slots=True)
class _Folder:
    """A folder that is searched when it has changed."""

    top: _Top
    tree: SourceTree
    inside: PurePath
    path: str
    changed_ns: int = -1
    error: int = 0
    below: set[str] = field(default_factory=set[str])


class FileWatch:
    """The files below some folders.

    Args:
        places: folders or files; those that do not exist are waited for.
        mirrors: folders with the sessions of databases, and those databases.

    Attributes:
        files: the files that are there, by path.
        left_out: what cannot be searched, with the reason, by the last look.
        new_folders: the folders that the last look found.
    """

    def __init__(self, places: Iterable[Path], mirrors: Mapping[Path, Path] | None = None) -> None:
        self.files: dict[str, WatchedFile] = {}
        self.left_out: list[tuple[Path, str]] = []
        self.new_folders: list[str] = []
        self._tops = [_Top(each) for each in places]
        self._tops += [_Top(each, database) for each, database in (mirrors or {}).items()]
        self._new: list[WatchedFile] = []
        self._lately: dict[str, WatchedFile] = {}
        self._others: deque[WatchedFile] = deque()
        self._folders: dict[str, _Folder] = {}
        self._folder_turns: deque[str] = deque()

    def close(self) -> None:
        """Close the folders."""
        for top in self._tops:
            if top.tree is not None:
                top.tree.close()

    @property
    def tops(self) -> list[Path]:
        """The folders and files that were named, without links, as far as they are there."""
        return [
            each.tree.top if each.tree.only is None else each.tree.top / each.tree.only
            for each in self._tops
            if each.tree is not None and each.database is None
        ]

    def look(self, now: float, clock_ns: int) -> list[WatchedFile]:
        """Return the files that are new, changed or gone since the last look.

        Args:
            now: seconds of a clock that only rises.
            clock_ns: the time of the machine.
        """
        self.left_out, self.new_folders = [], []
        for top in self._tops:
            if top.tree is None:
                self._begin(top, clock_ns)
                continue
            top.tree.refresh()
            if top.tree.only is not None:
                # It may have been away.
                self._add(top.tree, PurePath(top.tree.only))
        for _ in range(min(len(self._folder_turns), WATCH_FOLDERS_MAX)):
            path = self._folder_turns.popleft()
            if path in self._folders:
                self._search_below(self._folders[path], clock_ns)
                self._folder_turns.append(path)
        return self._without_gone(self._changed(now, clock_ns))

    def look_at(self, paths: Iterable[Path], now: float, clock_ns: int) -> list[WatchedFile]:
        """Return what has changed of some files, and what is new beside them, as `look` does."""
        self.left_out, self.new_folders = [], []
        found: list[WatchedFile] = []
        for path in paths:
            file, folder = self.files.get(str(path)), self._folders.get(str(path.parent))
            if file is not None and self._has_changed(file, now):
                found.append(file)
                self._keep(file)
            elif file is None and folder is not None:
                self._search_below(folder, clock_ns)
        return self._without_gone([*found, *self._changed_new(now, clock_ns)])

    def _search_below(self, folder: _Folder, clock_ns: int) -> None:
        """Add what is new in a folder, however deep it goes."""
        waiting = [folder]
        while waiting:
            each = waiting.pop()
            below = self._search(each, clock_ns)
            if below is None:
                self._folders.pop(each.path, None)
                continue
            waiting += below
            if each.path not in self._folders:
                self._folders[each.path] = each
                self._folder_turns.append(each.path)
                self.new_folders.append(each.path)

    def _changed(self, now: float, clock_ns: int) -> list[WatchedFile]:
        known = len(self._lately)
        found = [*self._changed_lately(now), *self._changed_others(now, known)]
        return [*found, *self._changed_new(now, clock_ns)]

    def _without_gone(self, found: list[WatchedFile]) -> list[WatchedFile]:
        """Forget the files that are gone."""
        for file in found:
            if file.shape is None:
                self.files.pop(file.path, None)
                self._lately.pop(file.path, None)
        return found

    def _changed_lately(self, now: float) -> list[WatchedFile]:
        found: list[WatchedFile] = []
        for file in list(self._lately.values()):
            if self._has_changed(file, now):
                found.append(file)
                self._keep(file)
            elif now - file.changed_at > WATCH_LATELY_S:
                del self._lately[file.path]
                self._others.append(file)
        return found

    def _changed_others(self, now: float, known: int) -> list[WatchedFile]:
        found: list[WatchedFile] = []
        for _ in range(min(len(self._others), max(WATCH_STATS_MAX - known, _TURNS_MIN))):
            file = self._others.popleft()
            if self.files.get(file.path) is not file:
                continue
            if self._has_changed(file, now):
                found.append(file)
                self._keep(file)
            else:
                self._others.append(file)
        return found

    def _changed_new(self, now: float, clock_ns: int) -> list[WatchedFile]:
        found: list[WatchedFile] = []
        for file in self._new:
            if self._has_changed(file, now):
                found.append(file)
            if file.shape is not None and abs(clock_ns - file.shape.changed_ns) > _LATELY_NS:
                self._others.append(file)
            else:
                self._keep(file)
        self._new = []
        return found

    def _keep(self, file: WatchedFile) -> None:
        """Look at a file each time; of too many, the one that changed first takes turns again."""
        self._lately.pop(file.path, None)
        self._lately[file.path] = file
        if len(self._lately) > WATCH_STATS_MAX // 2:
            self._others.append(self._lately.pop(next(iter(self._lately))))

    def _has_changed(self, file: WatchedFile, now: float) -> bool:
        before = file.shape
        try:
            found = os.lstat(file.path)
        except (FileNotFoundError, NotADirectoryError):
            shape = None
        except OSError as error:
            # A network file system that does not answer has lost no file.
            folder = self._folders.get(str(Path(file.path).parent))
            if folder is None or folder.error != error.errno:
                self._note_error(file, error)
            return False
        else:
            file.error = 0
            # Nearly every call ends here.
            if (
                before is not None
                and found.st_mtime_ns == before.changed_ns
                and found.st_size == before.size
                and found.st_ino == before.inode
            ):
                return False
            is_regular = stat.S_ISREG(found.st_mode)
            shape = Shape(found.st_ino, found.st_size, found.st_mtime_ns) if is_regular else None
        if shape == before:
            return False
        file.shape, file.changed_at = shape, now
        return True

    def _note_error(self, place: "WatchedFile | _Folder", error: OSError) -> None:
        """Say once that a file or folder cannot be looked at."""
        if place.error != error.errno:
            place.error = error.errno or 0
            why = f"it cannot be read: {error.strerror or error}"
            self.left_out.append((Path(place.path), why))

    def _begin(self, top: _Top, clock_ns: int) -> None:
        """Look whether what was named is there now."""
        try:
            top.tree = SourceTree(top.path, top.database)
        except NotFound:
            return
        except StenoError as error:
            if not top.is_refused:
                self.left_out.append((top.path, error.message))
            top.is_refused = True
            return
        if top.tree.only is None:
            self._search_below(_Folder(top, top.tree, PurePath(), str(top.tree.top)), clock_ns)
        else:
            self._add(top.tree, PurePath(top.tree.only))

    def _search(self, folder: _Folder, clock_ns: int) -> list[_Folder] | None:
        """Add the new files of a folder that has changed.

        Returns:
            The new folders in it; None if it is gone.
        """
        tree = folder.tree
        try:
            changed_ns = os.lstat(folder.path).st_mtime_ns
        except OSError as error:
            if not isinstance(error, FileNotFoundError | NotADirectoryError):
                self._note_error(folder, error)
                return []
            if not folder.inside.parts:
                # It may come again, as another one.
                tree.close()
                folder.top.tree = None
            return None
        if changed_ns == folder.changed_ns:
            return []
        # A file that comes in the same tick of the clock is found by another search.
        folder.changed_ns = changed_ns if abs(clock_ns - changed_ns) > _COARSE_NS else -1
        walk = Walk(tree)
        names, below = perhaps_transcripts(walk.below(folder.inside))
        if walk.error is not None:
            # A look later may find what is in it.
            self._note_error(folder, walk.error)
            folder.changed_ns = -1
            return []
        folder.error = 0
        self.left_out += walk.left_out
        for name in names:
            self._add(tree, folder.inside / name)
        new = [name for name in below if name not in folder.below]
        folder.below = set(below)
        return [
            _Folder(folder.top, tree, folder.inside / name, str(tree.path(folder.inside / name)))
            for name in new
        ]

    def _add(self, tree: SourceTree, inside: PurePath) -> None:
        path = str(tree.path(inside))
        if path not in self.files:
            self.files[path] = file = WatchedFile(tree, path)
            self._new.append(file)
