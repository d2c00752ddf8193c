"""Creation of forks: built aside, synced, and moved into place atomically.

The generations before the cut one never change, so the fork shares their files by hard links.
Positions, `_at` and checkpoint ids mean the same in both sessions. Everything here blocks.
"""

import contextlib
import errno
import re
from collections.abc import Callable, Iterator
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
from stenod.sessions.fork_point import Instant, Snapshot, cut
from stenod.sessions.moves import TAKEN
from stenod.sessions.session_folders import Place, SessionFolders
from stenod.sessions.streams import StreamPart
from stenod.store.disk import Disk
from stenod.store.handles import FileView, close_with, closing, viewed, write_new
from stenod.store.names import deleted_streams, read_file, remove_all, stat_stored_file

_UPLOAD: Final = re.compile(rb'uploads/([^"\\<>\s/]+)')
_SENT: Final = ".sent"
"""A list beside the uploads of those that the model has seen; kimi-cli sends the others."""

_NO_LINK: Final = (errno.EXDEV, errno.EPERM, errno.EMLINK, errno.EOPNOTSUPP)
"""Errors of a hard link that the file system does not allow."""


class Wanted(msgspec.Struct, frozen=True):
    """A requested fork.

    Attributes:
        command: the command.
        source: the place of the source.
        target: the place of the fork.
        incarnation: the fork's incarnation.
        stamp: whether its lines have stamps.
        now: Unix time in seconds.
    """

    command: Fork
    source: Place
    target: Place
    incarnation: str
    stamp: bool
    now: float


def find(disk: Disk, trees: SessionFolders, wanted: Wanted) -> SessionStat | None:
    """Return the first answer of an earlier, now durable fork; None if its place is free.

    Raises:
        Exists: another session has this place.
        BadRequest: the key belongs to a fork of another source.
    """
    try:
        folder = trees.open_folder(wanted.target)
    except NotFound:
        return None
    with closing(disk, folder):
        if disk.stat_name(folder, paths.CONTEXT) is None:
            return None
        entries = timeline.decode(read_file(disk, folder, paths.TIMELINE))
        entry = next((each for each in entries if each.kind == timeline_entries.FORKED), None)
        if entry is None or entry.key != wanted.command.key:
            raise _taken(wanted)
        if entry.details.get("from") != wanted.source.session:
            raise BadRequest(
                f"the key {wanted.command.key!r} belongs to a fork of"
                f" {entry.details.get('from')!r}: a key names one command for ever; use a new one",
                session=wanted.source.session,
            )
        trees.sync_parent(wanted.target, create=True)
        return _answer(disk, folder, entries, entry, wanted.target)


def check_key(wanted: Wanted, entries: list[TimelineEntry]) -> None:
    """Refuse a key that created another fork, or one that was deleted.

    Raises:
        BadRequest: the key created a fork with another id.
        NotFound: the key created this fork, which was deleted since.
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
    raise gone(wanted)


def gone(wanted: Wanted) -> NotFound:
    """Return the error for a repeat of a fork that is not there any more."""
    return NotFound(
        f"the fork {wanted.target.session!r} was created with this key and was deleted: use a new"
        " key to create it again",
        session=wanted.source.session,
    )


def is_recorded(wanted: Wanted, entries: list[TimelineEntry]) -> bool:
    """Whether the source's timeline has an entry of this fork."""
    return _recorded_entry(wanted, entries) is not None


def make(disk: Disk, trees: SessionFolders, source: Snapshot, wanted: Wanted) -> SessionStat:
    """Create a fork atomically; durable on return.

    Raises:
        BadRequest, NotFound: the instant does not exist, or the fork's id is not allowed.
        Exists: the fork's place is taken.
        Busy: the same fork is being created, or its source was recreated meanwhile.
        OutcomeUnknown: the disk failed after the fork was in place.
        OSError: the disk failed; no fork was created.
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
            # Leftovers only take room, and the next start of a daemon removes them.
            with contextlib.suppress(OSError):
                remove_all(disk, nest)
                disk.remove_folder(forks, wanted.command.key)
    return _made(disk, trees, wanted)


def _made(disk: Disk, trees: SessionFolders, wanted: Wanted) -> SessionStat:
    """Return the answer of a fork that is in place and cannot be undone."""
    try:
        answer = find(disk, trees, wanted)
    except OSError as error:
        raise OutcomeUnknown(
            f"the fork {wanted.target.session!r} is in place, but the disk failed to sync it"
            f" ({error}): send the command again with its key",
            session=wanted.source.session,
            code=ErrorCode.STORAGE_FAILED,
            key=wanted.command.key,
        ) from None
    if answer is None:
        raise NotFound(
            f"the fork {wanted.target.session!r} was created, and another program removed it: fork"
            " again with a new key",
            session=wanted.source.session,
        )
    return answer


def source_entry(wanted: Wanted, made: SessionStat) -> TimelineEntry:
    """Return the entry of a fork for its source's timeline."""
    return TimelineEntry(
        kind=timeline_entries.FORK,
        generation=Position.parse(made.head).generation,
        at=wanted.now,
        by=wanted.command.by,
        claim=wanted.command.claim,
        key=wanted.command.key,
        details={"to": made.session, "at": made.head},
    )


def remove_abandoned(disk: Disk, tree: int, above: str, is_under_way: Callable[[str], bool]) -> int:
    """Remove the unlocked folders of unfinished sessions, and return their number.

    Args:
        disk: the disk.
        tree: the open folder of the sessions.
        above: the name of the folder in the tree that has them, each named by the key of a command.
        is_under_way: whether this daemon serves a command with that key now. Its maker locks the
            folder, but not in the same instant in which it creates it.
    """
    try:
        nests = disk.open_folder(tree, above)
    except OSError:
        return 0
    with closing(disk, nests):
        names = [name for name in disk.names(nests) if not is_under_way(name)]
        return sum(_remove_left(disk, nests, name) for name in names)


def _remove_left(disk: Disk, nests: int, name: str) -> bool:
    try:
        with contextlib.ExitStack() as held:
            nest = close_with(held, disk, disk.open_folder(nests, name))
            if not disk.lock(nest) or not _lock_built(held, disk, nest):
                return False
            remove_all(disk, nest)
            disk.remove_folder(nests, name)
    except OSError:
        # It stays until the next sweep.
        return False
    return True


def _lock_built(held: contextlib.ExitStack, disk: Disk, nest: int) -> bool:
    """Lock the unfinished session; False if a command moves it to its place now."""
    if disk.stat_name(nest, paths.PREPARED) is None:
        return True
    return disk.lock(close_with(held, disk, disk.open_folder(nest, paths.PREPARED)))


def _recorded_entry(wanted: Wanted, entries: list[TimelineEntry]) -> TimelineEntry | None:
    key = wanted.command.key
    return next(
        (entry for entry in entries if entry.kind == timeline_entries.FORK and entry.key == key),
        None,
    )


def _own_nest(disk: Disk, forks: int, wanted: Wanted) -> int:
    """Open and lock the folder in which this fork is built."""
    key = wanted.command.key
    nest = disk.open_folder(forks, key, create=True)
    named = disk.stat_name(forks, key)
    if disk.lock(nest) and named is not None and named.inode == disk.stat(nest).inode:
        return nest
    disk.close(nest)
    raise Busy("this fork is being created: try again in a moment", session=wanted.source.session)


def _build(
    disk: Disk, trees: SessionFolders, source: Snapshot, chosen: Instant, wanted: Wanted, nest: int
) -> None:
    """Build the fork's folder; all of it is durable except its place."""
    with contextlib.ExitStack() as held:
        origin = close_with(held, disk, trees.open_folder(wanted.source))
        _check_same(disk, origin, source)
        folder = close_with(held, disk, disk.open_folder(nest, paths.PREPARED, create=True))
        for number in range(1, chosen.at.generation + 1):
            _share(disk, origin, folder, paths.generation_file(number))
        with source.view(chosen.at.generation) as view:
            _put(disk, folder, paths.CONTEXT, view, chosen.size)
            entries = list(_entries(source, chosen, view))
        if chosen.wire_size:
            _put(disk, folder, paths.WIRE, source.wire, chosen.wire_size)
        for part in source.streams:
            _copy_stream(disk, origin, folder, part, wanted)
        _copy_uploads(disk, origin, folder, _mentioned(source.wire, chosen.wire_size))
        title = _title(disk, origin, wanted)
        lines = [*entries, _first_entry(source, chosen, wanted, title)]
        write_new(disk, folder, paths.TIMELINE, b"".join(map(timeline.encode, lines)))
        described = {"custom_title": title, "title_generated": True} if title else {}
        state = {"version": 1, **described, "forked_from": wanted.source.session}
        metadata.save(disk, folder, state)
        disk.fsync(folder)


def _copy_stream(disk: Disk, origin: int, folder: int, part: StreamPart, wanted: Wanted) -> None:
    """Copy a stream as it was at the snapshot, with its generation.

    Raises:
        Busy: the stream was deleted meanwhile; no fork was created.
    """
    name = paths.stream_file(part.stream)
    named = stat_stored_file(disk, origin, name)
    if named is None or named.inode != part.inode:
        raise Busy(
            f"the stream {part.stream!r} was deleted or compressed while the session was being"
            " forked: try again",
            session=wanted.source.session,
        )
    with viewed(disk, origin, name, part.bytes) as view:
        _put(disk, folder, name, view, part.bytes)
    for deleted in deleted_streams(disk, origin, part.stream)[-1:]:
        # An empty file is enough: its number is the generation of the positions.
        write_new(disk, folder, deleted.file, b"")


def _check_same(disk: Disk, origin: int, source: Snapshot) -> None:
    """Refuse to continue if another session has taken the source's place.

    A later deletion moves the source, and the open folder stays valid.

    Raises:
        Busy: another session is there; nothing was created.
    """
    entries = timeline.decode(read_file(disk, origin, paths.TIMELINE))
    if timeline.incarnation_of(entries) != source.incarnation:
        raise Busy(
            "the session was deleted and created again while it was being forked: try again",
            session=source.session,
        )


def _put_in_place(
    disk: Disk, trees: SessionFolders, nest: int, parent: int, wanted: Wanted
) -> None:
    """Move the fork into place atomically; durable once the parent is synced."""
    try:
        disk.move(nest, paths.PREPARED, parent, wanted.target.segments[-1], wanted.command.key)
    except OSError as error:
        if error.errno in TAKEN:
            raise _taken(wanted) from None
        # A failing disk may have moved it all the same.
        if disk.stat_name(nest, paths.PREPARED) is None:
            _made(disk, trees, wanted)
            return
        raise


def _share(disk: Disk, origin: int, folder: int, name: str) -> None:
    """Share an unchanging file by a hard link; copy it if links are not possible."""
    # A file that is compressed meanwhile gets the second name before it loses the first one.
    for each in (name, paths.compressed_file(name)):
        try:
            disk.link(origin, each, each, into=folder)
        except FileNotFoundError:
            continue
        except OSError as error:
            if error.errno not in _NO_LINK:
                raise
            _copy(disk, origin, folder, name)
        return
    # Another program removed it, so neither session has it.


def _copy(disk: Disk, origin: int, folder: int, name: str) -> None:
    with viewed(disk, origin, name) as view:
        _put(disk, folder, name, view, view.size)


def _put(disk: Disk, folder: int, name: str, view: FileView, size: int) -> None:
    with closing(disk, disk.open_new(folder, name)) as handle:
        view.copy(handle, size)
        disk.fsync(handle)


def _entries(source: Snapshot, chosen: Instant, view: FileView) -> Iterator[TimelineEntry]:
    """Yield the rewrites up to the instant, which locate checkpoints and first answers."""
    for entry in source.timeline:
        if entry.kind not in timeline_entries.REWRITES or entry.generation > chosen.at.generation:
            continue
        is_last = entry.generation == chosen.at.generation
        yield _shortened(entry, chosen, view) if is_last else entry


def _shortened(entry: TimelineEntry, chosen: Instant, view: FileView) -> TimelineEntry:
    """Shorten the last rewrite's entry if the cut leaves fewer lines than it wrote."""
    lines: Any = entry.details.get("lines", 0)
    if not isinstance(lines, int) or lines <= chosen.at.line:
        return entry
    start = max(0, chosen.size - limits.FINGERPRINT_BYTES)
    new = timeline.fingerprint(chosen.size, view.read(chosen.size - start, start))
    details = {**entry.details, "lines": chosen.at.line, "new": new}
    kept = min(entry.kept, chosen.at.line)
    return msgspec.structs.replace(entry, kept=kept, details=details)


def _first_entry(source: Snapshot, chosen: Instant, wanted: Wanted, title: str) -> TimelineEntry:
    return TimelineEntry(
        kind=timeline_entries.FORKED,
        generation=chosen.at.generation,
        kept=chosen.at.line,
        at=wanted.now,
        by=wanted.command.by,
        claim=wanted.command.claim,
        key=wanted.command.key,
        details={
            "incarnation": wanted.incarnation,
            "stamp": wanted.stamp,
            "from": source.session,
            "at": str(chosen.at),
            "bytes": chosen.size,
            "wire_at": f"0:{chosen.wire_lines}",
            "title": title,
            "origins": _origins(source, chosen.at),
            **({"checkpoint_id": chosen.next_id} if chosen.next_id else {}),
            **({} if source.reuses_ids else {"next_id": source.next_id}),
        },
    )


def _origins(source: Snapshot, at: Position) -> list[tuple[str, str]]:
    """Return the incarnations that share lines with the fork, the source first."""
    found = {source.incarnation: at}
    for entry in source.timeline:
        if entry.kind == timeline_entries.FORKED:
            for incarnation, end in checkpoint_ids.origins(entry).items():
                found.setdefault(incarnation, min(end, at))
    newest = list(found.items())[: limits.FORK_ORIGINS_MAX]
    return [(incarnation, str(end)) for incarnation, end in newest]


def _title(disk: Disk, origin: int, wanted: Wanted) -> str:
    if wanted.command.title is not None:
        return wanted.command.title
    title = metadata.read(disk, origin).title
    return f"Fork: {title}"[: limits.TITLE_CHARS_MAX] if title else ""


def _mentioned(wire: FileView, size: int) -> set[str]:
    """Return the names of uploads that the kept lines of the wire file mention."""
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
        write_new(disk, copies, _SENT, msgspec.json.encode(copied))
        disk.fsync(copies)


def _copied(disk: Disk, uploads: int, copies: int, name: str) -> bool:
    try:
        _copy(disk, uploads, copies, name)
    except PermissionError:
        # A folder, a link or another user's file is not an upload.
        return False
    return True


def _answer(
    disk: Disk, folder: int, entries: list[TimelineEntry], entry: TimelineEntry, target: Place
) -> SessionStat:
    """Return the numbers of a fork at its creation, whatever changed since."""
    details = entry.details
    at, size = Position.parse(str(details["at"])), int(details["bytes"])
    is_present = crash_recovery.present_generation(disk, folder) == at.generation
    name = paths.CONTEXT if is_present else paths.generation_file(at.generation + 1)
    replay = Replay()
    with viewed(disk, folder, name, size) as view:
        for _, block in blocks_of(view.read):
            replay.feed(block)
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
        f"{wanted.target.path} exists already: choose another id for the fork",
        session=wanted.target.session,
    )
