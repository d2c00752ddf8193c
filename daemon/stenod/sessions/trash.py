"""The trash of a session tree: deleted sessions until they expire.

    <tree>/.trash/1764000000.0199f1c2-5b36-7620-8000-18293a4b5c6d.team~planner-1

A name contains the time of deletion, the command's key and the session's id; there are no other
records. To restore a session, stop using its id and move the folder to its old place. Everything
here blocks.
"""

import contextlib
import errno
import re
from collections.abc import Iterator
from itertools import islice
from typing import Final

import msgspec

from steno_protocol import limits, paths
from steno_protocol.commands import Delete
from steno_protocol.errors import BadRequest, ErrorCode, Held, OutcomeUnknown, StorageFailed
from steno_protocol.replies import Deleted
from steno_protocol.settings import Settings
from stenod.runtime.error_mapping import remedy_of
from stenod.sessions.session_folders import Place, SessionFolders, no_present
from stenod.store.disk import Disk, close_with
from stenod.store.names import remove_all

_NAME: Final = re.compile(r"([1-9][0-9]{0,11})\.([A-Za-z0-9_-]{1,64})\.(.+)", re.ASCII)
_ID_CHARS_MAX: Final = 128
"""Characters of the id in a name, so that the name has at most a file system's 255 bytes."""

_UNMOVED: Final = (errno.EXDEV, errno.EACCES, errno.EPERM, errno.EROFS, errno.EBUSY)
"""Errors of a folder's move after which the folder is at its old place."""


class _Entry(msgspec.Struct, frozen=True):
    """One name in the trash."""

    name: str
    at_s: int
    key: str
    session: str


def expiry_of(settings: Settings) -> float:
    """Return the time for which deleted sessions are kept, in seconds."""
    return settings.number("disk.trash_days") * limits.DAY_S


def find(
    disk: Disk, trees: SessionFolders, place: Place, command: Delete, expiry_s: float
) -> Deleted | None:
    """Return the first answer of an earlier, now durable deletion; None if there was none.

    Raises:
        BadRequest: the key deleted another session.
    """
    with contextlib.ExitStack() as held:
        try:
            tree = close_with(held, disk, trees.open_tree(place))
            trash = close_with(held, disk, disk.open_folder(tree, paths.TRASH))
        except FileNotFoundError:
            return None
        entry = next((e for e in _entries(disk, trash) if e.key == command.key), None)
        if entry is None:
            return None
        if entry.session != _flat(place):
            raise BadRequest(
                f"the key {command.key!r} deleted another session, {entry.name}: a key names one"
                " command for ever; use a new one",
                session=place.session,
            )
        # The process that moved it may have died before the sync.
        disk.fsync(trash)
        return _answer(place, entry, expiry_s)


def has(disk: Disk, trees: SessionFolders, place: Place) -> bool:
    """Whether a session with this id was deleted, by itself or with one above it."""
    flat = _flat(place)
    with contextlib.ExitStack() as held:
        try:
            tree = close_with(held, disk, trees.open_tree(place))
            trash = close_with(held, disk, disk.open_folder(tree, paths.TRASH))
        except FileNotFoundError:
            return False
        return any(
            flat == entry.session or flat.startswith(f"{entry.session}~")
            for entry in _entries(disk, trash)
        )


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
        if disk.stat_name(folder, paths.CONTEXT) is None:
            raise no_present(disk, folder, place)
        _lock_all(held, disk, folder, place)
        tree = close_with(held, disk, trees.open_tree(place))
        trash = close_with(held, disk, disk.open_folder(tree, paths.TRASH, create=True))
        parent = close_with(held, disk, trees.open_parent(place))
        entry = _Entry("", int(now), command.key, _flat(place))
        name = f"{entry.at_s}.{entry.key}.{entry.session}"
        try:
            _move(disk, parent, place, trash, name)
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


def _move(disk: Disk, parent: int, place: Place, trash: int, name: str) -> None:
    try:
        disk.move(parent, place.segments[-1], trash, name)
    except OSError as error:
        if error.errno not in _UNMOVED:
            raise
        # On an overlay a folder of the lower layer cannot be renamed.
        raise StorageFailed(
            f"{place.path} cannot be moved to the trash: {error}; it was not deleted,"
            f" {remedy_of(error)} and send the command again",
            session=place.session,
        ) from None


def expired(disk: Disk, tree: int, now: float, expiry_s: float) -> list[str]:
    """Return the names of the expired folders in the trash of a tree, the oldest first."""
    try:
        trash = disk.open_folder(tree, paths.TRASH)
    except OSError:
        return []
    try:
        return _expired(disk, trash, now, expiry_s)
    finally:
        disk.close(trash)


def sweep(disk: Disk, tree: int, now: float, expiry_s: float) -> int:
    """Remove expired folders from the trash of a tree, the oldest first, and return their number.

    At most `TRASH_SWEEP_ENTRIES_MAX` are removed; the next sweep continues.
    """
    try:
        trash = disk.open_folder(tree, paths.TRASH)
    except OSError:
        return 0
    try:
        # Folders that cannot be removed do not count, so that they do not block the others.
        removed = (
            name for name in _expired(disk, trash, now, expiry_s) if _is_removed(disk, trash, name)
        )
        return sum(1 for _ in islice(removed, limits.TRASH_SWEEP_ENTRIES_MAX))
    finally:
        disk.close(trash)


def remove(disk: Disk, tree: int, name: str) -> None:
    """Remove one folder from the trash of a tree, durably.

    Raises:
        OSError: a part of it may be left; the next sweep tries again.
    """
    trash = disk.open_folder(tree, paths.TRASH)
    try:
        _remove(disk, trash, name)
        disk.fsync(trash)
    finally:
        disk.close(trash)


def _expired(disk: Disk, trash: int, now: float, expiry_s: float) -> list[str]:
    entries = [entry for entry in _entries(disk, trash) if entry.at_s + expiry_s < now]
    return [entry.name for entry in sorted(entries, key=lambda entry: entry.at_s)]


def _remove(disk: Disk, trash: int, name: str) -> None:
    folder = disk.open_folder(trash, name)
    try:
        remove_all(disk, folder)
    finally:
        disk.close(folder)
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
        match = _NAME.fullmatch(name)
        if match is not None:
            yield _Entry(name, int(match[1]), match[2], match[3])


def _lock_all(held: contextlib.ExitStack, disk: Disk, folder: int, place: Place) -> None:
    """Lock a session and those below it, so that no daemon opens one."""
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
        _lock_all(held, disk, below, place)


def _answer(place: Place, entry: _Entry, expiry_s: float) -> Deleted:
    trash = f"{place.tree}/{paths.TRASH}/{entry.name}"
    return Deleted(trash=trash, expires_at=entry.at_s + expiry_s)


def _flat(place: Place) -> str:
    return "~".join(place.segments)[:_ID_CHARS_MAX]
