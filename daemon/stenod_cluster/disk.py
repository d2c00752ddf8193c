"""The replicated disk: a sync returns when a majority of the journal's servers has the bytes.

It is the daemon's disk below everything else, so that writers, rewrites, recovery, forks and
deletions need not know of the journal. Writes go to this machine's files at once; a sync publishes
what was done to the folder, and leaves the file itself to the kernel: after a power cut the files
are made again from the journal. A session's folder is one that lies in the session tree; everything
else, such as mounts and the trash, is this machine's alone.
"""

from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, suppress
from errno import EEXIST, EIO

from steno_protocol import paths
from stenod.sessions import metadata
from stenod.store.disk import Disk, FileStat
from stenod_cluster.forks import Base, base_at_head, note_fork
from stenod_cluster.mirror import is_name, is_replicated, remove_lone_mark, session_files
from stenod_cluster.names import Going, Names
from stenod_cluster.owned_folder import OwnedFolder, raise_first, ship, ship_all, ship_on_loop
from stenod_cluster.ownership import Ownership, is_in_trash


class ReplicatedDisk:
    """A `Disk` whose session tree is replicated.

    Args:
        disk: the disk of this machine.
        tree: the path of the session tree.
        ownership: the folders that this daemon owns.

    Attributes:
        name_changes: changes the names of sessions.
    """

    syncs_share_fate = False
    has_rivals = True
    is_read_only = False

    def __init__(self, disk: Disk, tree: str, ownership: Ownership) -> None:
        self._disk = disk
        self._tree = tree
        self._ownership = ownership
        self.name_changes = Names(ownership)
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

    def open_scratch(self, blocks: Iterable[bytes]) -> int:
        """Open a file without a name."""
        return self._disk.open_scratch(blocks)

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

    def copy_time(self, source: int, target: int) -> None:
        """Give a file the modification time of another."""
        self._disk.copy_time(source, target)

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
        """Remove an empty folder; that of a deleted session was the last of it in the cluster."""
        path = self._below(folder, name) or ""
        if is_in_trash(path) and path.count("/") == 1:
            # First, because the next sweep tries again only for a folder that is there.
            self.name_changes.end_deleted(path)
        if path:
            with suppress(OSError), self._ownership.copies.opened(path) as emptied:
                remove_lone_mark(self._disk, emptied)
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
        """Move a folder with its sessions; their names change in the journal first, all at once.

        This daemon owns all of them before. If the disk fails then, the folder follows later.

        Raises:
            BadRequest: a living daemon owns a session below the moved one; nothing was moved.
            Held: another daemon took a session over; nothing was moved.
            OSError: the new place is taken, or the journal or the disk failed.
        """
        source, goal = self._below(folder, name), self._below(target, new_name)
        if source is None or goal is None or not is_name(goal):
            self._disk.move(folder, name, target, new_name)
            return
        # Sessions that were opened here, and moved away since, may have left some.
        self._ownership.copies.remove_empty(goal, source)
        if self._disk.stat_name(target, new_name) is not None:
            raise FileExistsError(EEXIST, "something else is there", new_name)
        here = list(self._ownership.copies.here(source))
        with ExitStack() as held:
            if is_name(source):
                found = [Going(each, "") for each in self._ownership.acquire_all(source, here)]
            else:
                found = [self._brought(path, held) for path in here]
            folders = [each.folder for each in found]
            going = [
                each._replace(goal=goal + each.folder.path.removeprefix(source)) for each in found
            ]
            # An opening that found nothing at a name would put away what comes there meanwhile.
            for new in sorted(each.goal for each in going):
                held.enter_context(self._ownership.alone(new))
            self.name_changes.move(going, key)
            try:
                self._disk.move(folder, name, target, new_name)
            except OSError as error:
                self._ownership.forget(goal)
                raise OSError(
                    EIO, f"the cluster has the session at {goal!r}, but this disk failed: {error}"
                ) from error
        for each in folders:
            self._ownership.save_mark(each)
        if is_in_trash(goal):
            # Any daemon may restore it.
            self._ownership.forget(goal)
        if is_name(source):
            self._ownership.hosts.tell_moved(source)

    def _brought(self, path: str, held: ExitStack) -> Going:
        """Publish the session of a folder that the journal does not have, without a name.

        Nobody else publishes the source of a fork until `held` ends.
        """
        owned, journal = self._ownership.begin(path), self._ownership.journal
        with owned.publishing, self._ownership.opened(path) as handle:
            base = self._based(owned, handle, held)
            if base is None:
                owned.note_names(self._disk, handle, session_files(self._disk, handle))
            else:
                fork = owned.forking(base.source.identity, base.position)
                raise_first(ship_all(journal, [fork]))
            raise_first(ship_all(journal, [owned.shipping(is_named=False)]))
        # A death behind the move leaves no folder that the journal seems never to have had.
        self._ownership.save_mark(owned)
        return Going(owned, "", base)

    def _based(self, fork: OwnedFolder, folder: int, held: ExitStack) -> Base | None:
        """Note what a fork has beside its source; None if it is none, or shares nothing."""
        if not fork.path.startswith(f"{paths.FORKS}/"):
            return None
        source = self._ownership.found(metadata.read(self._disk, folder).forked_from or "")
        if source is None or source.is_new:
            return None
        with ExitStack() as alone:
            alone.enter_context(source.publishing)
            base = base_at_head(self._ownership.journal, source)
            # A folder that is renamed follows the name.
            with suppress(FileNotFoundError), self._ownership.opened(source.path) as origin:
                if note_fork(self._disk, fork, folder, base, origin):
                    held.push(alone.pop_all())
                    return base
        return None

    # --- inside ----------------------------------------------------------------------------------

    def _changing(self, folder: int, name: str) -> OwnedFolder | None:
        """The folder of a replicated file that is about to change; None for any other file."""
        path = self._folders.get(folder)
        if not path or path.startswith(".") or not is_name(path) or not is_replicated(name):
            return None
        return self._ownership.acquire(path, create=True)

    def _below(self, parent: int, name: str) -> str | None:
        """The path in the session tree of a folder in an open folder; None if it has none."""
        path = self._folders.get(parent)
        return None if path is None else f"{path}/{name}".removeprefix("/")


def _distinct(folders: Iterable[OwnedFolder]) -> list[OwnedFolder]:
    """The folders in the order in which everybody takes their locks."""
    return sorted(set(folders), key=lambda each: each.path)
