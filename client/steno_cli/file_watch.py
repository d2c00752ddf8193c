"""Files below folders that are looked at again and again: which are new, changed or gone.

A look costs 3 us a file, so a look at all of many files each time would take a core. The files that
changed lately are looked at each time, and the others take turns. New files are found in folders
that changed.
"""

import os
import stat
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path, PurePath
from typing import Final, NamedTuple

from steno_cli.command_limits import WATCH_FOLDERS_MAX, WATCH_LATELY_S, WATCH_STATS_MAX
from steno_cli.foreign_sources import perhaps_transcripts
from steno_cli.source_tree import SourceTree, Walk
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
        inside: its place there.
        path: its path.
        shape: what the last look saw; None if it is not there.
        changed_at: when a look saw a change, in seconds of the caller's clock.
    """

    tree: SourceTree
    inside: PurePath
    path: str
    shape: Shape | None = None
    changed_at: float = 0.0


@dataclass(slots=True)
class _Top:
    """A folder or file that was named; it may come later."""

    path: Path
    tree: SourceTree | None = None
    is_refused: bool = False


@dataclass(slots=True)
class _Folder:
    """A folder that is searched when it has changed."""

    top: _Top
    inside: PurePath
    changed_ns: int = -1
    below: set[str] = field(default_factory=set[str])


class FileWatch:
    """The files below some folders.

    Args:
        places: folders or files; those that do not exist are waited for.

    Attributes:
        files: the files that are there, by path.
        left_out: what cannot be searched, with the reason, since the last look.
    """

    def __init__(self, places: Iterable[Path]) -> None:
        self.files: dict[str, WatchedFile] = {}
        self.left_out: list[tuple[Path, str]] = []
        self._tops = [_Top(each) for each in places]
        self._new: list[WatchedFile] = []
        self._lately: dict[str, WatchedFile] = {}
        self._others: deque[WatchedFile] = deque()
        self._folders: deque[_Folder] = deque()

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
            if each.tree is not None
        ]

    @property
    def folders(self) -> list[Path]:
        """The folders that are searched."""
        return [each.top.tree.path(each.inside) for each in self._folders if each.top.tree]

    def look(self, now: float, clock_ns: int) -> list[WatchedFile]:
        """Return the files that are new, changed or gone since the last look.

        Args:
            now: seconds of a clock that only rises.
            clock_ns: the time of the machine.
        """
        self.left_out = []
        for top in self._tops:
            if top.tree is None:
                self._begin(top)
            elif top.tree.only is not None:
                # It may have been away.
                self._add(top, PurePath(top.tree.only))
        for _ in range(min(len(self._folders), WATCH_FOLDERS_MAX)):
            waiting = [self._folders.popleft()]
            # What is new in it is searched at once, however deep it goes.
            while waiting:
                folder = waiting.pop()
                found = self._search(folder, clock_ns)
                if found is not None:
                    waiting += found
                    self._folders.append(folder)
        return self._changed(now, clock_ns)

    def _changed(self, now: float, clock_ns: int) -> list[WatchedFile]:
        known = len(self._lately)
        found = [*self._changed_lately(now), *self._changed_others(now, known)]
        found += self._changed_new(now, clock_ns)
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
                self._lately[file.path] = file
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
                self._lately[file.path] = file
        self._new = []
        return found

    def _has_changed(self, file: WatchedFile, now: float) -> bool:
        before = file.shape
        try:
            found = os.lstat(file.path)
        except OSError:
            shape = None
        else:
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

    def _begin(self, top: _Top) -> None:
        """Look whether what was named is there now."""
        try:
            top.tree = SourceTree(top.path)
        except NotFound:
            return
        except StenoError as error:
            if not top.is_refused:
                self.left_out.append((top.path, error.message))
            top.is_refused = True
            return
        if top.tree.only is None:
            self._folders.appendleft(_Folder(top, PurePath()))
        else:
            self._add(top, PurePath(top.tree.only))

    def _search(self, folder: _Folder, clock_ns: int) -> list[_Folder] | None:
        """Add the new files of a folder that has changed.

        Returns:
            The new folders in it; None if it is gone.
        """
        tree = folder.top.tree
        if tree is None:
            return None
        try:
            changed_ns = os.lstat(tree.path(folder.inside)).st_mtime_ns
        except OSError:
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
        self.left_out += walk.left_out
        for name in names:
            self._add(folder.top, folder.inside / name)
        new = [name for name in below if name not in folder.below]
        folder.below = set(below)
        return [_Folder(folder.top, folder.inside / name) for name in new]

    def _add(self, top: _Top, inside: PurePath) -> None:
        assert top.tree is not None
        path = str(top.tree.path(inside))
        if path not in self.files:
            self.files[path] = file = WatchedFile(top.tree, inside, path)
            self._new.append(file)
