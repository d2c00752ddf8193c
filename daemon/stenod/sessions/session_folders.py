"""Where sessions lie: ids to folders of the root and the mounts, and looks that change nothing.

Everything here blocks. Folders are opened segment by segment and no symbolic link is followed, so
that no id leads out of a tree.
"""

import errno
from collections.abc import Generator, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import msgspec

from steno_protocol import limits, paths
from steno_protocol.commands import List
from steno_protocol.errors import BadRequest, NotFound
from steno_protocol.positions import Position
from steno_protocol.replies import Mail, SessionEntry, Sessions, Verification
from steno_protocol.timeline_entries import TimelineEntry
from steno_protocol.work_dirs import KIMI_FILE, WorkDir
from stenod.core import timeline
from stenod.recovery import crash_recovery, file_opening
from stenod.recovery.file_opening import Inspection
from stenod.runtime.config import Config
from stenod.sessions import metadata, verify, work_dirs
from stenod.sessions.file_reads import Readable
from stenod.sessions.metadata import Description
from stenod.store.disk import Disk, FileStat
from stenod.store.failed_syncs import FailedSyncs
from stenod.store.handles import FileView, SharedHandle
from stenod.store.names import past_generations, read_file, stat_generation


class Place(msgspec.Struct, frozen=True):
    """Where a session lies.

    Attributes:
        session: its id.
        tree: the folder of its tree, `sessions/` of the root or a mount.
        segments: the folders below it.
        shared: other programs write in this tree too.
    """

    session: str
    tree: Path
    segments: tuple[str, ...]
    shared: bool

    @property
    def path(self) -> str:
        """The session's folder."""
        return str(self.tree.joinpath(*self.segments))

    def is_within(self, above: "Place") -> bool:
        """Whether it is the place `above`, or lies below it, whatever their trees."""
        return Path(self.path).is_relative_to(above.path)


class _Flat(msgspec.Struct, frozen=True):
    """A session that is one file, in kimi-cli's old format."""

    entry: SessionEntry


_Found = SessionEntry | _Flat | str
"""A session; one in the old format; or the id of one with older generations and no present one."""


class SessionFolders:
    """The session trees of one daemon.

    Args:
        config: root and mounts.
        disk: the disk they lie on.

    Attributes:
        doubts: their files of which a sync failed.
    """

    def __init__(self, config: Config, disk: Disk) -> None:
        self.failed_syncs = FailedSyncs()
        self._config = config
        self._disk = disk

    def place(self, session: str) -> Place:
        """Where a session lies, by its id alone; no file is touched.

        Raises:
            BadRequest: the id is malformed.
            NotFound: it names a mount that is not configured.
        """
        mount, segments = paths.split_session(session)
        if mount is None:
            return Place(session, self._config.root / paths.SESSIONS, segments, shared=False)
        if mount not in self._config.mounts:
            known = ", ".join(self._config.mounts) or "none"
            raise NotFound(
                f"the mount {mount!r} is not configured (known: {known}): add it to [mounts] in"
                f" {self._config.root / paths.CONFIG} and restart",
                session=session,
            )
        return Place(session, self._config.mounts[mount], segments, shared=True)

    def open_folder(self, place: Place, *, create: bool = False, keep: bool = False) -> int:
        """Open a session's folder.

        Args:
            keep: sync the names that lead to it. The process that created the folders, or moved one
                there, may have died before that, or is a program that never does it; what is
                acknowledged in them would go with their names.

        Raises:
            NotFound: it is not there, and is not to be made.
            BadRequest: something on the way is no folder.
            OSError: it cannot be opened.
        """
        try:
            return self._descend(place, create=create, keep=keep)
        except FileNotFoundError:
            raise (_flat(place) if self._is_flat(place) else _no_session(place)) from None
        except OSError as error:
            if error.errno not in {errno.ELOOP, errno.ENOTDIR}:
                raise
            raise BadRequest(
                f"{place.path} is no folder, or a symbolic link leads to it: steno follows none",
                session=place.session,
            ) from None

    @contextmanager
    def opened(self, place: Place) -> Generator[int]:
        """A session's folder, open until the block ends; errors as of `open_folder`."""
        folder = self.open_folder(place)
        try:
            yield folder
        finally:
            self._disk.close(folder)

    def open_tree(self, place: Place, *, create: bool = False) -> int:
        """Open the folder of a session's tree."""
        return self._disk.open_root(str(place.tree), create=create)

    def open_parent(self, place: Place, *, create: bool = False) -> int:
        """Open the folder that a session's folder lies in; errors as of `open_folder`."""
        return self.open_folder(
            msgspec.structs.replace(place, segments=place.segments[:-1]), create=create
        )

    def identity(self, place: Place, *, create: bool) -> tuple[int, int]:
        """The identity of a session's folder, independent of its id: device and inode."""
        if create:
            self.check_new(place)
        folder = self.open_folder(place, create=create)
        try:
            if not create and self._disk.stat_name(folder, paths.CONTEXT) is None:
                raise no_present(self._disk, folder, place)
            stat = self._disk.stat(folder)
            return stat.device, stat.inode
        finally:
            self._disk.close(folder)

    def leads_to(self, place: Place, identity: tuple[int, int]) -> bool:
        """Whether a place leads to the folder with this identity; True if that is unknown."""
        try:
            folder = self.open_folder(place)
        except (NotFound, BadRequest):
            return False
        except OSError:
            return True
        try:
            stat = self._disk.stat(folder)
            return (stat.device, stat.inode) == identity
        finally:
            self._disk.close(folder)

    def check_new(self, place: Place) -> None:
        """Refuse a new session among the uploads of another, or in the place of a flat one.

        A session that is there is let be.

        Raises:
            BadRequest: it would be made there.
        """
        if self._is_flat(place) and not self._is_session(place):
            raise BadRequest(_flat(place).message, session=place.session)
        if paths.UPLOADS in place.segments and not self._is_session(place):
            raise BadRequest(
                f"{paths.UPLOADS!r} is the name of a folder of files that a session may hold, so"
                " no new session can have it in its id; choose another",
                session=place.session,
            )

    def inspect(self, place: Place) -> tuple[Inspection, FileView]:
        """What a session's files say, and what of the present generation may be read.

        Raises:
            NotFound: there is no such session.
            Unproven: its durable length is unknown until it is opened.
        """
        folder = self.open_folder(place)
        try:
            shared = SharedHandle(self._disk, self._disk.open_read(folder, paths.CONTEXT))
            try:
                inspection = file_opening.inspect(
                    self._disk, folder, shared.handle, self.failed_syncs
                )
            except BaseException:
                shared.release()
                raise
        except FileNotFoundError:
            raise no_present(self._disk, folder, place) from None
        finally:
            self._disk.close(folder)
        return inspection, FileView(shared, inspection.size)

    def readable(self, place: Place, generation: int | None) -> Readable:
        """What may be read of a generation, None for the present one; all of it is not read.

        Raises:
            NotFound: there is no such session or generation.
            Unproven: its durable length is unknown until its session is opened.
        """
        with self.opened(place) as folder:
            present = crash_recovery.present_generation(self._disk, folder)
            if generation in {None, present}:
                return self._readable(folder, place, paths.CONTEXT, present)
            assert generation is not None
            name = paths.generation_file(generation + 1)
            view = self._past(folder, place, generation)
            return Readable(view, generation, None, f"{place.path}/{name}")

    def past(self, place: Place, generation: int) -> FileView:
        """What an earlier generation was when it was left behind.

        Raises:
            NotFound: there is no such generation.
            Unproven: its durable length is unknown until its session is opened.
        """
        with self.opened(place) as folder:
            return self._past(folder, place, generation)

    def readable_wire(self, place: Place) -> Readable:
        """What may be read of a session's wire file; nothing if there is none.

        Raises:
            NotFound: there is no such session.
            Unproven: its durable length is unknown until it is opened.
        """
        with self.opened(place) as folder:
            if self._disk.stat_name(folder, paths.WIRE) is not None:
                return self._readable(folder, place, paths.WIRE, 0)
            # Nothing was written yet: a view of no bytes, whatever file it holds.
            held = self._readable(folder, place, paths.CONTEXT, 0)
            held.view.size = 0
            return Readable(held.view, 0, Position(0, 0), held.path)

    def _readable(self, folder: int, place: Place, name: str, generation: int) -> Readable:
        try:
            shared = SharedHandle(self._disk, self._disk.open_read(folder, name))
        except FileNotFoundError:
            raise no_present(self._disk, folder, place) from None
        try:
            size = file_opening.readable_size(
                self._disk, folder, shared.handle, name, generation, self.failed_syncs
            )
        except BaseException:
            shared.release()
            raise
        return Readable(FileView(shared, size), generation, None, f"{place.path}/{name}")

    def _past(self, folder: int, place: Place, generation: int) -> FileView:
        try:
            handle = self._disk.open_read(folder, paths.generation_file(generation + 1))
        except FileNotFoundError:
            raise NotFound(
                f"there is no generation {generation}: `steno timeline` shows those that are",
                session=place.session,
            ) from None
        shared = SharedHandle(self._disk, handle)
        try:
            size = self._disk.stat(handle).size
            # Another program may have moved it away with unsynced lines.
            self.failed_syncs.sync_to_read(
                self._disk, handle, paths.generation_file(generation + 1)
            )
        except BaseException:
            shared.release()
            raise
        return FileView(shared, size)

    def verify(
        self, place: Place, context: FileView, wire: FileView, *, live: int | None
    ) -> Verification:
        """Look through all files of a session; see `verifying.verify`."""
        folder = self.open_folder(place)
        return verify.verify(self._disk, folder, place.session, context, wire, live=live)

    def timeline(self, place: Place) -> list[TimelineEntry]:
        """What ever happened to a session, rotations by other programs included."""
        with self.opened(place) as folder:
            if self._disk.stat_name(folder, paths.CONTEXT) is None:
                raise no_present(self._disk, folder, place)
            entries = timeline.decode(read_file(self._disk, folder, paths.TIMELINE))
            rotated: dict[int, float] = {}
            for generation in past_generations(self._disk, folder):
                stat = stat_generation(self._disk, folder, generation)
                rotated[generation + 1] = stat.modified_s
            return timeline.with_inferred(entries, rotated)

    def pending_mail(self, place: Place) -> Mail | None:
        """The D-Mail that waits in a session."""
        with self.opened(place) as folder:
            if self._disk.stat_name(folder, paths.CONTEXT) is None:
                raise no_present(self._disk, folder, place)
            return file_opening.pending_mail(self._disk, folder)

    def description(self, place: Place) -> Description:
        """What people know a session by."""
        with self.opened(place) as folder:
            return metadata.read(self._disk, folder)

    def folders(self) -> list[Path]:
        """The folders of all trees, those that are not there too."""
        return [folder for _, folder, _ in self._trees()]

    def sessions(self, wanted: List) -> Sessions:
        """Sessions in order of their ids, up to the limit, and what lost its present among them."""
        found: list[SessionEntry] = []
        lost: list[str] = []
        flat: list[SessionEntry] = []
        for start, folder, beside in self._trees():
            for entry in self._within(start, folder, beside, wanted):
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

    def _trees(self) -> list[tuple[str, Path, Path | None]]:
        """What ids begin with, their tree, and the folder beside it that may have a `kimi.json`."""
        mounts = [
            (f"{name}:", folder, folder.parent if folder.name == paths.SESSIONS else None)
            for name, folder in self._config.mounts.items()
        ]
        return [("", self._config.root / paths.SESSIONS, self._config.root), *mounts]

    def _within(
        self, start: str, folder: Path, beside: Path | None, wanted: List
    ) -> Iterator[_Found]:
        try:
            handle = self._disk.open_root(str(folder))
        except OSError:
            # A tree that is not there, or not ours to read, has no sessions to show.
            return
        named = {} if beside is None else work_dirs.read_at(self._disk, str(beside))
        depth = limits.SESSION_TREE_DEPTH_MAX
        yield from _walk(self._disk, handle, start, depth, wanted, _Above(named))

    def _is_flat(self, place: Place) -> bool:
        """Whether the place is taken by a file of kimi-cli's old format."""
        name = paths.flat_file(place.segments[-1]) if place.segments else None
        if name is None:
            return False
        try:
            above = self._descend(
                msgspec.structs.replace(place, segments=place.segments[:-1]),
                create=False,
                keep=False,
            )
        except OSError:
            return False
        try:
            return _flat_stat(self._disk, above, name) is not None
        finally:
            self._disk.close(above)

    def _is_session(self, place: Place) -> bool:
        try:
            folder = self.open_folder(place)
        except NotFound:
            return False
        try:
            return self._disk.stat_name(folder, paths.CONTEXT) is not None
        finally:
            self._disk.close(folder)

    def _descend(self, place: Place, *, create: bool, keep: bool) -> int:
        handle = self._disk.open_root(str(place.tree), create=create)
        for segment in place.segments:
            parent = handle
            try:
                handle = self._disk.open_folder(parent, segment, create=create)
                if keep and not create:  # else they were synced as they were made
                    self._keep(parent, handle)
            finally:
                self._disk.close(parent)
        return handle

    def _keep(self, parent: int, handle: int) -> None:
        try:
            self._disk.fsync(parent)
        except OSError:
            self._disk.close(handle)
            raise


class _Above(msgspec.Struct, frozen=True):
    """What the folders above one say of it.

    Attributes:
        named: the work directories that were named so far, by the folders of their sessions.
        here: the work directory whose sessions lie in the folder.
        parent: the one whose sessions lie in the folder above it.
        in_session: it lies in a session's folder.
    """

    named: Mapping[str, WorkDir]
    here: WorkDir | None = None
    parent: WorkDir | None = None
    in_session: bool = False

    def below(self, name: str) -> "_Above":
        """The same for a folder in it."""
        here = None if self.in_session else self.named.get(name)
        return _Above(self.named, here, self.here, self.in_session)


def _walk(
    disk: Disk, folder: int, address: str, depth: int, wanted: List, above: _Above
) -> Iterator[_Found]:
    """The sessions in an open folder and below it; closes the folder."""
    try:
        names = disk.names(folder)
        # What lies in a session's folder is an upload or the like, whatever it is called.
        in_session = above.in_session or paths.CONTEXT in names
        above = msgspec.structs.replace(above, in_session=in_session)
        if not in_session:
            if KIMI_FILE in names:
                named = {**above.named, **work_dirs.read(disk, folder)}
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
            if _may_be_session(joined):
                below = above.below(name)
                yield from _walk_below(disk, folder, name, joined, depth - 1, wanted, below)
    finally:
        disk.close(folder)


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
    """The sessions of a folder that are files in kimi-cli's old format."""
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
        stat = _flat_stat(disk, folder, file)
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


def _flat_stat(disk: Disk, folder: int, file: str) -> FileStat | None:
    """What is known of a file, None for a link, a folder and whatever else is none of ours."""
    try:
        handle = disk.open_read(folder, file)
    except OSError:
        return None
    try:
        return disk.stat(handle)
    finally:
        disk.close(handle)


def _has_context(disk: Disk, parent: int, name: str) -> bool:
    try:
        folder = disk.open_folder(parent, name)
    except OSError:
        return False
    try:
        return disk.stat_name(folder, paths.CONTEXT) is not None
    finally:
        disk.close(folder)


def _joined(address: str, name: str) -> str:
    """The id of what lies in a folder, which may be that of a tree or a mount."""
    return f"{address}/{name}" if address and not address.endswith(":") else address + name


def _entry(
    disk: Disk,
    folder: int,
    address: str,
    names: list[str],
    wanted: List,
    work_dir: WorkDir | None,
) -> SessionEntry | None:
    """A session's entry, if the list is to show it."""
    described = metadata.read(disk, folder) if paths.STATE in names else metadata.NOTHING
    stat = disk.stat_name(folder, paths.CONTEXT)
    if stat is None or not described.fits(wanted):
        return None
    return SessionEntry(
        session=address,
        bytes=stat.size,
        modified_at=stat.modified_s,
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


def _may_be_session(address: str) -> bool:
    try:
        paths.split_session(address)
    except BadRequest:
        return False
    return True


def _no_session(place: Place) -> NotFound:
    return NotFound(
        f"there is no such session: it would lie at {place.path}; `steno sessions` lists those that"
        " are there, and `open` makes it (the command: `steno append`)",
        session=place.session,
    )


def _flat(place: Place) -> NotFound:
    """What is said of a session in kimi-cli's old format."""
    path = f"{place.path}.jsonl"
    session = "/".join(place.segments)
    return NotFound(
        f"the session is one file, {path}, in kimi-cli's old format: `steno import {path}"
        f" {session}` takes it in as a session of the root, and kimi-cli itself moves it into a"
        " folder when it next lists it",
        session=place.session,
    )


def no_present(disk: Disk, folder: int, place: Place) -> NotFound:
    """What is said of a folder without a context: it is no session, or one that lost its present.

    Its lost file may be unused, but `open` would refuse to create it anew.
    """
    if not past_generations(disk, folder):
        return _no_session(place)
    text = file_opening.missing_context_text(place.path)
    if place.shared:
        text += ", unless the program that moved it away is about to write another"
    return NotFound(text, session=place.session)
