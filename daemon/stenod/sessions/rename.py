"""Renames of sessions: one move of the folder, recorded by the key of its command.

1. The session and those below it are locked. 2. The record of the command is written and synced.
3. The folder moves, which is the instant. 4. The folders above it are synced. 5. The record is
marked as complete, after the rename is in the session's timeline.

A repeat of the command continues after a crash at any step. Everything here blocks.
"""

import contextlib

import msgspec

from steno_protocol import limits
from steno_protocol.commands import Rename
from steno_protocol.errors import BadRequest, Exists, NotFound
from steno_protocol.replies import Moved
from stenod.sessions import moves
from stenod.sessions.moves import Move, Record, Texts
from stenod.sessions.session_folders import Place, SessionFolders, check_present, flat_id, lock_all
from stenod.store.disk import Disk
from stenod.store.handles import close_with


class Renamed(msgspec.Struct, frozen=True):
    """A rename that took place.

    Attributes:
        answer: the reply.
        is_complete: the rename is in the session's timeline, and its record is complete.
    """

    answer: Moved
    is_complete: bool = False


class Wanted(msgspec.Struct, frozen=True):
    """A requested rename.

    Attributes:
        command: the command.
        source: the present place of the session.
        target: its new place.
    """

    command: Rename
    source: Place
    target: Place

    def move(self, inode: int = 0) -> Move:
        """Return the contents of its record."""
        by, claim = self.command.by, self.command.claim
        return Move(self.source.session, self.target.session, inode, by, claim)


def check(wanted: Wanted) -> None:
    """Refuse a rename between two ids that no session can move between.

    Raises:
        BadRequest: the new id is the old one, below it, or in another tree.
        Exists: the new id is above the old one.
    """
    source, target = wanted.source, wanted.target
    if source.tree != target.tree:
        raise BadRequest(
            "a rename stays in the root or the mount of its session: to move the session there,"
            f" fork it as {target.session!r} and delete it here",
            session=source.session,
        )
    if target.is_within(source):
        raise BadRequest(
            f"{target.session!r} is the session itself or lies below it: choose another id",
            session=source.session,
        )
    if source.is_within(target):
        raise _taken(target)


def find(trees: SessionFolders, wanted: Wanted) -> Renamed | None:
    """Return the result of an earlier copy of the command, now durable; None if there is none.

    Raises:
        BadRequest: the key belongs to another command.
        OutcomeUnknown: an earlier copy was cut short, and the session was moved since.
    """
    source, target, key = wanted.source, wanted.target, wanted.command.key
    with moves.of_tree(trees, source) as found:
        record = found.with_key(key)
        if record is None:
            return None
        move = found.read(record)
        moves.check_same(record, move, "rename", source.session, wanted.move())
        if move is None:
            return None
        if record.is_done:
            return Renamed(_answer(target), is_complete=True)
        if trees.inode(target) == move.inode:
            # The process that moved it may have died before the syncs.
            for place in (target, source):
                # The folder above the old place may have been removed since.
                with contextlib.suppress(NotFound):
                    trees.sync_parent(place)
            return Renamed(_answer(target))
        if trees.inode(source) != move.inode:
            raise moves.unknown(source.session, key, move)
    return None


def rename(disk: Disk, trees: SessionFolders, wanted: Wanted, now: float) -> Renamed:
    """Rename a closed session and those below it; durable on return.

    Raises:
        NotFound: the session does not exist.
        BadRequest: no session can have the new id.
        Exists: the new id is taken.
        Held: another daemon has the session, or one below it, open.
        StorageFailed: its folder cannot be moved; it was not renamed.
        OutcomeUnknown: the disk failed during or after the move.
        OSError: the disk failed; it was not renamed.
    """
    source, target, key = wanted.source, wanted.target, wanted.command.key
    with contextlib.ExitStack() as held:
        folder = close_with(held, disk, trees.open_folder(source))
        check_present(disk, folder, source)
        lock_all(held, disk, folder, source)
        trees.check_new(target)
        if trees.is_taken(target):
            raise _taken(target)
        tree = close_with(held, disk, trees.open_tree(source))
        found = held.enter_context(moves.opened(disk, tree, create=True))
        parent = close_with(held, disk, trees.open_parent(source))
        new_parent = close_with(held, disk, trees.open_parent(target, create=True, keep=True))
        record = Record(int(now), key, "rename", flat_id(source))
        found.begin(record, wanted.move(disk.stat(folder).inode))
        texts = Texts(source.session, _taken(target).message, source.path, target.path, "renamed")
        old, new = source.segments[-1], target.segments[-1]
        moves.carry(disk, found, record, texts, parent, old, new_parent, new)
    return Renamed(_answer(target))


def done_elsewhere(trees: SessionFolders, wanted: Wanted) -> Renamed:
    """Return the result of a rename that the cluster has, whichever daemon did it."""
    is_complete = moves.is_complete(trees, wanted.source, wanted.command.key)
    return Renamed(_answer(wanted.target), is_complete=is_complete)


def incomplete(trees: SessionFolders, place: Place) -> list[tuple[str, Move]]:
    """Return key and contents of each rename that led to this place and was not completed."""
    inode = trees.inode(place)
    with moves.of_tree(trees, place) as found:
        left: list[tuple[str, Move]] = []
        for record in found.all():
            is_open = record.kind == "rename" and not record.is_done
            move = found.read(record) if is_open else None
            if move is not None and (move.inode, move.target) == (inode, place.session):
                left.append((record.key, move))
        return left


def finish(trees: SessionFolders, place: Place, key: str) -> None:
    """Mark a rename in the tree of a place as complete; durable on return."""
    with moves.of_tree(trees, place) as found:
        record = found.with_key(key)
        if record is not None and not record.is_done:
            found.finish(record)


def new_id(trees: SessionFolders, place: Place) -> str | None:
    """Return the present id of a session that had this id; None if it was not renamed."""
    found: str | None = None
    for _ in range(limits.RENAMES_FOLLOWED_MAX):
        following = _next_id(trees, place)
        if following is None:
            break
        found, place = following, trees.place(following)
    return found


def _next_id(trees: SessionFolders, place: Place) -> str | None:
    """Return the id that a session got by its latest rename, or by one of a session above it."""
    flat = flat_id(place)
    with moves.of_tree(trees, place) as found:
        renames = [
            record
            for record in found.all()
            if record.kind == "rename"
            and (flat == record.subject or flat.startswith(f"{record.subject}~"))
        ]
        for record in sorted(renames, key=lambda record: record.at_s, reverse=True):
            move = found.read(record)
            if move is not None and f"{place.session}/".startswith(f"{move.source}/"):
                return move.target + place.session.removeprefix(move.source)
    return None


def _answer(target: Place) -> Moved:
    return Moved(session=target.session, folder=target.path)


def _taken(target: Place) -> Exists:
    return Exists(
        f"{target.path} exists already: choose another id, or rename or delete that session first",
        session=target.session,
    )
