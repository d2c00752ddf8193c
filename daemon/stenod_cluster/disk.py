"""The replicated disk: a sync returns when a majority of the journal's servers has the bytes.

It is the daemon's disk below everything else, so that writers, rewrites, recovery, forks and
deletions need not know of the journal. Writes go to this machine's files at once; a sync publishes
what was done to the folder, and leaves the file itself to the kernel: after a power cut the files
are made again from the journal. A session's folder is one that lies in the session tree; everything
else, such as mounts and the trash, is this machine's alone.
"""

from collections.abc import Generator, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from errno import EEXIST

from steno_protocol import paths
from steno_protocol.errors import Held, StenoError
from stenod.store.disk import Disk, FileStat
from stenod_cluster.journal_moves import JournalMoves
from stenod_cluster.mirror import is_replicated, session_files
from stenod_cluster.owned_folder import OwnedFolder, raise_first, ship, ship_all, ship_on_loop
from stenod_cluster.ownership import Ownership


class ReplicatedDisk:
    """A `Disk` whose session tree is replicated.

    Args:
        disk: the disk of this machine.
        tree: the path of the session tree.
        ownership: the folders that this daemon owns.

    Attributes:
        moves: the moves of folders that ended with a process.
    """

    syncs_share_fate = False
    has_rivals = True
    is_read_only = False

    def __init__(self, disk: Disk, tree: str, ownership: Ownership) -> None:
        self._disk = disk
        self._tree = tree
        self._ownership = ownership
        self.moves = JournalMoves(ownership)
        # The path of each open folder of the tree, and the folder of each file open for writing.
        self._folders: dict[int, str] = {}
        self._files: dict[int, OwnedFolder] = {}

    # --- opening ---------------------------------------------------------------------------------

    def open_root(self, path: str, *, create: bool = False) -> int:
        """Open a folder by its path."""
        handle = self._disk.open_root(path, create=create)
        if path == self._tree:
            self._folders[handle] = ""
        return handle

    def open_folder(self, parent: int, name: str, *, create: bool = False) -> int:
        """Open a folder in an open folder."""
        handle = self._disk.open_folder(parent, name, create=create)
        path = self._below(parent, name)
        if path is not None:
            self._folders[handle] = path
        return handle

    def open_read(self, folder: int, name: str) -> int:
        """Open a file for reading."""
        return self._disk.open_read(folder, name)

    def open_append(self, folder: int, name: str, *, create: bool = False) -> int:
        """Open a file for reading and appending."""
        owned = self._changing(folder, name)
        if owned is None:
            return self._disk.open_append(folder, name, create=create)
        with owned.lock:
            return self._noted(owned, name, self._disk.open_append(folder, name, create=create))

    def open_new(self, folder: int, name: str) -> int:
        """Create a file for appending."""
        owned = self._changing(folder, name)
        if owned is None:
            return self._disk.open_new(folder, name)
        with owned.lock:
            handle = self._disk.open_new(folder, name)
            # The inode of a removed file may come again.
            owned.inodes.pop(self._disk.stat(handle).inode, None)
            return self._noted(owned, name, handle)

    def _noted(self, owned: OwnedFolder, name: str, handle: int) -> int:
        owned.note_file(name, self._disk.stat(handle))
        owned.handles.add(handle)
        self._files[handle] = owned
        return handle

    def close(self, handle: int) -> None:
        """Close a handle."""
        self._folders.pop(handle, None)
        owned = self._files.pop(handle, None)
        if owned is not None:
            owned.handles.discard(handle)
        self._disk.close(handle)

    # --- reading ---------------------------------------------------------------------------------

    def stat(self, handle: int) -> FileStat:
        """Returns the metadata of an open file or folder."""
        return self._disk.stat(handle)

    def stat_name(self, folder: int, name: str) -> FileStat | None:
        """Returns the metadata of a name."""
        return self._disk.stat_name(folder, name)

    def has(self, folder: int, name: str, inode: int, size: int) -> bool:
        """Returns whether a name leads to the file with this inode and size."""
        return self._disk.has(folder, name, inode, size)

    def names(self, folder: int) -> list[str]:
        """Returns the names in a folder."""
        return self._disk.names(folder)

    def read(self, handle: int, size: int, offset: int) -> bytes:
        """Returns bytes of a file."""
        return self._disk.read(handle, size, offset)

    def lock(self, handle: int) -> bool:
        """Take the lock of an open file or folder on this machine."""
        return self._disk.lock(handle)

    # --- changing --------------------------------------------------------------------------------

    def write(self, handle: int, data: bytes) -> int:
        """Append to the file."""
        return self._disk.write(handle, data)

    def truncate(self, handle: int, size: int) -> None:
        """Cut the file to `size` bytes."""
        owned = self._files.get(handle)
        if owned is None:
            self._disk.truncate(handle, size)
            return
        with owned.lock:
            owned.note_cut(self._disk, handle, size)
            self._disk.truncate(handle, size)

    def mark_size_dirty(self, handle: int) -> None:
        """Make the next sync of the file write its size."""
        self._disk.mark_size_dirty(handle)

    def overwrite(self, handle: int, offset: int, data: bytes) -> None:
        """Overwrite bytes with the same bytes, which the journal has."""
        self._disk.overwrite(handle, offset, data)

    def unmodified(self, handle: int) -> AbstractContextManager[None]:
        """Keep the modification time of a file or folder through a `with` block."""
        return self._disk.unmodified(handle)

    def copy(self, source: int, target: int, offset: int, size: int) -> int:
        """Append a range of one file to another; the journal has a reference if it can."""
        owned = self._files.get(target)
        if owned is None:
            return self._disk.copy(source, target, offset, size)
        with owned.lock:
            owned.note_content(self._disk, target)
            copied = self._disk.copy(source, target, offset, size)
            owned.note_copy(self._disk, self._disk.stat(source), target, offset, copied)
            return copied

    def link(self, folder: int, name: str, new_name: str, *, into: int | None = None) -> None:
        """Give a file a second name."""
        goal = folder if into is None else into
        owned = self._changing(goal, new_name)
        if owned is None:
            self._disk.link(folder, name, new_name, into=into)
            return
        with owned.lock:
            self._disk.link(folder, name, new_name, into=into)
            owned.note_name(self._disk, goal, new_name)

    def rename(self, folder: int, name: str, new_name: str) -> None:
        """Rename a file within a folder."""
        owned = self._changing(folder, name) or self._changing(folder, new_name)
        if owned is None:
            self._disk.rename(folder, name, new_name)
            return
        with owned.lock:
            self._disk.rename(folder, name, new_name)
            for each in (new_name, name):
                if is_replicated(each):
                    owned.note_name(self._disk, folder, each)

    def unlink(self, folder: int, name: str) -> None:
        """Remove a name of a file."""
        owned = self._changing(folder, name)
        if owned is None:
            self._disk.unlink(folder, name)
            return
        with owned.lock:
            self._disk.unlink(folder, name)
            owned.note_unlink(name)

    def remove_folder(self, folder: int, name: str) -> None:
        """Remove an empty folder."""
        self._disk.remove_folder(folder, name)

    # --- syncing ---------------------------------------------------------------------------------

    def fdatasync(self, handle: int) -> None:
        """Publish what was done to a file and its folder; durable on a majority on return."""
        owned = self._files.get(handle)
        if owned is None:
            self._disk.fdatasync(handle)
            return
        raise_first(list(self._sync({handle: owned}).values()))

    def fdatasync_all(self, handles: Sequence[int]) -> list[OSError | None]:
        """Publish what was done to several files, side by side; each has a verdict of its own."""
        files = self._replicated(handles)
        local = [handle for handle in handles if handle not in files]
        verdicts: dict[int, OSError | None] = {}
        if local:
            verdicts.update(zip(local, self._disk.fdatasync_all(local), strict=True))
        if files:
            verdicts.update(self._sync(files))
        return [verdicts[handle] for handle in handles]

    async def sync_on_loop(self, handles: Sequence[int]) -> list[OSError | None] | None:
        """Publish what was done to several files; None if a thread has more to do, or is at it."""
        files = self._replicated(handles)
        folders = _distinct(files.values())
        if len(files) < len(handles) or any(folder.is_mark_due for folder in folders):
            return None
        with ExitStack() as stack:
            for folder in folders:
                if not folder.publishing.acquire(blocking=False):
                    return None
                stack.callback(folder.publishing.release)
            unread = self._note_contents(files)
            outcomes = await ship_on_loop(self._ownership.journal, folders)
            verdicts = self._verdicts(files, unread, folders, outcomes)
        return [verdicts[handle] for handle in handles]

    def fsync(self, handle: int) -> None:
        """Publish what was done to a file or folder; durable on a majority on return."""
        path = self._folders.get(handle)
        if path is None:
            self.fdatasync(handle) if handle in self._files else self._disk.fsync(handle)
            return
        # A folder that was lost since has to fail here: what was done to it is in no journal.
        owned = self._ownership.known(path)
        if owned is None:
            self._disk.fsync(handle)
            return
        with owned.publishing:
            outcomes = ship(self._ownership.journal, [owned])
            self._ownership.note_outcome(owned, outcomes[0])
            self._save_due_mark(owned)
        raise_first(outcomes)

    def confirm(self, handle: int) -> None:
        """Publish a message behind the last one; the journal refuses it to a stale owner."""
        owned = self._files.get(handle)
        if owned is None:
            return
        with owned.publishing:
            (outcome,) = ship_all(self._ownership.journal, [owned.confirming()])
            self._ownership.note_outcome(owned, outcome)
        raise_first([outcome])

    def _replicated(self, handles: Iterable[int]) -> dict[int, OwnedFolder]:
        """The folder of each file that is one of the session tree."""
        return {handle: self._files[handle] for handle in handles if handle in self._files}

    def _sync(self, files: Mapping[int, OwnedFolder]) -> dict[int, OSError | None]:
        """Publish files and their folders; returns the error of each file."""
        folders = _distinct(files.values())
        with ExitStack() as stack:
            for folder in folders:
                stack.enter_context(folder.publishing)
            unread = self._note_contents(files)
            outcomes = ship(self._ownership.journal, folders)
            verdicts = self._verdicts(files, unread, folders, outcomes)
            for folder in folders:
                self._save_due_mark(folder)
        return verdicts

    def _note_contents(self, files: Mapping[int, OwnedFolder]) -> dict[int, OSError]:
        """Note what was written to files; returns the errors of those that cannot be read."""
        unread: dict[int, OSError] = {}
        for handle, folder in files.items():
            try:
                with folder.lock:
                    folder.note_content(self._disk, handle)
            except OSError as error:
                unread[handle] = error
        return unread

    def _verdicts(
        self,
        files: Mapping[int, OwnedFolder],
        unread: Mapping[int, OSError],
        folders: Sequence[OwnedFolder],
        outcomes: Sequence[OSError | None],
    ) -> dict[int, OSError | None]:
        """Note the outcome of each folder; returns the error of each file."""
        errors = dict(zip(folders, outcomes, strict=True))
        for folder, error in errors.items():
            self._ownership.note_outcome(folder, error)
        return {handle: unread.get(handle) or errors[folder] for handle, folder in files.items()}

    def _save_due_mark(self, folder: OwnedFolder) -> None:
        if folder.is_mark_due:
            with suppress(OSError):
                self._ownership.save_mark(folder)

    # --- folders as a whole ----------------------------------------------------------------------

    def move(self, folder: int, name: str, target: int, new_name: str, key: str = "") -> None:
        """Move a folder with its sessions; the journal has them at one place after the other.

        This daemon owns all of them, at both places, before it publishes anything. What it
        publishes has the key, so that another daemon can answer a repeat of the command.

        Raises:
            BadRequest: a living daemon owns a session below the moved one; nothing was moved.
            OSError: the new place is taken, or the journal or the disk failed; the journal has the
                sessions at their old place, unless it failed to answer.
        """
        source, goal = self._below(folder, name), self._below(target, new_name)
        if source is None and goal is None:
            self._disk.move(folder, name, target, new_name)
            return
        moved = self._disk.open_folder(folder, name)
        try:
            if source is not None:
                here = [f"{source}{below}" for below in self._sessions(moved, "")]
                self._ownership.acquire_all(source, here)
            sessions = list(self._sessions(moved, ""))
            come = {} if goal is None else self._begin(goal, sessions)
            try:
                self._come(moved, come, key)
                if source is not None:
                    self._leave(source, sessions, key, goal or f"{paths.TRASH}/{new_name}")
                # Sessions that were opened here, and taken back since, may have left some.
                self._remove_empty(target, new_name)
                self._disk.move(folder, name, target, new_name)
            except (OSError, StenoError):
                if self._is_at(folder, name, moved):
                    self._undo(come.values(), source, sessions)
                raise
        finally:
            self._disk.close(moved)
        for each in come.values():
            self._ownership.save_mark(each)
        if source is not None and goal is None and key:
            with suppress(OSError):
                # Another daemon may have begun it, and died.
                self.moves.confirm_deletion(source, key)

    def settle_move(self, source: str, goal: str, key: str) -> bool:
        """Settle a move that ended with its process while the folder is still at its old place.

        If the journal has the folder at its new place alone, it is moved there; else what the
        journal has at the new place is taken back, unless the folder has left its old place, where
        there may be a new one since. Nothing of the folder may be open.

        Args:
            source: the path of the folder in the tree, which may be one in the trash.
            goal: the session that it was to be.
            key: of the command.

        Returns:
            Whether the folder is at its new place now.
        """
        if self.moves.finish(source, goal, lambda: self._move_here(source, goal)):
            return True
        # Another daemon may have finished a repeat of the command.
        if self.moves.has_left(source) or self.moves.left_by(source, key) is not None:
            return False
        with self._ownership.opened(source) as moved:
            sessions = list(self._sessions(moved, ""))
        for below in sessions:
            self.moves.take_back(f"{source}{below}", f"{goal}{below}")
        return False

    def _move_here(self, source: str, goal: str) -> None:
        above, _, name = source.rpartition("/")
        new_above, _, new_name = goal.rpartition("/")
        with (
            self._ownership.opened(above) as folder,
            self._ownership.opened(new_above, create=True) as target,
        ):
            self._disk.move(folder, name, target, new_name)
            self._disk.fsync(target)
            self._disk.fsync(folder)

    def _begin(self, goal: str, sessions: Sequence[str]) -> dict[str, OwnedFolder]:
        """Own the new places of sessions; returns them by the rest of their path.

        Raises:
            OSError: one of them is taken.
        """
        come: dict[str, OwnedFolder] = {}
        for below in sessions:
            path = f"{goal}{below}"
            try:
                owned = come[below] = self._ownership.writable(path)
            except Held as error:
                raise FileExistsError(EEXIST, error.message, path) from None
            if owned.manifest.names:
                raise FileExistsError(EEXIST, "the journal has a session there", path)
        return come

    def _come(self, moved: int, come: Mapping[str, OwnedFolder], key: str) -> None:
        """Publish sessions at their new place, whole."""
        for below, owned in come.items():
            with owned.publishing, self._opened(moved, below) as handle:
                owned.note_names(self._disk, handle, session_files(self._disk, handle))
                owned.move = key
                raise_first(ship(self._ownership.journal, [owned]))
                owned.move = ""

    def _leave(self, source: str, sessions: Sequence[str], key: str, to: str) -> None:
        """Publish that sessions are gone from their place, those below before those above.

        Args:
            source: the path of the first of them.
            sessions: the rest of the path of each.
            key: of the command that moves them.
            to: the path in the tree that the first of them moves to.
        """
        for below in reversed(sessions):
            owned = self._ownership.writable(f"{source}{below}")
            owned.move = key
            self._publish_gone(owned, f"{to}{below}".encode(errors="surrogateescape"))

    def _remove_empty(self, folder: int, name: str) -> None:
        """Remove a folder in an open folder if it has only empty ones; nothing else is touched."""
        with suppress(OSError):
            handle = self._disk.open_folder(folder, name)
            try:
                for each in self._disk.names(handle):
                    self._remove_empty(handle, each)
            finally:
                self._disk.close(handle)
            self._disk.remove_folder(folder, name)

    def _publish_gone(self, owned: OwnedFolder, body: bytes = b"") -> None:
        try:
            with owned.publishing:
                raise_first(ship_all(self._ownership.journal, [owned.gone(body)]))
            with suppress(OSError):
                # What is left is found with the next snapshot of the folder.
                self._ownership.journal.purge(owned.path, owned.sequence)
        finally:
            # After a failure only the journal knows whether the folder is gone.
            self._ownership.forget(owned.path)

    def _undo(
        self, come: Iterable[OwnedFolder], source: str | None, sessions: Sequence[str]
    ) -> None:
        """Give the journal what it had before a move that failed, as far as it answers."""
        for owned in come:
            if owned.is_new and owned.is_published:
                self._ownership.forget(owned.path)
                continue
            with suppress(OSError):
                self._publish_gone(owned)
        for below in sessions if source is not None else ():
            # One that is gone from the journal comes back with its files.
            with suppress(OSError, StenoError):
                left = self._ownership.acquire(f"{source}{below}")
                if left is not None:
                    self._ownership.save_mark(left)

    def _is_at(self, folder: int, name: str, moved: int) -> bool:
        """Whether a name still leads to an open folder; False if nobody knows."""
        with suppress(OSError):
            found = self._disk.stat_name(folder, name)
            return found is not None and found.inode == self._disk.stat(moved).inode
        return False

    def _sessions(self, folder: int, path: str) -> Iterable[str]:
        """Yield the sessions in and below an open folder, as the rest of their path."""
        if self._disk.stat_name(folder, paths.CONTEXT) is not None:
            yield path
        for name in self._disk.names(folder):
            if _is_session_name(name):
                with (
                    suppress(NotADirectoryError, FileNotFoundError),
                    self._opened(folder, f"/{name}") as below,
                ):
                    yield from self._sessions(below, f"{path}/{name}")

    # --- inside ----------------------------------------------------------------------------------

    def _changing(self, folder: int, name: str) -> OwnedFolder | None:
        """The folder of a replicated file that is about to change; None for any other file."""
        path = self._folders.get(folder)
        return self._ownership.writable(path) if path and is_replicated(name) else None

    def _below(self, parent: int, name: str) -> str | None:
        """The path of a folder in an open folder; None if it is not one of the session tree."""
        path = self._folders.get(parent)
        if path is None or not _is_session_name(name):
            return None
        return f"{path}/{name}" if path else name

    @contextmanager
    def _opened(self, folder: int, below: str) -> Generator[int]:
        """Open a folder below an open one until the block ends."""
        handle = folder
        try:
            for name in below.split("/")[1:]:
                parent, handle = handle, self._disk.open_folder(handle, name)
                if parent != folder:
                    self._disk.close(parent)
            yield handle
        finally:
            if handle != folder:
                self._disk.close(handle)


def _distinct(folders: Iterable[OwnedFolder]) -> list[OwnedFolder]:
    """The folders in the order in which everybody takes their locks."""
    return sorted(set(folders), key=lambda each: each.path)


def _is_session_name(name: str) -> bool:
    return not name.startswith(".") and name != paths.QUARANTINE
