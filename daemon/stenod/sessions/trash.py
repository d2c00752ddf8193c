"""The trash of a session tree: deleted sessions until they expire.

    <tree>/.trash/1764000000.0199f1c2-5b36-7620-8000-18293a4b5c6d.team~planner-1

A name contains the time of deletion, the command's key and the session's id; there are no other
records. `restore` moves a folder back to its old place, and so can a person. Everything here
blocks.
"""

import contextlib
import errno
import re
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Final

import msgspec

from steno_protocol import limits, paths
from steno_protocol.commands import Delete, Trash, Undelete
from steno_protocol.errors import (
    BadRequest,
    Busy,
    ErrorCode,
    Exists,
    NotFound,
    OutcomeUnknown,
    StorageFailed,
)
from steno_protocol.replies import Deleted, Moved, TrashEntry, TrashReport
from steno_protocol.settings import Settings
from stenod.runtime.error_mapping import remedy_of
from stenod.sessions import metadata, moves
from stenod.sessions.moves import UNMOVED, Move, Record, Texts
from stenod.sessions.session_folders import (
    FLAT_CHARS_MAX,
    Place,
    SessionFolders,
    check_present,
    flat_id,
    lock_all,
)
from stenod.store.disk import Disk
from stenod.store.handles import close_with, closing
from stenod.store.names import remove_all

_NAME: Final = re.compile(r"([1-9][0-9]{0,11})\.([A-Za-z0-9_-]{1,64})\.(.+)", re.ASCII)


class _Entry(msgspec.Struct, frozen=True):
    """One name in the trash."""

    name: str
    at_s: int
    key: str
    session: str


def expiry_of(settings: Settings) -> float:
    """Return the time for which deleted sessions are kept, in seconds."""
    return settings.number("disk.trash_days") * limits.DAY_S


def find(trees: SessionFolders, place: Place, command: Delete, expiry_s: float) -> Deleted | None:
    """Return the first answer of an earlier, now durable deletion; None if there was none.

    Raises:
        BadRequest: the key deleted another session.
    """
    with contextlib.ExitStack() as held:
        trash = _open(held, trees, place)
        entry = None if trash is None else _with_key(trees, place, trash, command.key)
        if trash is None or entry is None:
            return None
        if entry.session != flat_id(place):
            raise BadRequest(
                f"the key {command.key!r} deleted another session, {entry.name}: a key names one"
                " command for ever; use a new one",
                session=place.session,
            )
        # The process that moved it may have died before the sync.
        trees.disk.fsync(trash)
        return _answer(place, entry, expiry_s)


def done_elsewhere(place: Place, path: str, expiry_s: float) -> Deleted | None:
    """Return the answer of a deletion by another daemon, whose trash has the files at a path."""
    entry = _entry_of(path.rpartition("/")[2])
    return None if entry is None else _answer(place, entry, expiry_s)


def has(trees: SessionFolders, place: Place) -> bool:
    """Whether a session with this id was deleted, by itself or with one above it."""
    flat = flat_id(place)
    with contextlib.ExitStack() as held:
        trash = _open(held, trees, place)
        return trash is not None and any(
            flat == entry.session or flat.startswith(f"{entry.session}~")
            for entry in _entries(trees.disk, trash)
        )


def _open(held: contextlib.ExitStack, trees: SessionFolders, place: Place) -> int | None:
    """Open the trash of the tree of a place; None if there is none."""
    disk = trees.disk
    with contextlib.suppress(FileNotFoundError):
        tree = close_with(held, disk, trees.open_tree(place))
        return close_with(held, disk, disk.open_folder(tree, paths.TRASH))
    return None


def discard(
    disk: Disk, trees: SessionFolders, place: Place, command: Delete, now: float, expiry_s: float
) -> Deleted:
    """Move a closed session and those below it to the trash; durable on return.

    Raises:
        NotFound: the session does not exist.
        Held: another daemon has it, or one below it, open.
        StorageFailed: its folder cannot be moved; it was not deleted.
        OutcomeUnknown: the disk failed during the move.
        OSError: the disk failed; it was not deleted.
    """
    with contextlib.ExitStack() as held:
        folder = close_with(held, disk, trees.open_folder(place))
        check_present(disk, folder, place)
        lock_all(held, disk, folder, place)
        tree = close_with(held, disk, trees.open_tree(place))
        trash = close_with(held, disk, disk.open_folder(tree, paths.TRASH, create=True))
        parent = close_with(held, disk, trees.open_parent(place))
        entry = _Entry("", int(now), command.key, flat_id(place))
        name = f"{entry.at_s}.{entry.key}.{entry.session}"
        try:
            _move(disk, parent, place, trash, name, entry.key)
            disk.fsync(trash)  # the deletion is durable from here on
            disk.fsync(parent)
        except OSError as error:
            raise OutcomeUnknown(
                f"the session may be in the trash, but the disk failed to sync it ({error}): send"
                " the command again with its key",
                session=place.session,
                code=ErrorCode.STORAGE_FAILED,
                key=command.key,
            ) from None
        return _answer(place, _Entry(name, entry.at_s, entry.key, entry.session), expiry_s)


def _move(disk: Disk, parent: int, place: Place, trash: int, name: str, key: str) -> None:
    try:
        disk.move(parent, place.segments[-1], trash, name, key)
    except OSError as error:
        if error.errno not in UNMOVED:
            raise
        # On an overlay a folder of the lower layer cannot be renamed.
        raise StorageFailed(
            f"{place.path} cannot be moved to the trash: {error}; it was not deleted,"
            f" {remedy_of(error)} and send the command again",
            session=place.session,
        ) from None


def restored(trees: SessionFolders, place: Place, command: Undelete) -> Moved | None:
    """Return the answer of an earlier, now durable restoration; None if there was none.

    Raises:
        BadRequest: the key belongs to another command.
        OutcomeUnknown: an earlier copy was cut short, and the session was moved since.
    """
    source = command.trash or ""
    if moves.has_arrived(trees, place, "undelete", command.key, source):
        return Moved(session=place.session, folder=place.path)
    return None


def restore(
    disk: Disk, trees: SessionFolders, place: Place, command: Undelete, now: float, expiry_s: float
) -> Moved:
    """Move a deleted session, and those deleted with it, back to its place; durable on return.

    Raises:
        NotFound: the trash has no such session, or it has expired.
        BadRequest: the folder in the trash has to be named, or belongs to another session.
        Exists: the place is taken.
        Busy: the folder is being removed.
        StorageFailed: the folder cannot be moved; it was not restored.
        OutcomeUnknown: the disk failed during or after the move.
        OSError: the disk failed; it was not restored.
    """
    with contextlib.ExitStack() as held:
        trash = _open(held, trees, place)
        if trash is None:
            raise _not_in_trash(place)
        entry = _chosen(disk, trash, place, command)
        if entry.at_s + expiry_s < now:
            # A part of it may be removed already.
            raise NotFound(
                f"{_path_of(place, entry)} has expired, and gc may have removed a part of it: look"
                " at its files, and move the folder back by hand if they are complete",
                session=place.session,
            )
        folder = close_with(held, disk, disk.open_folder(trash, entry.name))
        if not disk.lock(folder):
            raise Busy(
                f"{_path_of(place, entry)} is being removed or restored: try again in a moment",
                session=place.session,
            )
        trees.check_new(place)
        if trees.is_taken(place):
            raise _taken(place)
        tree = close_with(held, disk, trees.open_tree(place))
        found = held.enter_context(moves.opened(disk, tree, create=True))
        parent = close_with(held, disk, trees.open_parent(place, create=True, keep=True))
        record = Record(int(now), command.key, "undelete", entry.key)
        move = Move(entry.name, place.session, disk.stat(folder).inode)
        found.begin(record, move)
        texts = Texts(
            place.session, _taken(place).message, _path_of(place, entry), place.path, "restored"
        )
        moves.carry(disk, found, record, texts, trash, entry.name, parent, place.segments[-1])
        return Moved(session=place.session, folder=place.path)


def _chosen(disk: Disk, trash: int, place: Place, command: Undelete) -> _Entry:
    """Return the entry that a command names, or the latest deletion of its session."""
    flat, every = flat_id(place), list(_entries(disk, trash))
    if command.trash is not None:
        named = next((entry for entry in every if entry.name == command.trash), None)
        if named is not None and named.session != flat:
            raise BadRequest(
                f"{named.name} is the folder of another session: `steno sessions --trash` lists"
                " the deleted sessions",
                session=place.session,
            )
        found = [] if named is None else [named]
    elif len("~".join(place.segments)) > FLAT_CHARS_MAX:
        raise BadRequest(
            f"the trash has only the first {FLAT_CHARS_MAX} characters of an id, and this one is"
            " longer: name the folder in the trash, too (`steno undelete --trash`)",
            session=place.session,
        )
    else:
        found = [entry for entry in every if entry.session == flat]
    if found:
        return max(found, key=_order)
    above = [entry for entry in every if flat.startswith(f"{entry.session}~")]
    if above:
        session = max(above, key=_order).session.replace("~", "/")
        raise NotFound(
            f"the session was deleted with {session!r} above it, if at all: `steno undelete"
            f" {session}` restores both",
            session=place.session,
        )
    raise _not_in_trash(place)


def _order(entry: _Entry) -> tuple[int, int]:
    """Order deletions by time, those within a second by the times of their keys."""
    return entry.at_s, paths.key_time_ms(entry.key) or 0


def _not_in_trash(place: Place) -> NotFound:
    return NotFound(
        "the trash has no such session: `steno sessions --trash` lists the deleted ones",
        session=place.session,
    )


def _taken(place: Place) -> Exists:
    return Exists(
        f"{place.path} exists already: rename that session (`steno rename`) or delete it, then"
        " restore this one",
        session=place.session,
    )


def _with_key(trees: SessionFolders, place: Place, trash: int, key: str) -> _Entry | None:
    """Return the deletion with this key, in the trash or restored since."""
    entry = next((entry for entry in _entries(trees.disk, trash) if entry.key == key), None)
    if entry is not None:
        return entry
    with moves.of_tree(trees, place) as found:
        for record in found.all():
            is_restored = record.kind == "undelete" and record.subject == key
            move = found.read(record) if is_restored else None
            if move is not None:
                return _entry_of(move.source)
    return None


def report(disk: Disk, trees: SessionFolders, command: Trash, expiry_s: float) -> TrashReport:
    """List the deleted sessions of all trees, the latest deletion first, up to the limit."""
    found: list[tuple[int, str, str, _Entry]] = []
    for prefix, folder, _ in trees.trees:
        for entry in _entries_at(disk, str(folder)):
            session = prefix + entry.session.replace("~", "/")
            if session.startswith(command.prefix):
                found.append((-entry.at_s, f"{folder}/{paths.TRASH}", session, entry))
    found.sort(key=lambda each: (each[0], f"{each[1]}/{each[3].name}"))
    if command.after is not None:
        last = _order_of(command.after)
        found = [each for each in found if (each[0], f"{each[1]}/{each[3].name}") > last]
    shown = [
        _described(disk, trash, session, entry, expiry_s)
        for _, trash, session, entry in found[: command.limit]
    ]
    return TrashReport(entries=shown, more=len(found) > command.limit)


def _order_of(path: str) -> tuple[int, str]:
    """Return the place of an entry in the list, which may have been removed since."""
    entry = _entry_of(path.rpartition("/")[2])
    if entry is None:
        raise BadRequest(
            f"{path[:80]!r} is not the path of a deleted session: give one of the list"
        )
    return -entry.at_s, path


def _entries_at(disk: Disk, tree: str) -> list[_Entry]:
    """Return the entries in the trash of a tree; none if it is not readable."""
    with contextlib.suppress(OSError), closing(disk, disk.open_root(tree)) as folder:
        return _entries_in(disk, folder)
    return []


def _entries_in(disk: Disk, tree: int) -> list[_Entry]:
    """Return the entries in the trash of an open tree; none if it has none to open."""
    try:
        trash = disk.open_folder(tree, paths.TRASH)
    except OSError:
        return []
    with closing(disk, trash):
        return list(_entries(disk, trash))


def _described(disk: Disk, trash: str, session: str, entry: _Entry, expiry_s: float) -> TrashEntry:
    size, title = 0, ""
    path = f"{trash}/{entry.name}"
    with contextlib.suppress(OSError), closing(disk, disk.open_root(path)) as folder:
        context = disk.stat_name(folder, paths.CONTEXT)
        size = 0 if context is None else context.size
        title = metadata.read(disk, folder).title
    return TrashEntry(
        session=session,
        trash=path,
        bytes=size,
        deleted_at=float(entry.at_s),
        expires_at=entry.at_s + expiry_s,
        title=title,
    )


def expired(disk: Disk, tree: int, now: float, expiry_s: float) -> list[str]:
    """Return the names of the expired folders in the trash of a tree, the oldest first."""
    return _expired(_entries_in(disk, tree), now, expiry_s)


def deletions(disk: Disk, tree: int) -> list[tuple[str, float]]:
    """Return the folders in the trash of a tree, the latest first, each with its time."""
    entries = sorted(_entries_in(disk, tree), key=_order, reverse=True)
    return [(entry.name, float(entry.at_s)) for entry in entries]


def sweep(disk: Disk, tree: int, now: float, expiry_s: float) -> int:
    """Remove expired folders from the trash of a tree, the oldest first, and return their number.

    At most `TRASH_SWEEP_ENTRIES_MAX` are removed; the next sweep continues.
    """
    try:
        trash = disk.open_folder(tree, paths.TRASH)
    except OSError:
        return 0
    with closing(disk, trash):
        # Folders that cannot be removed do not count, so that they do not block the others.
        names = _expired(_entries(disk, trash), now, expiry_s)
        removed = (name for name in names if _is_removed(disk, trash, name))
        return sum(1 for _ in islice(removed, limits.TRASH_SWEEP_ENTRIES_MAX))


def remove(disk: Disk, tree: int, name: str) -> None:
    """Remove one folder from the trash of a tree, durably.

    Raises:
        OSError: a part of it may be left; the next sweep tries again.
    """
    with closing(disk, disk.open_folder(tree, paths.TRASH)) as trash:
        _remove(disk, trash, name)
        disk.fsync(trash)


def _expired(entries: Iterable[_Entry], now: float, expiry_s: float) -> list[str]:
    found = [entry for entry in entries if entry.at_s + expiry_s < now]
    return [entry.name for entry in sorted(found, key=lambda entry: entry.at_s)]


def _remove(disk: Disk, trash: int, name: str) -> None:
    with closing(disk, disk.open_folder(trash, name)) as folder:
        if not disk.lock(folder):
            raise BlockingIOError(errno.EAGAIN, "it is being restored or removed", name)
        remove_all(disk, folder)
    disk.remove_folder(trash, name)


def _is_removed(disk: Disk, trash: int, name: str) -> bool:
    try:
        _remove(disk, trash, name)
    except OSError:
        # A link or another user's file stays; the next sweep tries again.
        return False
    return True


def _entries(disk: Disk, trash: int) -> Iterator[_Entry]:
    for name in disk.names(trash):
        entry = _entry_of(name)
        if entry is not None:
            yield entry


def _entry_of(name: str) -> _Entry | None:
    match = _NAME.fullmatch(name)
    return None if match is None else _Entry(name, int(match[1]), match[2], match[3])


def _answer(place: Place, entry: _Entry, expiry_s: float) -> Deleted:
    return Deleted(trash=_path_of(place, entry), expires_at=entry.at_s + expiry_s)


def _path_of(place: Place, entry: _Entry) -> str:
    return f"{place.tree}/{paths.TRASH}/{entry.name}"
