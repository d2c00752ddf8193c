"""Making a fork: a session built aside, synced, and moved to its place in one instant.

The generations before the one that is cut are whole and never change again, so the fork has them
under a second name each; positions, `_at` and checkpoint ids mean the same in both sessions.
Everything here blocks.
"""

import contextlib
import errno
import re
from collections.abc import Iterator
from typing import Any, Final

import msgspec

from steno_protocol import checkpoint_ids, limits, paths, timeline_entries
from steno_protocol.commands import Fork
from steno_protocol.errors import BadRequest, Busy, ErrorCode, Exists, NotFound, OutcomeUnknown
from steno_protocol.positions import Position
from steno_protocol.replies import SessionStat
from steno_protocol.timeline_entries import TimelineEntry
from stenod.core import timeline
from stenod.core.replay import Replay
from stenod.recovery import crash_recovery
from stenod.recovery.key_lookup import blocks_of
from stenod.sessions import metadata
from stenod.sessions.fork_point import Captured, Instant, cut
from stenod.sessions.session_folders import Place, SessionFolders
from stenod.store.disk import Disk, close_with
from stenod.store.handles import FileView, SharedHandle, write_all
from stenod.store.names import read_file
from stenod.store.rmtree import remove_all

_BUILT: Final = "session"
_UPLOAD: Final = re.compile(rb'uploads/([^"\\<>\s/]+)')
_SENT: Final = ".sent"
"""A list beside uploads of those that the model has seen; kimi-cli sends what is not in it."""

_TAKEN: Final = (errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR)
_NO_LINK: Final = (errno.EXDEV, errno.EPERM, errno.EMLINK, errno.EOPNOTSUPP)
"""How the kernel says that a file can have no second name there."""


class Wanted(msgspec.Struct, frozen=True):
    """A fork that is asked for.

    Attributes:
        command: the command.
        source: where the session lies that it is made of.
        target: where the new one is to lie.
        incarnation: the new one's.
        stamp: whether its lines bear `_id`.
        now: Unix time in seconds.
    """

    command: Fork
    source: Place
    target: Place
    incarnation: str
    stamp: bool
    now: float


def find(disk: Disk, trees: SessionFolders, wanted: Wanted) -> SessionStat | None:
    """The first answer of a fork that was made before, durable now; None if its place is free.

    Raises:
        Exists: another session lies there.
    """
    try:
        folder = trees.open_folder(wanted.target)
    except NotFound:
        return None
    try:
        if disk.stat_name(folder, paths.CONTEXT) is None:
            return None
        entries = timeline.decode(read_file(disk, folder, paths.TIMELINE))
        entry = _forked(entries)
        if entry is None or entry.key != wanted.command.key:
            raise _taken(wanted)
        if entry.details.get("from") != wanted.source.session:
            raise BadRequest(
                f"the key {wanted.command.key!r} belongs to a fork of"
                f" {entry.details.get('from')!r}: a key names one command for ever; use a new one",
                session=wanted.source.session,
            )
        _sync_place(disk, trees, wanted.target)
        return _answer(disk, folder, entries, entry, wanted.target)
    finally:
        disk.close(folder)


def check_key(wanted: Wanted, entries: list[TimelineEntry]) -> None:
    """Refuse a key that made another fork, or one that is not there any more.

    Raises:
        BadRequest: it made a fork of another name.
        NotFound: it made this one, which was deleted since.
    """
    entry = _recorded_entry(wanted, entries)
    if entry is None:
        return
    made = entry.details.get("to")
    if made != wanted.target.session:
        raise BadRequest(
            f"the key {entry.key!r} belongs to the fork {made!r}: a key names one command for ever;"
            " use a new one",
            session=wanted.source.session,
        )
    raise NotFound(
        f"the fork {made!r} was made with this key and is there no more: use a new key to make it"
        " again",
        session=wanted.source.session,
    )


def is_recorded(wanted: Wanted, entries: list[TimelineEntry]) -> bool:
    """Whether the source's timeline has an entry of a fork."""
    return _recorded_entry(wanted, entries) is not None


def make(disk: Disk, trees: SessionFolders, source: Captured, wanted: Wanted) -> SessionStat:
    """Make a fork; durable on return, and at every moment either there or not.

    Raises:
        BadRequest, NotFound: there is no such instant to cut at, or no session can be made there.
        Exists: something lies at its place already.
        Busy: this very fork is being made, or its source was made again meanwhile.
        OutcomeUnknown: the disk failed when it was at its place.
        OSError: the disk failed; it was not made.
    """
    trees.check_new(wanted.target)
    chosen = cut(source, wanted.command)
    with contextlib.ExitStack() as held:
        tree = close_with(held, disk, trees.open_tree(wanted.target, create=True))
        forks = close_with(held, disk, disk.open_folder(tree, paths.FORKS, create=True))
        nest = close_with(held, disk, _own_nest(disk, forks, wanted))
        try:
            remove_all(disk, nest)
            _build(disk, trees, source, chosen, wanted, nest)
            parent = close_with(held, disk, trees.open_parent(wanted.target, create=True))
            _put_in_place(disk, trees, nest, parent, wanted)
        finally:
            # What is left over costs room only, and the next start of a daemon removes it.
            with contextlib.suppress(OSError):
                remove_all(disk, nest)
                disk.remove_folder(forks, wanted.command.key)
    return _made(disk, trees, wanted)


def _made(disk: Disk, trees: SessionFolders, wanted: Wanted) -> SessionStat:
    """The answer of a fork that is at its place; now it cannot be undone."""
    try:
        answer = find(disk, trees, wanted)
    except OSError as error:
        raise OutcomeUnknown(
            f"the fork {wanted.target.session!r} is at its place, and the disk refused to keep it"
            f" there ({error}): send the command again with its key",
            session=wanted.source.session,
            code=ErrorCode.STORAGE_FAILED,
            key=wanted.command.key,
        ) from None
    if answer is None:
        raise NotFound(
            f"the fork {wanted.target.session!r} was made, and another program removed it at once",
            session=wanted.source.session,
        )
    return answer


def source_entry(wanted: Wanted, made: SessionStat) -> TimelineEntry:
    """What the source's timeline says of a fork."""
    return TimelineEntry(
        kind=timeline_entries.FORK,
        generation=Position.parse(made.head).generation,
        at=wanted.now,
        by=wanted.command.by,
        key=wanted.command.key,
        details={"to": made.session, "at": made.head},
    )


def sweep(disk: Disk, tree: int) -> int:
    """Remove the leftovers of abandoned forks; returns their number."""
    try:
        forks = disk.open_folder(tree, paths.FORKS)
    except OSError:
        return 0
    try:
        return sum(_remove_left(disk, forks, name) for name in disk.names(forks))
    finally:
        disk.close(forks)


def _remove_left(disk: Disk, forks: int, name: str) -> bool:
    nest: int | None = None
    try:
        nest = disk.open_folder(forks, name)
        if not disk.lock(nest):
            return False
        remove_all(disk, nest)
        disk.remove_folder(forks, name)
    except OSError:
        # It stays until the next sweep.
        return False
    finally:
        if nest is not None:
            disk.close(nest)
    return True


def _recorded_entry(wanted: Wanted, entries: list[TimelineEntry]) -> TimelineEntry | None:
    key = wanted.command.key
    return next(
        (entry for entry in entries if entry.kind == timeline_entries.FORK and entry.key == key),
        None,
    )


def _own_nest(disk: Disk, forks: int, wanted: Wanted) -> int:
    """The folder in which this fork is built, locked against other builders."""
    key = wanted.command.key
    nest = disk.open_folder(forks, key, create=True)
    named = disk.stat_name(forks, key)
    if disk.lock(nest) and named is not None and named.inode == disk.stat(nest).inode:
        return nest
    disk.close(nest)
    raise Busy("this fork is being made: try again in a moment", session=wanted.source.session)


def _build(
    disk: Disk, trees: SessionFolders, source: Captured, chosen: Instant, wanted: Wanted, nest: int
) -> None:
    """Everything that the new session is to hold, durable but for its place."""
    with contextlib.ExitStack() as held:
        origin = close_with(held, disk, trees.open_folder(wanted.source))
        _check_same(disk, origin, source)
        folder = close_with(held, disk, disk.open_folder(nest, _BUILT, create=True))
        for number in range(1, chosen.at.generation + 1):
            _share(disk, origin, folder, paths.generation_file(number))
        with source.view(chosen.at.generation) as view:
            _put(disk, folder, paths.CONTEXT, view, chosen.size)
            entries = list(_entries(source, chosen, view))
        if chosen.wire_size:
            _put(disk, folder, paths.WIRE, source.wire, chosen.wire_size)
        _copy_uploads(disk, origin, folder, _mentioned(source.wire, chosen.wire_size))
        title = _title(disk, origin, wanted)
        lines = [*entries, _first_entry(source, chosen, wanted, title)]
        _write(disk, folder, paths.TIMELINE, b"".join(map(timeline.encode, lines)))
        described = {"custom_title": title, "title_generated": True} if title else {}
        state = {"version": 1, **described, "forked_from": wanted.source.session}
        metadata.save(disk, folder, state)
        disk.fsync(folder)


def _check_same(disk: Disk, origin: int, source: Captured) -> None:
    """Refuse to go on with the folder of another session, which came to the place of the source.

    One that is deleted later on is moved, and its open folder with it.

    Raises:
        Busy: it is there; nothing was made.
    """
    entries = timeline.decode(read_file(disk, origin, paths.TIMELINE))
    if timeline.incarnation_of(entries) != source.incarnation:
        raise Busy(
            "the session was deleted and made again while it was being forked: try again",
            session=source.session,
        )


def _put_in_place(
    disk: Disk, trees: SessionFolders, nest: int, parent: int, wanted: Wanted
) -> None:
    """The instant in which the fork is there; durable once the parent is synced."""
    try:
        disk.move(nest, _BUILT, parent, wanted.target.segments[-1])
    except OSError as error:
        if error.errno in _TAKEN:
            raise _taken(wanted) from None
        # A disk that fails may have done it all the same.
        if disk.stat_name(nest, _BUILT) is None:
            _made(disk, trees, wanted)
            return
        raise


def _sync_place(disk: Disk, trees: SessionFolders, target: Place) -> None:
    """Sync the new folder: its creator may have died before the sync."""
    parent = trees.open_parent(target, create=True)
    try:
        disk.fsync(parent)
    finally:
        disk.close(parent)


def _share(disk: Disk, origin: int, folder: int, name: str) -> None:
    """Give a file that never changes again a second name; copy it where that cannot be."""
    if disk.stat_name(origin, name) is None:
        # Another program removed it; the session lacks it, and so does the fork.
        return
    try:
        disk.link(origin, name, name, into=folder)
    except OSError as error:
        if error.errno not in _NO_LINK:
            raise
        _copy(disk, origin, folder, name)


def _copy(disk: Disk, origin: int, folder: int, name: str) -> None:
    shared = SharedHandle(disk, disk.open_read(origin, name))
    try:
        size = disk.stat(shared.handle).size
        _put(disk, folder, name, FileView(shared, size), size)
    finally:
        shared.release()


def _put(disk: Disk, folder: int, name: str, view: FileView, size: int) -> None:
    handle = disk.open_new(folder, name)
    try:
        view.copy(handle, size)
        disk.fsync(handle)
    finally:
        disk.close(handle)


def _write(disk: Disk, folder: int, name: str, data: bytes) -> None:
    handle = disk.open_new(folder, name)
    try:
        write_all(disk, handle, data)
        disk.fsync(handle)
    finally:
        disk.close(handle)


def _entries(source: Captured, chosen: Instant, view: FileView) -> Iterator[TimelineEntry]:
    """The rewrites that led to the instant: they say where checkpoints and first answers are."""
    for entry in source.timeline:
        if entry.kind not in timeline_entries.REWRITES or entry.generation > chosen.at.generation:
            continue
        is_last = entry.generation == chosen.at.generation
        yield _shortened(entry, chosen, view) if is_last else entry


def _shortened(entry: TimelineEntry, chosen: Instant, view: FileView) -> TimelineEntry:
    """The last rewrite, if it wrote more lines than the cut leaves of them."""
    lines: Any = entry.details.get("lines", 0)
    if not isinstance(lines, int) or lines <= chosen.at.line:
        return entry
    start = max(0, chosen.size - limits.FINGERPRINT_BYTES)
    new = timeline.fingerprint(chosen.size, view.read(chosen.size - start, start))
    details = {**entry.details, "lines": chosen.at.line, "new": new}
    kept = min(entry.kept, chosen.at.line)
    return msgspec.structs.replace(entry, kept=kept, details=details)


def _first_entry(source: Captured, chosen: Instant, wanted: Wanted, title: str) -> TimelineEntry:
    return TimelineEntry(
        kind=timeline_entries.FORKED,
        generation=chosen.at.generation,
        kept=chosen.at.line,
        at=wanted.now,
        by=wanted.command.by,
        key=wanted.command.key,
        details={
            "incarnation": wanted.incarnation,
            "stamp": wanted.stamp,
            "from": source.session,
            "at": str(chosen.at),
            "bytes": chosen.size,
            "wire_at": f"0:{chosen.wire_lines}",
            "title": title,
            **({"checkpoint_id": chosen.next_id} if chosen.next_id else {}),
        },
    )


def _title(disk: Disk, origin: int, wanted: Wanted) -> str:
    if wanted.command.title is not None:
        return wanted.command.title
    title = metadata.read(disk, origin).title
    return f"Fork: {title}"[: limits.TITLE_CHARS_MAX] if title else ""


def _mentioned(wire: FileView, size: int) -> set[str]:
    """Names of uploads that the kept lines of the wire file speak of."""
    found: set[str] = set()
    for offset, block in blocks_of(wire.read):
        for name in _UPLOAD.findall(block[: max(0, size - offset)]):
            found.add(name.decode(errors="replace"))
    return found


def _copy_uploads(disk: Disk, origin: int, folder: int, mentioned: set[str]) -> None:
    if not mentioned:
        return
    with contextlib.ExitStack() as held:
        try:
            uploads = close_with(held, disk, disk.open_folder(origin, paths.UPLOADS))
        except (FileNotFoundError, NotADirectoryError):
            return
        names = sorted(mentioned & set(disk.names(uploads)))
        if not names:
            return
        copies = close_with(held, disk, disk.open_folder(folder, paths.UPLOADS, create=True))
        copied = [name for name in names if _copied(disk, uploads, copies, name)]
        _write(disk, copies, _SENT, msgspec.json.encode(copied))
        disk.fsync(copies)


def _copied(disk: Disk, uploads: int, copies: int, name: str) -> bool:
    try:
        _copy(disk, uploads, copies, name)
    except PermissionError:
        # A folder, a link, another user's file: whatever it is, it was not uploaded.
        return False
    return True


def _forked(entries: list[TimelineEntry]) -> TimelineEntry | None:
    return next((entry for entry in entries if entry.kind == timeline_entries.FORKED), None)


def _answer(
    disk: Disk, folder: int, entries: list[TimelineEntry], entry: TimelineEntry, target: Place
) -> SessionStat:
    """The numbers of a fork as it was made, whatever was done to it since."""
    details = entry.details
    at, size = Position.parse(str(details["at"])), int(details["bytes"])
    is_present = crash_recovery.present_generation(disk, folder) == at.generation
    name = paths.CONTEXT if is_present else paths.generation_file(at.generation + 1)
    shared = SharedHandle(disk, disk.open_read(folder, name))
    replay = Replay()
    try:
        for _, block in blocks_of(FileView(shared, size).read):
            replay.feed(block)
    finally:
        shared.release()
    counters = replay.counters
    floor = checkpoint_ids.checkpoint_floor(entries, at.generation)
    return SessionStat(
        session=target.session,
        head=str(at),
        bytes=size,
        generation=at.generation,
        token_count=counters.token_count,
        token_count_with_pending=counters.token_count_with_pending,
        n_checkpoints=max(counters.n_checkpoints, floor),
        has_system_prompt=counters.has_system_prompt,
        created=True,
        stamp=details.get("stamp") is not False,
        incarnation=str(details.get("incarnation", "")),
        folder=target.path,
        title=str(details.get("title", "")),
        forked_from=str(details.get("from")),
    )


def _taken(wanted: Wanted) -> Exists:
    return Exists(
        f"{wanted.target.path} is there already: choose another id for the fork",
        session=wanted.target.session,
    )
