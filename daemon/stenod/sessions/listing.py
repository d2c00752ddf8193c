"""The list of sessions: a walk through all session trees.

Everything here blocks and changes nothing.
"""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import msgspec

from steno_protocol import limits, paths
from steno_protocol.commands import List
from steno_protocol.errors import BadRequest
from steno_protocol.replies import SessionEntry, Sessions
from steno_protocol.work_dirs import KIMI_FILE, WorkDir, decode_work_dirs
from stenod.sessions import metadata
from stenod.sessions.cluster_member import Elsewhere
from stenod.store.disk import Disk, FileStat
from stenod.store.handles import closing
from stenod.store.names import generations_among, read_file


class Tree(NamedTuple):
    """A session tree.

    Attributes:
        prefix: the beginning of its sessions' ids, empty or `mount:`.
        folder: its folder.
        beside: the folder beside it that may have a `kimi.json`.
    """

    prefix: str
    folder: Path
    beside: Path | None


def list_sessions(disk: Disk, trees: Sequence[Tree], wanted: List) -> Sessions:
    """List the sessions of all trees in order of their ids, up to the limit."""
    walk = _Walk(disk, wanted)
    for tree in trees:
        walk.look_at(tree)
    walk.found.sort(key=lambda entry: entry.session)
    walk.flat.sort(key=lambda entry: entry.session)
    more = len(walk.found) > wanted.limit
    shown = walk.found[: wanted.limit]
    lost, flat = sorted(walk.lost), walk.flat
    if more:
        # Sessions after the last one belong to the next page.
        lost = [session for session in lost if session <= shown[-1].session]
        flat = [entry for entry in flat if entry.session <= shown[-1].session]
    return Sessions(
        sessions=shown,
        more=more,
        without_context=tuple(lost[: wanted.limit]),
        flat=tuple(flat[: wanted.limit]),
    )


def with_others(found: Sessions, others: Sequence[Elsewhere], wanted: List) -> Sessions:
    """Add the sessions that other daemons of the cluster own to a list, and drop removed ones.

    What is not on this disk shows no title, labels or size, so a list by those has it not.
    """
    here = {entry.session: entry for entry in found.sessions}
    last = max(here) if found.more else None
    for other in others:
        if last is not None and other.session > last:
            # Sessions after the last one belong to the next page.
            break
        entry = here.pop(other.session, None)
        if other.endpoint is None or (entry is None and not metadata.NOTHING.fits(wanted)):
            continue
        if entry is None:
            entry = SessionEntry(session=other.session, bytes=0, modified_at=0.0, generations=0)
        here[other.session] = msgspec.structs.replace(
            entry,
            modified_at=max(entry.modified_at, other.changed_at),
            owner=None if other.is_own else other.endpoint,
        )
    entries = sorted(here.values(), key=lambda entry: entry.session)
    more = found.more or len(entries) > wanted.limit
    return msgspec.structs.replace(found, sessions=entries[: wanted.limit], more=more)


def flat_stat(disk: Disk, folder: int, file: str) -> FileStat | None:
    """Return the stat of a regular file; None for a link, a folder or any other."""
    try:
        handle = disk.open_read(folder, file)
    except OSError:
        return None
    with closing(disk, handle):
        return disk.stat(handle)


def _work_dirs(disk: Disk, folder: int) -> dict[str, WorkDir]:
    """Read the work directories of a folder's `kimi.json`, by the folders of their sessions.

    A missing, damaged or too large file counts as empty: it is another program's, and the list of
    sessions is complete without it.
    """
    with suppress(OSError):
        return decode_work_dirs(read_file(disk, folder, KIMI_FILE, limits.STATE_BYTES_MAX))
    return {}


class _Above(msgspec.Struct, frozen=True):
    """Facts about a folder from the folders above it.

    Attributes:
        named: the work directories that are known so far, by the folders of their sessions.
        here: the work directory whose sessions lie in the folder.
        parent: the work directory whose sessions lie in the parent folder.
        in_session: the folder lies in a session's folder.
    """

    named: Mapping[str, WorkDir]
    here: WorkDir | None = None
    parent: WorkDir | None = None
    in_session: bool = False

    def below(self, name: str) -> "_Above":
        """Return the facts about a folder in it."""
        here = None if self.in_session else self.named.get(name)
        return _Above(self.named, here, self.here, self.in_session)


class _Walk:
    """One walk through session trees.

    Attributes:
        found: the sessions.
        flat: those that are one file, in kimi-cli's old format.
        lost: the ids of those with past generations and no present one.
    """

    def __init__(self, disk: Disk, wanted: List) -> None:
        self.found: list[SessionEntry] = []
        self.flat: list[SessionEntry] = []
        self.lost: list[str] = []
        self._disk = disk
        self._wanted = wanted

    def look_at(self, tree: Tree) -> None:
        """Walk through a tree; one that does not exist or is not readable has no sessions."""
        try:
            folder = self._disk.open_root(str(tree.folder))
        except OSError:
            return
        with closing(self._disk, folder):
            named = dict[str, WorkDir]()
            if tree.beside is not None:
                with (
                    suppress(OSError),
                    closing(self._disk, self._disk.open_root(str(tree.beside))) as beside,
                ):
                    named = _work_dirs(self._disk, beside)
            self._look_in(folder, tree.prefix, limits.SESSION_TREE_DEPTH_MAX, _Above(named))

    def _look_in(self, folder: int, address: str, depth: int, above: _Above) -> None:
        """Find the sessions in an open folder and below it."""
        names = self._disk.names(folder)
        # A folder inside a session's folder contains uploads or the like, whatever its name.
        in_session = above.in_session or paths.CONTEXT in names
        above = msgspec.structs.replace(above, in_session=in_session)
        if not in_session:
            if KIMI_FILE in names:
                named = {**above.named, **_work_dirs(self._disk, folder)}
                above = msgspec.structs.replace(above, named=named)
            self._find_flat(folder, address, names, above.here)
        if address and not address.endswith(":") and self._is_wanted(address):
            if paths.CONTEXT in names:
                self._find(folder, address, names, above.parent)
            elif any(map(paths.generation_of, names)):
                self.lost.append(address)
        for name in names if depth else []:
            joined = _joined(address, name)
            # Most names are those of a session's files, and an error for each takes long.
            if paths.is_own_file(name) or not _may_be_session(joined):
                continue
            try:
                below = self._disk.open_folder(folder, name)
            except OSError:
                continue
            with closing(self._disk, below):
                self._look_in(below, joined, depth - 1, above.below(name))

    def _find_flat(
        self, folder: int, address: str, names: list[str], work_dir: WorkDir | None
    ) -> None:
        """Find the sessions of a folder that are files in kimi-cli's old format."""
        if not metadata.NOTHING.fits(self._wanted):
            return
        for file in names:
            name = paths.flat_session_of(file)
            session = None if name is None else _joined(address, name)
            if name is None or session is None or not self._is_wanted(session):
                continue
            stat = flat_stat(self._disk, folder, file) if _may_be_session(session) else None
            if stat is None or (name in names and self._has_context(folder, name)):
                continue
            entry = SessionEntry(
                session=session, bytes=stat.size, modified_at=stat.modified_s, generations=0
            )
            self.flat.append(_in_work_dir(entry, work_dir))

    def _has_context(self, parent: int, name: str) -> bool:
        with suppress(OSError), closing(self._disk, self._disk.open_folder(parent, name)) as folder:
            return self._disk.stat_name(folder, paths.CONTEXT) is not None
        return False

    def _is_wanted(self, session: str) -> bool:
        return session.startswith(self._wanted.prefix) and session > self._wanted.after

    def _find(self, folder: int, address: str, names: list[str], work_dir: WorkDir | None) -> None:
        """Find a session if it matches the filters."""
        disk = self._disk
        described = metadata.read(disk, folder) if paths.STATE in names else metadata.NOTHING
        context = disk.stat_name(folder, paths.CONTEXT)
        if context is None or not described.fits(self._wanted):
            return
        streams = (disk.stat_name(folder, name) for name in names if paths.stored_stream_of(name))
        entry = SessionEntry(
            session=address,
            bytes=context.size,
            modified_at=max(stat.modified_s for stat in (context, *streams) if stat is not None),
            generations=len(generations_among(names)),
            title=described.title,
            labels=described.labels,
            archived=described.archived,
            forked_from=described.forked_from,
        )
        self.found.append(_in_work_dir(entry, work_dir))


def _in_work_dir(entry: SessionEntry, work_dir: WorkDir | None) -> SessionEntry:
    """Return an entry with the work directory of its session, if that is known."""
    if work_dir is None:
        return entry
    is_last = work_dir.last_session_id == entry.session.rpartition("/")[2]
    return msgspec.structs.replace(entry, work_dir=work_dir.path, last_in_work_dir=is_last)


def _joined(address: str, name: str) -> str:
    """Return the id of a name in the folder of `address`, which may be a tree or a mount."""
    return f"{address}/{name}" if address and not address.endswith(":") else address + name


def _may_be_session(address: str) -> bool:
    try:
        paths.split_session(address)
    except BadRequest:
        return False
    return True
