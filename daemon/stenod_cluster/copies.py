"""The copies of sessions on this disk, which follow the names of their sessions.

A folder's mark says which session its files are. Where the name of a folder leads to another
session or to none, another daemon moved the session: its copy here moves to where the session is
now, or is removed.
"""

import itertools
import re
import threading
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import Final, NamedTuple
from weakref import WeakValueDictionary

from steno_protocol import paths
from stenod.store.disk import Disk
from stenod_cluster import limits
from stenod_cluster.journal import ForeignMessage, Journal, Kind, Message, subject_of_name
from stenod_cluster.mirror import (
    Mark,
    is_name,
    is_uncompared,
    put_aside,
    read_mark,
    remove_lone_mark,
    session_files,
    take_out,
)


class Unjoined(NamedTuple):
    """The files of a folder that the journal never had.

    Attributes:
        names: their names.
        mark: the mark beside them.
    """

    names: list[str]
    mark: Mark | None


class Copies:
    """The session folders of one tree.

    Args:
        disk: the disk of the session tree, without replication.
        tree: the path of the session tree.
        journal: the messages of all sessions and names.
        host: this root.
        is_used_below: whether this daemon uses a session below a name.
        compare: makes files at a path equal to a session, unless they are newer; returns whether
            they are equal now.
        keep: makes the files at a path another session, too; returns whether it can.

    Attributes:
        moving: held while a folder is moved, and when this daemon begins to use one.
    """

    def __init__(
        self,
        disk: Disk,
        tree: str,
        journal: Journal,
        host: str,
        is_used_below: Callable[[str], bool],
        compare: Callable[[str, str], bool],
        keep: Callable[[str], bool],
    ) -> None:
        self._disk = disk
        self._tree = tree
        self._journal = journal
        self._host = host
        self._is_used_below = is_used_below
        self._compare = compare
        self._keep = keep
        self._locks: WeakValueDictionary[str, threading.Lock] = WeakValueDictionary()
        self._lock = threading.Lock()
        self.moving = threading.Lock()

    @contextmanager
    def opened(self, path: str, *, create: bool = False) -> Generator[int]:
        """Open a folder of the tree until the block ends; FileNotFoundError if there is none."""
        handle = self._disk.open_root(self._tree, create=create)
        try:
            for segment in filter(None, path.split("/")):
                parent, handle = handle, self._disk.open_folder(handle, segment, create=create)
                self._disk.close(parent)
            yield handle
        finally:
            self._disk.close(handle)

    def is_here(self, path: str) -> bool:
        """Whether this disk has a session's files at a path."""
        try:
            with self.opened(path) as handle:
                return self._disk.stat_name(handle, paths.CONTEXT) is not None
        except OSError:
            return False

    def mark(self, path: str) -> Mark | None:
        """Read the mark of the folder at a path; None if there is none of this root."""
        with self.opened(path) as folder:
            return read_mark(self._disk, folder, self._host)

    def is_uncompared(self, path: str) -> bool:
        """Whether this disk has files at a path that were never compared with this stream."""
        with suppress(OSError), self.opened(path) as folder:
            mark = read_mark(self._disk, folder, self._host)
            return is_uncompared(self._disk, folder, mark, self._journal.stream())
        return False

    def keep_beside(self, path: str) -> str:
        """Give the files at a path a second folder beside it, which is another session.

        Returns:
            The name of that session.
        """
        with self.opened(path) as folder:
            kept = ""
            for number in itertools.count(1):
                kept = f"{path}-kept-{number}"
                if self.is_here(kept):
                    if self._has_same(kept, folder):
                        # A mirror that died before it was done had kept them.
                        return kept
                elif self._journal.last(subject_of_name(kept)) is None:
                    break
            with (
                self.opened(kept, create=True) as other,
                self.opened(path.rpartition("/")[0]) as parent,
            ):
                # Without the context it is no session.
                for name in sorted(session_files(self._disk, folder), key=paths.CONTEXT.__eq__):
                    if self._disk.stat_name(other, name) is None:
                        self._disk.link(folder, name, name, into=other)
                self._disk.fsync(other)
                self._disk.fsync(parent)
        return kept

    def is_beside(self, path: str, name: str, inode: int) -> bool:
        """Whether a file of a path was given to a session beside it."""
        above, _, last = path.rpartition("/")
        with self.opened(above) as parent:
            kept = [each for each in self._disk.names(parent) if kept_from(each) == last]
        for each in kept:
            with suppress(OSError), self.opened(f"{above}/{each}") as folder:
                found = self._disk.stat_name(folder, name)
                if found is not None and found.inode == inode:
                    return True
        return False

    def _has_same(self, path: str, folder: int) -> bool:
        """Whether a path has the session file of an open folder."""
        ours = self._disk.stat_name(folder, paths.CONTEXT)
        with self.opened(path) as other:
            theirs = self._disk.stat_name(other, paths.CONTEXT)
        return ours is not None and theirs is not None and ours.inode == theirs.inode

    def here(self, path: str = "") -> Iterator[str]:
        """Yield the names of the sessions on this disk, at and below a path."""
        with suppress(FileNotFoundError, NotADirectoryError):
            with self.opened(path) as folder:
                found = self._disk.names(folder)
            if path and paths.CONTEXT in found:
                yield path
            for name in sorted(found):
                below = f"{path}/{name}".removeprefix("/")
                if is_name(below) or (not is_name(path) and is_name(name)):
                    yield from self.here(below)

    def stale(self, above: str = "") -> Iterator[str]:
        """Yield the names of copies on this disk whose sessions have another name, or are gone.

        Args:
            above: only names below this one.
        """
        there = [path for path in self.here(above) if path != above]
        for start in range(0, len(there), limits.READ_TOGETHER_MAX):
            # Without a mark they are no copies.
            marks = dict(self._marks(there[start : start + limits.READ_TOGETHER_MAX]))
            names = self._journal.last_of([subject_of_name(path) for path in marks])
            for (path, mark), name in zip(marks.items(), names, strict=True):
                if not isinstance(name, ForeignMessage) and self._is_stale(mark, name):
                    yield path

    def _marks(self, there: Iterable[str]) -> Iterator[tuple[str, Mark]]:
        for path in there:
            with suppress(OSError):
                mark = self.mark(path)
                if mark is not None:
                    yield path, mark

    def _is_stale(self, mark: Mark, name: Message | None) -> bool:
        there = _leads_to(name)
        with suppress(OSError):
            found = self._identity(mark)
            if found is not None:
                return found != there
            # Its files are from the stream of before, and joined by another host.
            return there is None and not self._is_newer(mark, name)
        return False

    def alone(self, path: str) -> threading.Lock:
        """One opening of a folder at a time: two threads must not mirror one folder."""
        with self._lock:
            return self._locks.setdefault(path, threading.Lock())

    def marking(self, path: str) -> threading.Lock:
        """Held while the mark at a path is looked at and saved."""
        # No name begins like this.
        return self.alone(f"/{path}")

    def make_room(self, path: str, name: Message | None) -> Unjoined | None:
        """Put away what is at a name and is not its session; `alone` with the name.

        Args:
            path: the name.
            name: its last message.

        Returns:
            What the folder has, if the journal never had it.
        """
        unjoined = self._put_away(path, name)
        if unjoined is None and _leads_to(name) is None and not self._is_used_below(path):
            self._put_away_all(self.stale(path))
        if name is not None and name.kind is Kind.NAME and name.label.other:
            with self.free(name.label.other) as is_free:
                if is_free:
                    self._move(name.label.other, path, name.label.identity)
        return unjoined

    def unjoined(self, path: str) -> Unjoined | None:
        """What is at a name that the journal does not have, if it never had that; changes nothing.

        Raises:
            OSError: the disk failed, or there is no such folder.
        """
        with self.opened(path) as folder:
            files = session_files(self._disk, folder)
            mark = read_mark(self._disk, folder, self._host)
            if not files or self._identity(mark) is not None:
                return None
            is_refused = self._is_refused(folder, files, mark)
        return None if is_refused or not self._is_newer(mark, None) else Unjoined(files, mark)

    def _put_away(self, path: str, name: Message | None) -> Unjoined | None:
        there = _leads_to(name)
        try:
            with self.opened(path) as folder:
                files = session_files(self._disk, folder)
                if not files:
                    return None
                mark = read_mark(self._disk, folder, self._host)
                found = self._identity(mark)
                if there is not None and found in {None, there}:
                    return None
                is_refused = self._is_refused(folder, files, mark)
                if not is_refused and found is None and self._is_newer(mark, name):
                    return Unjoined(files, mark)
                # A stream that was made again says of every session that it is gone.
                self._journal.confirm()
                if is_refused:
                    take_out(self._disk, folder)
                elif found is None or (name is None and self._journal.last(found) is None):
                    found = self._compared(path, folder, mark, name)
        except FileNotFoundError:
            return None
        if found is not None and not self._has_gone(path, name, found):
            with self.opened(path) as folder:
                take_out(self._disk, folder)
        self.remove_empty(path)
        self._remove_empty_above(path)
        return None

    def _compared(
        self, path: str, folder: int, mark: Mark | None, name: Message | None
    ) -> str | None:
        """Compare files with the session that had their name last, and is elsewhere now.

        Returns:
            That session if the files are of it; None if they were put away.
        """
        of_mark = "" if mark is None else mark.identity
        identity = of_mark if name is None else name.label.identity
        if not identity or self._journal.last(identity) is None:
            # It was removed for good, and must not come back as a new one.
            put_aside(self._disk, folder)
        elif self._compare(path, identity):
            # Those below are compared, too, before they would go along.
            if not self._is_used_below(path):
                self._put_away_all(self.stale(path))
            return identity
        elif not self._has_gone(path, name, identity, is_newer=True):
            # The place where the session is now has files here, too.
            if self._keep(path):
                take_out(self._disk, folder)
            else:
                put_aside(self._disk, folder)
        return None

    def _is_refused(self, folder: int, names: Iterable[str], mark: Mark | None) -> bool:
        """Whether files are those of a creation that was refused because its stream was lost."""
        if mark is None or mark.sequence or mark.stream == self._journal.stream():
            return False
        files = [self._disk.stat_name(folder, name) for name in names]
        return not any(file is not None and file.size for file in files)

    def outlives(self, path: str, gone: Message) -> bool:
        """Whether this disk has a session that an old copy of the stream says to be gone."""
        if gone.sequence < self._journal.began():
            with suppress(OSError):
                mark = self.mark(path)
                return self._identity(mark) is None and self._is_newer(mark, gone)
        return False

    def _is_newer(self, mark: Mark | None, name: Message | None) -> bool:
        """Whether files are newer than what the stream, which does not know them, has of a name."""
        if name is None:
            return mark is None or not mark.is_left or not self._has_joined(mark.identity)
        # An old copy of the stream says that a session is gone which was restored since.
        is_old = name.sequence < self._journal.began()
        return is_old and mark is not None and mark.sequence > name.sequence

    def _has_joined(self, identity: str) -> bool:
        """Whether a host brought a session into this stream, if under another name."""
        last = self._journal.last(identity) if identity else None
        began = self._journal.began()
        if last is None or last.sequence <= began:
            return False
        if last.kind in {Kind.OWN, Kind.CHANGE}:
            return True
        # The parts of a session that another host is bringing in come before its name.
        since = self._journal.read(identity, began, last.sequence)
        return any(each.kind is Kind.CHANGE for each in since)

    def _put_away_all(self, paths: Iterable[str]) -> None:
        """Put away what is at several names, unless another thread opens it."""
        for each in list(paths):
            with self.free(each) as is_free:
                if is_free:
                    self._put_away(each, self._journal.last(subject_of_name(each)))

    def _identity(self, mark: Mark | None) -> str | None:
        """The session whose files a folder has, as far as its mark says."""
        if mark is None or mark.stream != self._journal.stream():
            return None
        # A new session that was never published is unknown to the journal.
        is_begun = mark.sequence or self._journal.last(mark.identity) is not None
        return mark.identity if is_begun else None

    def _has_gone(
        self, path: str, name: Message | None, identity: str, *, is_newer: bool = False
    ) -> bool:
        """Move a copy to where its session went from here; False if it is to be removed."""
        goal = ""
        for each in self._journal.read(subject_of_name(path), 0, name.sequence if name else 0):
            if each.kind is Kind.GONE and each.label.identity == identity:
                goal = each.label.other
        last = self._journal.last(subject_of_name(goal)) if goal else None
        if _leads_to(last) != identity:
            return False
        with self.free(goal) as is_free:
            return is_free and self._move(path, goal, identity, is_newer=is_newer)

    def _move(self, source: str, goal: str, identity: str, *, is_newer: bool = False) -> bool:
        """Move the copy of a session, with those below it, if its new place is free here.

        What is left at the old place is put away when that is used.

        Args:
            source: the old place.
            goal: the new one.
            identity: the session.
            is_newer: the files are known to begin with all that the journal has of the session.
        """
        if self._is_used_below(source):
            return False
        above, _, name = source.rpartition("/")
        new_above, _, new_name = goal.rpartition("/")
        with suppress(OSError):
            if not is_newer and self._identity(self.mark(source)) != identity:
                return False
            self.remove_empty(goal, source)
            with self.opened(above) as parent, self.opened(new_above, create=True) as target:
                with self.moving:
                    # Others began to use what is below meanwhile, or took the place.
                    is_used = self._is_used_below(source)
                    if is_used or self._disk.stat_name(target, new_name) is not None:
                        return False
                    self._disk.move(parent, name, target, new_name)
                self._disk.fsync(target)
                self._disk.fsync(parent)
            with suppress(OSError):
                # Copies that were stale below the old place are stale below the new one.
                self._put_away_all(each for each in self.here(goal) if each != goal)
            self._remove_empty_above(source)
            return True
        return False

    def remove_empty(self, path: str, successor: str = "") -> None:
        """Remove a folder if it has only empty ones; nothing else is touched.

        Args:
            path: of the folder.
            successor: another folder, to which goes what is kept aside in this one.
        """
        above, _, name = path.rpartition("/")
        with suppress(OSError):
            with self.opened(path) as folder:
                remove_lone_mark(self._disk, folder)
                below = self._disk.names(folder)
            for each in below:
                kept = f"{successor}/{each}" if successor else ""
                if kept and each == paths.QUARANTINE:
                    self._move_files(f"{path}/{each}", kept)
                self.remove_empty(f"{path}/{each}", kept)
            with self.opened(above) as folder:
                self._disk.remove_folder(folder, name)

    def _move_files(self, path: str, goal: str) -> None:
        with self.opened(path) as folder, self.opened(goal, create=True) as target:
            for name in self._disk.names(folder):
                free = name
                while self._disk.stat_name(target, free) is not None:
                    # The number of a removed file may have come again.
                    free += ".other"
                self._disk.link(folder, name, free, into=target)
                self._disk.fsync(target)
                self._disk.unlink(folder, name)

    def _remove_empty_above(self, path: str) -> None:
        """Remove the folders above a name that lead to no session and are empty."""
        above = path.rpartition("/")[0]
        if above and above != paths.TRASH:
            parent, _, name = above.rpartition("/")
            with suppress(OSError):
                with self.opened(parent) as folder:
                    self._disk.remove_folder(folder, name)
                self._remove_empty_above(above)

    @contextmanager
    def free(self, path: str) -> Generator[bool]:
        """Be alone with a second folder, or not: two threads could wait for each other."""
        lock = self.alone(path)
        is_free = lock.acquire(blocking=False)
        try:
            yield is_free
        finally:
            if is_free:
                lock.release()


_KEPT: Final = re.compile(r"(.+)-kept-[1-9][0-9]*")


def kept_from(path: str) -> str | None:
    """Return the name beside whose session files were kept; None for another session's name."""
    match = _KEPT.fullmatch(path)
    return None if match is None else match[1]


def _leads_to(name: Message | None) -> str | None:
    """The session that a name leads to, by its last message."""
    return None if name is None or name.kind is Kind.GONE else name.label.identity
