"""Folders of sessions, and reads of closed sessions.

Everything here blocks. Folders are opened segment by segment and no symbolic link is followed, so
that no id leads out of a tree.
"""

import errno
import shlex
from collections.abc import Generator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Final

import msgspec

from steno_protocol import limits, paths
from steno_protocol.commands import List
from steno_protocol.errors import BadRequest, Held, NotFound
from steno_protocol.positions import Position
from steno_protocol.replies import Mail, Sessions, Verification
from steno_protocol.timeline_entries import TimelineEntry
from stenod.core import timeline
from stenod.recovery import crash_recovery, file_opening, inspection, stream_opening
from stenod.recovery.inspection import Inspection
from stenod.runtime.config import Config
from stenod.sessions import listing, metadata, verify
from stenod.sessions.file_reads import Readable
from stenod.sessions.listing import Tree
from stenod.sessions.metadata import Description
from stenod.store.disk import Disk
from stenod.store.failed_syncs import FailedSyncs, Unproven
from stenod.store.handles import FileView, close_with, closing, measured
from stenod.store.names import (
    deleted_streams,
    past_generations,
    read_file,
    stat_file,
    stat_generation,
)

FLAT_CHARS_MAX: Final = 128
"""Characters of an id in a file name, so that the name has at most a file system's 255 bytes."""


class Place(msgspec.Struct, frozen=True):
    """The place of a session.

    Attributes:
        session: its id.
        tree: the folder of its tree, `sessions/` of the root or a mount.
        segments: the folders below it.
        shared: other programs write in this tree, too.
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
        """Whether it is `above` or below that, even across trees."""
        return Path(self.path).is_relative_to(above.path)


class SessionFolders:
    """The session trees of one daemon.

    Args:
        config: root and mounts.
        disk: the disk they lie on.

    Attributes:
        failed_syncs: their files with a failed sync.
    """

    def __init__(self, config: Config, disk: Disk) -> None:
        self.failed_syncs = FailedSyncs()
        self._config = config
        self._disk = disk

    @property
    def disk(self) -> Disk:
        """The disk they lie on."""
        return self._disk

    def place(self, session: str) -> Place:
        """Return the place of a session by its id, without touching the disk.

        Raises:
            BadRequest: the id is malformed.
            NotFound: the id has a mount that is not configured.
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
            place: the place of the session.
            create: create missing folders.
            keep: sync the names that lead to it. Their creator may have died before its sync, or
                may never sync; acknowledged bytes would be lost with an unsynced name.

        Raises:
            NotFound: the folder does not exist and `create` is false.
            BadRequest: a part of the path is not a folder.
            OSError: the folder cannot be opened.
        """
        try:
            return self._descend(place, create=create, keep=keep)
        except FileNotFoundError:
            raise (_flat(place) if self._is_flat(place) else _no_session(place)) from None
        except OSError as error:
            if error.errno not in {errno.ELOOP, errno.ENOTDIR}:
                raise
            raise BadRequest(
                f"{place.path} is not a folder, or its path has a symbolic link, which steno does"
                " not follow: choose another id",
                session=place.session,
            ) from None

    @contextmanager
    def opened(self, place: Place) -> Generator[int]:
        """Open a session's folder until the block ends; raises as `open_folder`."""
        with closing(self._disk, self.open_folder(place)) as folder:
            yield folder

    def open_tree(self, place: Place, *, create: bool = False) -> int:
        """Open the folder of a session's tree."""
        return self._disk.open_root(str(place.tree), create=create)

    def open_parent(self, place: Place, *, create: bool = False, keep: bool = False) -> int:
        """Open the parent of a session's folder; arguments and errors are those of `open_folder`.

        With `keep` the names of existing folders are synced, even those that another program made.
        """
        above = msgspec.structs.replace(place, segments=place.segments[:-1])
        handle = self.open_folder(above, create=create)
        if not keep:
            return handle
        self._disk.close(handle)
        return self.open_folder(above, keep=True)

    def sync_parent(self, place: Place, *, create: bool = False) -> None:
        """Sync the name of a session's folder: its creator may have died before its sync."""
        with closing(self._disk, self.open_parent(place, create=create)) as parent:
            self._disk.fsync(parent)

    def inode(self, place: Place) -> int | None:
        """Return the inode of a session's folder; None if there is no such session."""
        with suppress(NotFound, BadRequest), self.opened(place) as folder:
            if self._disk.stat_name(folder, paths.CONTEXT) is not None:
                return self._disk.stat(folder).inode
        return None

    def is_taken(self, place: Place) -> bool:
        """Whether a folder with contents is at a place, a session or one with subsessions.

        What a cluster kept aside of a session that has gone is none: the move takes it along.
        """
        with suppress(NotFound), self.opened(place) as folder:
            return self._has_contents(folder)
        return False

    def _has_contents(self, folder: int) -> bool:
        for name in self._disk.names(folder):
            if name == paths.QUARANTINE:
                continue
            try:
                below = self._disk.open_folder(folder, name)
            except OSError:
                return True
            with closing(self._disk, below):
                if self._has_contents(below):
                    return True
        return False

    def identity(self, place: Place, *, create: bool) -> tuple[int, int]:
        """Return device and inode of a session's folder, which identify it under any id."""
        if create:
            self.check_new(place)
        with closing(self._disk, self.open_folder(place, create=create)) as folder:
            if not create:
                check_present(self._disk, folder, place)
            stat = self._disk.stat(folder)
            return stat.device, stat.inode

    def leads_to(self, place: Place, identity: tuple[int, int]) -> bool:
        """Whether a place leads to the folder with this identity; True if it cannot be read."""
        try:
            folder = self.open_folder(place)
        except (NotFound, BadRequest):
            return False
        except OSError:
            return True
        with closing(self._disk, folder):
            stat = self._disk.stat(folder)
            return (stat.device, stat.inode) == identity

    def check_new(self, place: Place) -> None:
        """Refuse a new session among the uploads of another, or in the place of a flat one.

        An existing session at such a place is accepted.

        Raises:
            BadRequest: the place is not allowed.
        """
        if self._is_flat(place) and not self._is_session(place):
            raise BadRequest(_flat(place).message, session=place.session)
        if paths.UPLOADS in place.segments and not self._is_session(place):
            raise BadRequest(
                f"{paths.UPLOADS!r} is the name of a session's folder for files, so no new session"
                " can have it in its id: choose another id",
                session=place.session,
            )

    def inspect(self, place: Place) -> Inspection:
        """Return the numbers of a closed session.

        Raises:
            NotFound: the session does not exist.
            Unproven: its durable length is unknown until it is opened.
        """
        disk = self._disk
        with self.opened(place) as folder:
            try:
                with closing(disk, disk.open_read(folder, paths.CONTEXT)) as context:
                    return inspection.inspect(disk, folder, context, self.failed_syncs)
            except FileNotFoundError:
                raise no_present(disk, folder, place) from None

    def readable(self, place: Place, generation: int | None) -> Readable:
        """Return the readable part of a generation, None for the present one.

        Raises:
            NotFound: the session or generation does not exist.
            Unproven: its durable length is unknown until its session is opened.
        """
        with self.opened(place) as folder:
            present = crash_recovery.present_generation(self._disk, folder)
            if generation in {None, present}:
                return self._readable(folder, place, paths.CONTEXT, present)
            assert generation is not None
            name = paths.generation_file(generation + 1)
            view = self._past(folder, place, generation)
            return Readable(view, generation, None, f"{place.path}/{name}", is_present=False)

    def past(self, place: Place, generation: int) -> FileView:
        """Return the bytes of a past generation.

        Raises:
            NotFound: the generation does not exist.
            Unproven: its durable length is unknown until its session is opened.
        """
        with self.opened(place) as folder:
            return self._past(folder, place, generation)

    def readable_stream(
        self, place: Place, name: str, generation: int | None = None, *, with_head: bool = False
    ) -> Readable:
        """Return the readable part of a stream or wire file, empty if there is none.

        Args:
            place: the place of the session.
            name: the name of the file.
            generation: a stream's generation; None for the present one.
            with_head: determine the head, too.

        Raises:
            NotFound: the session does not exist.
            Unproven: its durable length is unknown until it is opened, or it is compressed and
                large, and its opening expands it.
        """
        with self.opened(place) as folder:
            self._check_expandable(folder, name)
            while True:
                present = stream_opening.closed_generation(self._disk, folder, name)
                if generation not in {None, present}:
                    assert generation is not None
                    return self._deleted_stream(folder, place, name, generation)
                held = self._present_stream(folder, place, name, present, with_head=with_head)
                if stream_opening.closed_generation(self._disk, folder, name) == present:
                    return held
                # It was deleted meanwhile: the file may be of either generation.
                held.view.release()

    def _check_expandable(self, folder: int, name: str) -> None:
        """Refuse a large compressed stream, which each page of a read would expand as a whole."""
        if self._disk.is_read_only or self._disk.stat_name(folder, name) is not None:
            return
        found = stat_file(self._disk, folder, name)
        if found is not None and found.size > limits.EXPANDED_TO_READ_BYTES_MAX:
            raise Unproven(errno.EFBIG, "it is compressed and large; open its session first", name)

    def _present_stream(
        self, folder: int, place: Place, name: str, generation: int, *, with_head: bool
    ) -> Readable:
        try:
            held = self._readable(folder, place, name, generation)
        except NotFound:
            # There is no such file: an empty view of another file.
            held = self._readable(folder, place, paths.CONTEXT, 0)
            held.view.size = 0
            return Readable(held.view, generation, Position(generation, 0), held.path)
        if not with_head:
            return held
        try:
            lines = stream_opening.measure_stream(
                self._disk, folder, held.view.handle, name, self.failed_syncs
            )
        except BaseException:
            held.view.release()
            raise
        held.view.size = lines.bytes
        return Readable(held.view, generation, Position(generation, lines.lines), held.path)

    def _deleted_stream(self, folder: int, place: Place, name: str, generation: int) -> Readable:
        for deleted in deleted_streams(self._disk, folder, paths.stream_of(name) or ""):
            if deleted.number == generation + 1:
                held = self._readable(folder, place, deleted.file, generation)
                return msgspec.structs.replace(held, is_present=False)
        raise NotFound(
            f"there is no generation {generation} of the stream: it was deleted and has expired, or"
            " it never existed",
            session=place.session,
        )

    def _readable(self, folder: int, place: Place, name: str, generation: int) -> Readable:
        try:
            with measured(self._disk, folder, name) as view:
                view.size = inspection.readable_size(
                    self._disk, folder, view.handle, name, generation, self.failed_syncs
                )
        except FileNotFoundError:
            raise no_present(self._disk, folder, place) from None
        return Readable(view, generation, None, f"{place.path}/{name}")

    def _past(self, folder: int, place: Place, generation: int) -> FileView:
        name = paths.generation_file(generation + 1)
        try:
            with measured(self._disk, folder, name) as view:
                view.size = view.stat().size
                # Another program may have rotated the file with unsynced lines.
                self.failed_syncs.sync_to_read(self._disk, view.handle, name)
        except FileNotFoundError:
            raise NotFound(
                f"there is no generation {generation}: `steno timeline {place.session}` lists the"
                " existing ones",
                session=place.session,
            ) from None
        return view

    def verify(
        self, place: Place, views: Mapping[str, FileView], *, live: int | None
    ) -> Verification:
        """Check all files of a session; see `verify.verify`."""
        with self.opened(place) as folder:
            return verify.verify(
                self._disk, folder, place.session, views, live=live, failed_syncs=self.failed_syncs
            )

    def verify_closed(self, place: Place) -> Verification:
        """Check all files of a session that nobody writes.

        Raises:
            NotFound: the session does not exist.
            Unproven: its durable length is unknown until it is opened.
        """
        views: dict[str, FileView] = {}
        with self.opened(place) as folder:
            names = self._disk.names(folder)
            present = crash_recovery.present_generation(self._disk, folder, names)
            try:
                views[paths.CONTEXT] = self._readable(folder, place, paths.CONTEXT, present).view
                if paths.WIRE in names:
                    views[paths.WIRE] = self._readable(folder, place, paths.WIRE, 0).view
                return verify.verify(
                    self._disk, folder, place.session, views,
                    live=None, failed_syncs=self.failed_syncs, names=names,
                )  # fmt: skip
            finally:
                for view in views.values():
                    view.release()

    def timeline(self, place: Place) -> list[TimelineEntry]:
        """Return a session's timeline, rotations by other programs included."""
        with self.opened(place) as folder:
            check_present(self._disk, folder, place)
            entries = timeline.decode(read_file(self._disk, folder, paths.TIMELINE))
            rotated: dict[int, float] = {}
            for generation in past_generations(self._disk, folder):
                stat = stat_generation(self._disk, folder, generation)
                rotated[generation + 1] = stat.modified_s
            return timeline.with_inferred(entries, rotated)

    def pending_mail(self, place: Place) -> Mail | None:
        """Return the pending D-Mail of a session."""
        with self.opened(place) as folder:
            check_present(self._disk, folder, place)
            return inspection.pending_mail(self._disk, folder)

    def description(self, place: Place) -> Description:
        """Return a session's metadata."""
        with self.opened(place) as folder:
            return metadata.read(self._disk, folder)

    def sessions(self, wanted: List) -> Sessions:
        """List sessions in order of their ids, up to the limit."""
        return listing.list_sessions(self._disk, self.trees, wanted)

    @property
    def trees(self) -> list[Tree]:
        """All trees, even those that do not exist."""
        mounts = [
            Tree(f"{name}:", folder, folder.parent if folder.name == paths.SESSIONS else None)
            for name, folder in self._config.mounts.items()
        ]
        return [Tree("", self._config.root / paths.SESSIONS, self._config.root), *mounts]

    def _is_flat(self, place: Place) -> bool:
        """Whether a file in kimi-cli's old format has the place."""
        name = paths.flat_file(place.segments[-1]) if place.segments else None
        if name is None:
            return False
        try:
            above = self._descend(msgspec.structs.replace(place, segments=place.segments[:-1]))
        except OSError:
            return False
        with closing(self._disk, above):
            return listing.flat_stat(self._disk, above, name) is not None

    def _is_session(self, place: Place) -> bool:
        with suppress(NotFound), self.opened(place) as folder:
            return self._disk.stat_name(folder, paths.CONTEXT) is not None
        return False

    def _descend(self, place: Place, *, create: bool = False, keep: bool = False) -> int:
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


def _no_session(place: Place) -> NotFound:
    return NotFound(
        f"there is no such session: it would lie at {place.path}; `steno sessions` lists the"
        f" existing ones, and `steno open {place.session}` creates it",
        session=place.session,
    )


def _flat(place: Place) -> NotFound:
    """Return the error for a session in kimi-cli's old format."""
    path = f"{place.path}.jsonl"
    session = "/".join(place.segments)
    return NotFound(
        f"the session is one file, {path}, in kimi-cli's old format: `steno import"
        f" {shlex.quote(path)} {session}` imports it as a session of the root, and kimi-cli itself"
        " moves it into a folder when it next lists it",
        session=place.session,
    )


def flat_id(place: Place) -> str:
    """Return the beginning of a session's id as a part of a file name."""
    return "~".join(place.segments)[:FLAT_CHARS_MAX]


def lock_all(held: ExitStack, disk: Disk, folder: int, place: Place) -> None:
    """Lock a session and those below it until the stack is left, so that no daemon opens one.

    Raises:
        Held: another daemon has one of them open.
    """
    if not disk.lock(folder):
        raise Held(
            f"{place.path} is locked, perhaps by another daemon: stop that one, or use its root",
            session=place.session,
        )
    for name in disk.names(folder):
        try:
            below = close_with(held, disk, disk.open_folder(folder, name))
        except NotADirectoryError:
            continue
        lock_all(held, disk, below, place)


def check_present(disk: Disk, folder: int, place: Place) -> None:
    """Refuse a folder that has no context; see `no_present`."""
    if disk.stat_name(folder, paths.CONTEXT) is None:
        raise no_present(disk, folder, place)


def no_present(disk: Disk, folder: int, place: Place) -> NotFound:
    """Return the error for a folder without a context: no session, or one that lost its present.

    In the second case `open` refuses to create a new context.
    """
    if not past_generations(disk, folder):
        return _no_session(place)
    text = file_opening.missing_context_text(place.path)
    if place.shared:
        text += ", unless the program that moved it away is about to write another"
    return NotFound(text, session=place.session)
