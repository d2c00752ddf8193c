"""The list of sessions: a walk through all session trees.

Everything here blocks and changes nothing.
"""

from collections.abc import Iterator, Mapping, Sequence
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


class _Flat(msgspec.Struct, frozen=True):
    """A session that is one file, in kimi-cli's old format."""

    entry: SessionEntry


_Found = SessionEntry | _Flat | str
"""A session; one in the old format; or the id of one with past generations and no present one."""


def list_sessions(disk: Disk, trees: Sequence[Tree], wanted: List) -> Sessions:
    """List the sessions of all trees in order of their ids, up to the limit."""
    found: list[SessionEntry] = []
    lost: list[str] = []
    flat: list[SessionEntry] = []
    for tree in trees:
        for entry in _within(disk, tree, wanted):
            match entry:
                case str():
                    lost.append(entry)
                case _Flat():
                    flat.append(entry.entry)
                case SessionEntry():
                    found.append(entry)
    found.sort(key=lambda entry: entry.session)
    more = len(found) > wanted.limit
    shown = found[: wanted.limit]
    if more:
        # Sessions after the last one belong to the next page.
        lost = [session for session in lost if session <= shown[-1].session]
        flat = [entry for entry in flat if entry.session <= shown[-1].session]
    flat.sort(key=lambda entry: entry.session)
    return Sessions(
        sessions=shown,
        more=more,
        without_context=tuple(sorted(lost)[: wanted.limit]),
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


def _within(disk: Disk, tree: Tree, wanted: List) -> Iterator[_Found]:
    try:
        handle = disk.open_root(str(tree.folder))
    except OSError:
        # A tree that does not exist or is not readable has no sessions to list.
        return
    named = {} if tree.beside is None else _work_dirs_at(disk, str(tree.beside))
    yield from _walk(
        disk, handle, tree.prefix, limits.SESSION_TREE_DEPTH_MAX, wanted, _Above(named)
    )


def _work_dirs_at(disk: Disk, path: str) -> dict[str, WorkDir]:
    try:
        folder = disk.open_root(path)
    except OSError:
        return {}
    with closing(disk, folder):
        return _work_dirs(disk, folder)


def _work_dirs(disk: Disk, folder: int) -> dict[str, WorkDir]:
    """Read the work directories of a folder's `kimi.json`, by the folders of their sessions.

    A missing, damaged or too large file counts as empty: it is another program's, and the list of
    sessions is complete without it.
    """
    try:
        handle = disk.open_read(folder, KIMI_FILE)
    except OSError:
        return {}
    try:
        return decode_work_dirs(disk.read(handle, limits.STATE_BYTES_MAX, 0))
    except OSError:
        return {}
    finally:
        disk.close(handle)


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


def _walk(
    disk: Disk, folder: int, address: str, depth: int, wanted: List, above: _Above
) -> Iterator[_Found]:
    """Yield the sessions in an open folder and below it; close the folder."""
    with closing(disk, folder):
        names = disk.names(folder)
        # A folder inside a session's folder contains uploads or the like, whatever its name.
        in_session = above.in_session or paths.CONTEXT in names
        above = msgspec.structs.replace(above, in_session=in_session)
        if not in_session:
            if KIMI_FILE in names:
                named = {**above.named, **_work_dirs(disk, folder)}
                above = msgspec.structs.replace(above, named=named)
            yield from _flat_within(disk, folder, address, names, wanted, above.here)
        is_asked_for = address.startswith(wanted.prefix) and address > wanted.after
        if is_asked_for and address and not address.endswith(":"):
            if paths.CONTEXT in names:
                entry = _entry(disk, folder, address, names, wanted, above.parent)
                if entry is not None:
                    yield entry
            elif any(map(paths.generation_of, names)):
                yield address
        for name in names if depth else []:
            joined = _joined(address, name)
            # Most names are those of a session's files, and an error for each takes long.
            if not paths.is_own_file(name) and _may_be_session(joined):
                below = above.below(name)
                yield from _walk_below(disk, folder, name, joined, depth - 1, wanted, below)


def _walk_below(
    disk: Disk,
    parent: int,
    name: str,
    address: str,
    depth: int,
    wanted: List,
    above: _Above,
) -> Iterator[_Found]:
    try:
        folder = disk.open_folder(parent, name)
    except OSError:
        return
    yield from _walk(disk, folder, address, depth, wanted, above)


def _flat_within(
    disk: Disk,
    folder: int,
    address: str,
    names: list[str],
    wanted: List,
    work_dir: WorkDir | None,
) -> Iterator[_Flat]:
    """Yield the sessions of a folder that are files in kimi-cli's old format."""
    if not metadata.NOTHING.fits(wanted):
        return
    for file in names:
        name = paths.flat_session_of(file)
        if name is None:
            continue
        session = _joined(address, name)
        is_asked_for = session.startswith(wanted.prefix) and session > wanted.after
        if not is_asked_for or not _may_be_session(session):
            continue
        stat = flat_stat(disk, folder, file)
        if stat is not None and not (name in names and _has_context(disk, folder, name)):
            entry = SessionEntry(
                session=session,
                bytes=stat.size,
                modified_at=stat.modified_s,
                generations=0,
                work_dir="" if work_dir is None else work_dir.path,
                last_in_work_dir=work_dir is not None and work_dir.last_session_id == name,
            )
            yield _Flat(entry)


def _has_context(disk: Disk, parent: int, name: str) -> bool:
    try:
        folder = disk.open_folder(parent, name)
    except OSError:
        return False
    with closing(disk, folder):
        return disk.stat_name(folder, paths.CONTEXT) is not None


def _joined(address: str, name: str) -> str:
    """Return the id of a name in the folder of `address`, which may be a tree or a mount."""
    return f"{address}/{name}" if address and not address.endswith(":") else address + name


def _entry(
    disk: Disk,
    folder: int,
    address: str,
    names: list[str],
    wanted: List,
    work_dir: WorkDir | None,
) -> SessionEntry | None:
    """Return a session's entry if it matches the filters."""
    described = metadata.read(disk, folder) if paths.STATE in names else metadata.NOTHING
    stat = disk.stat_name(folder, paths.CONTEXT)
    if stat is None or not described.fits(wanted):
        return None
    return SessionEntry(
        session=address,
        bytes=stat.size,
        modified_at=max([stat.modified_s, *_stream_times(disk, folder, names)]),
        generations=sum(paths.generation_of(name) is not None for name in names),
        title=described.title,
        labels=described.labels,
        archived=described.archived,
        forked_from=described.forked_from,
        work_dir="" if work_dir is None else work_dir.path,
        last_in_work_dir=(
            work_dir is not None and work_dir.last_session_id == address.rpartition("/")[2]
        ),
    )


def _stream_times(disk: Disk, folder: int, names: list[str]) -> Iterator[float]:
    for name in names:
        stat = disk.stat_name(folder, name) if paths.stream_of(name) is not None else None
        if stat is not None:
            yield stat.modified_s


def _may_be_session(address: str) -> bool:
    try:
        paths.split_session(address)
    except BadRequest:
        return False
    return True
