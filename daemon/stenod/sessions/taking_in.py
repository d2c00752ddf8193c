"""Sessions taken in: a folder that a client prepared becomes a session by one move.

    <tree>/.imports/<key>/session/      the prepared folder, by the key of the command

1. The folder is locked, so that nobody removes a part of it. 2. Its contents are checked and
synced. 3. The record of the command is written and synced. 4. The folder moves, which is the
instant. 5. The folders above are synced, and the record is marked as complete.

A repeat of the command continues after a crash at any step. Everything here blocks.
"""

import contextlib
import errno
import os
from typing import NoReturn

import msgspec

from steno_protocol import limits, paths
from steno_protocol.commands import TakeIn
from steno_protocol.errors import BadRequest, Busy, Exists, NotFound
from stenod.sessions import moves
from stenod.sessions.moves import Move, Record, Texts
from stenod.sessions.session_folders import Place, SessionFolders, flat_id
from stenod.store.disk import Disk, FileStat
from stenod.store.handles import close_with, closing


class Wanted(msgspec.Struct, frozen=True):
    """A requested session.

    Attributes:
        command: the command.
        place: the place of the session.
    """

    command: TakeIn
    place: Place

    @property
    def prepared(self) -> str:
        """The path of the prepared folder."""
        folder = self.place.tree / paths.IMPORTS / self.command.key / paths.PREPARED
        return str(folder)


def find(trees: SessionFolders, wanted: Wanted) -> bool:
    """Whether an earlier copy of the command took the session in; durable on return.

    Raises:
        BadRequest: the key belongs to another command.
        OutcomeUnknown: an earlier copy was cut short, and the session was moved since.
    """
    key = wanted.command.key
    return moves.has_arrived(trees, wanted.place, "take_in", key, key)


def take_in(disk: Disk, trees: SessionFolders, wanted: Wanted, now: float) -> None:
    """Make a prepared folder a session; durable on return.

    Raises:
        NotFound: there is no prepared folder.
        BadRequest: it is no session, or it has what no session has.
        Busy: somebody removes it.
        Exists: the place is taken.
        StorageFailed: the folder cannot be moved; nothing was taken in.
        OutcomeUnknown: the disk failed during or after the move.
        OSError: the disk failed; nothing was taken in.
    """
    place, key = wanted.place, wanted.command.key
    with contextlib.ExitStack() as held:
        tree, nest, folder = _open_prepared(held, disk, trees, wanted)
        _check_guarded(disk.stat(nest), f"{place.tree}/{paths.IMPORTS}/{key}", place)
        _check_all(disk, folder, wanted.prepared, place)
        # Unlike a new session, it may come among uploads, or to the place of one in the old format:
        # the session was there before.
        if trees.is_taken(place):
            raise _taken(place)
        found = held.enter_context(moves.opened(disk, tree, create=True))
        parent = close_with(held, disk, trees.open_parent(place, create=True, keep=True))
        record = Record(int(now), key, "take_in", flat_id(place))
        found.begin(record, Move(key, place.session, disk.stat(folder).inode))
        texts = Texts(place.session, _taken(place).message, wanted.prepared, place.path, "taken in")
        moves.carry(disk, found, record, texts, nest, paths.PREPARED, parent, place.segments[-1])


def _open_prepared(
    held: contextlib.ExitStack, disk: Disk, trees: SessionFolders, wanted: Wanted
) -> tuple[int, int, int]:
    """Open the tree, the folder of the key, and the prepared session in it, which is locked."""
    place = wanted.place
    try:
        tree = close_with(held, disk, trees.open_tree(place))
        imports = close_with(held, disk, disk.open_folder(tree, paths.IMPORTS))
        nest = close_with(held, disk, disk.open_folder(imports, wanted.command.key))
        folder = close_with(held, disk, disk.open_folder(nest, paths.PREPARED))
        is_session = disk.stat_name(folder, paths.CONTEXT) is not None
    except FileNotFoundError:
        raise NotFound(
            f"nothing is prepared at {wanted.prepared}: prepare the session there, then send the"
            " command",
            session=place.session,
        ) from None
    except NotADirectoryError:
        raise BadRequest(f"{wanted.prepared} is no folder", session=place.session) from None
    if not is_session:
        raise BadRequest(
            f"{wanted.prepared} has no {paths.CONTEXT}, so it is no session: write one, even an"
            " empty one",
            session=place.session,
        )
    if not disk.lock(folder):
        raise Busy(
            f"{wanted.prepared} is locked, perhaps to be removed: try again in a moment",
            session=place.session,
        )
    return tree, nest, folder


def _check_all(
    disk: Disk, folder: int, path: str, place: Place, depth: int = limits.FOLDER_DEPTH_MAX
) -> None:
    """Check and sync a folder with everything in it.

    Raises:
        BadRequest: it has a link, a file of another user, or what is neither file nor folder.
    """
    if depth == 0:
        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), "its folders are nested too deep")
    _check_guarded(disk.stat(folder), path, place)
    for name in disk.names(folder):
        try:
            below = disk.open_folder(folder, name)
        except NotADirectoryError:
            _check_file(disk, folder, name, f"{path}/{name}", place)
            continue
        with closing(disk, below):
            _check_all(disk, below, f"{path}/{name}", place, depth - 1)
    disk.fsync(folder)


def _check_file(disk: Disk, folder: int, name: str, path: str, place: Place) -> None:
    try:
        handle = disk.open_read(folder, name)
    except PermissionError as error:
        _refuse(path, error.strerror or "it cannot be read", place)
    with closing(disk, handle):
        found = disk.stat(handle)
        _check_guarded(found, path, place)
        if found.links != 1:
            # A program could change the session by the other name.
            _refuse(path, "it has another name elsewhere", place)
        disk.fsync(handle)


def _check_guarded(found: FileStat, path: str, place: Place) -> None:
    if not found.is_guarded:
        _refuse(path, "another user may write to it", place)


def _refuse(path: str, why: str, place: Place) -> NoReturn:
    raise BadRequest(
        f"{path} is not taken in: {why}; a prepared session has only files and folders of the"
        " daemon's user, and no links",
        session=place.session,
    )


def _taken(place: Place) -> Exists:
    return Exists(
        f"{place.path} exists already: choose another id, or rename or delete that session first",
        session=place.session,
    )
