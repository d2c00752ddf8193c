"""Records of renames, restorations and sessions taken in, by the keys of their commands.

    <tree>/.moves/1764000000.0199f1c2-5b36-7620-8000-18293a4b5c6d.renamed.team~planner-1
    {"source":"team/planner-1","target":"team/planner-2","inode":812}

A session moves in one system call, which leaves no trace of its command. The record is therefore
written before the move, as `rename`, `undelete` or `take_in`, and gets its final name, `renamed`,
`undeleted` or `taken_in`, when all of the command is durable. The inode of the session's folder
shows in between whether the move took place; in a cluster the journal decides that. Records expire
with the trash.
Everything here blocks.
"""

import contextlib
import errno
import re
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from itertools import islice
from typing import Final, Literal

import msgspec

from steno_protocol import limits, paths
from steno_protocol.errors import (
    BadRequest,
    ErrorCode,
    Exists,
    OutcomeUnknown,
    StenoError,
    StorageFailed,
)
from stenod.runtime.error_mapping import remedy_of
from stenod.sessions.session_folders import Place, SessionFolders
from stenod.store.disk import Disk
from stenod.store.handles import CLOSED, close_with, write_new
from stenod.store.names import read_file, remove

Kind = Literal["rename", "undelete", "take_in"]

_DONE: Final[dict[Kind, str]] = {
    "rename": "renamed",
    "undelete": "undeleted",
    "take_in": "taken_in",
}
_STATES: Final[dict[str, tuple[Kind, bool]]] = {
    **{kind: (kind, False) for kind in _DONE},
    **{done: (kind, True) for kind, done in _DONE.items()},
}
"""The kind of a record by the word in its name, and whether its command is complete."""

_NAME: Final = re.compile(
    rf"([1-9][0-9]{{0,11}})\.([A-Za-z0-9_-]{{1,64}})\.({'|'.join(_STATES)})\.(.+)", re.ASCII
)

TAKEN: Final = (errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR)
"""Errors of a folder's move onto a name that is taken."""

UNMOVED: Final = (errno.EXDEV, errno.EACCES, errno.EPERM, errno.EROFS, errno.EBUSY)
"""Errors of a folder's move after which the folder is at its old place."""


class Move(msgspec.Struct, frozen=True, omit_defaults=True):
    """The contents of a record.

    Attributes:
        source: the old id of the session, the name of its folder in the trash, or the key below
            which it was prepared.
        target: its new id.
        inode: the inode of its folder, which a move keeps.
        by: the client that renames, for the session's timeline.
        claim: the name that it claims, if it is on another machine.
    """

    source: str
    target: str
    inode: int
    by: str | None = None
    claim: str | None = None


class Record(msgspec.Struct, frozen=True):
    """The name of a record.

    Attributes:
        at_s: Unix time of the command.
        key: the key of the command.
        kind: its kind.
        subject: the beginning of the old id in a flat form, or the key of the deletion.
        is_done: the command is complete.
    """

    at_s: int
    key: str
    kind: Kind
    subject: str
    is_done: bool = False

    @property
    def name(self) -> str:
        """The name of its file."""
        state = _DONE[self.kind] if self.is_done else self.kind
        return f"{self.at_s}.{self.key}.{state}.{self.subject}"

    @property
    def done(self) -> "Record":
        """The same for the complete command."""
        return msgspec.structs.replace(self, is_done=True)


class Texts(msgspec.Struct, frozen=True):
    """What the sender of a command is told if its session cannot move.

    Attributes:
        session: the session of the command.
        taken: the place is taken.
        source: the folder.
        target: its new place.
        done: what was not done if the folder cannot be moved, as `renamed`.
    """

    session: str
    taken: str
    source: str
    target: str
    done: str


_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(Move).decode


class Moves:
    """The records of one tree.

    Args:
        disk: the disk that the tree lies on.
        folder: the open folder of the records; `CLOSED` without any.
    """

    def __init__(self, disk: Disk, folder: int) -> None:
        self._disk = disk
        self._folder = folder

    def with_key(self, key: str) -> Record | None:
        """Return the record of a command, a complete one rather than another."""
        found = [record for record in self.all() if record.key == key]
        return max(found, key=lambda record: record.is_done, default=None)

    def all(self) -> Iterator[Record]:
        """Yield all records."""
        for name in self._disk.names(self._folder) if self._folder != CLOSED else ():
            match = _NAME.fullmatch(name)
            if match is not None:
                kind, is_done = _STATES[match[3]]
                yield Record(int(match[1]), match[2], kind, match[4], is_done)

    def read(self, record: Record) -> Move | None:
        """Read a record; None if its writer died before it was whole, and nothing was moved."""
        try:
            return _decode(read_file(self._disk, self._folder, record.name))
        except (msgspec.DecodeError, UnicodeDecodeError):
            return None

    def begin(self, record: Record, move: Move) -> None:
        """Write the record of a command that is about to move a session; durable on return."""
        self._settle(record, move)
        write_new(self._disk, self._folder, record.name, _encode(move))
        self._disk.fsync(self._folder)

    def finish(self, record: Record) -> None:
        """Mark a command as complete; durable on return."""
        self._disk.rename(self._folder, record.name, record.done.name)
        self._disk.fsync(self._folder)

    def forget(self, record: Record) -> None:
        """Remove the record of a command that moved nothing; a failure leaves it harmless."""
        with contextlib.suppress(OSError):
            self._disk.unlink(self._folder, record.name)

    def expire(self, now: float, expiry_s: float) -> int:
        """Remove expired records, and return their number."""
        expired = [record for record in self.all() if record.at_s + expiry_s < now]
        removed = 0
        for record in islice(expired, limits.MOVES_SWEEP_MAX):
            self._disk.unlink(self._folder, record.name)
            removed += 1
        return removed

    def _settle(self, record: Record, move: Move) -> None:
        """Decide about earlier incomplete commands of a session before it moves on by a rename.

        Afterwards its inode would no longer show which of them took place. A restoration leaves
        them: it brings the session back to where it was.
        """
        for earlier in [each for each in self.all() if not each.is_done]:
            if earlier.key == record.key:
                remove(self._disk, self._folder, earlier.name)
                continue
            known = self.read(earlier) if record.kind == "rename" else None
            if known is None or known.inode != move.inode:
                continue
            if known.target == move.source:
                self._disk.rename(self._folder, earlier.name, earlier.done.name)
            else:
                remove(self._disk, self._folder, earlier.name)


def is_complete(trees: SessionFolders, place: Place, key: str) -> bool:
    """Whether this disk knows a command to be complete."""
    with of_tree(trees, place) as found:
        record = found.with_key(key)
        return record is not None and record.is_done


def forget_begun(trees: SessionFolders, place: Place, key: str) -> None:
    """Remove the record of a command that was begun, and that the cluster does not have."""
    with of_tree(trees, place) as found:
        record = found.with_key(key)
        if record is not None and not record.is_done:
            found.forget(record)


def _source_path(record: Record, move: Move) -> str:
    match record.kind:
        case "rename":
            return move.source
        case "undelete":
            return f"{paths.TRASH}/{move.source}"
        case "take_in":
            return f"{paths.IMPORTS}/{move.source}/{paths.PREPARED}"


def _inode(trees: SessionFolders, place: Place, path: str) -> int | None:
    """Return the inode of a folder in the tree of a place; None if it does not exist."""
    disk = trees.disk
    with contextlib.ExitStack() as held:
        try:
            folder = close_with(held, disk, trees.open_tree(place))
            for name in path.split("/"):
                folder = close_with(held, disk, disk.open_folder(folder, name))
        except (FileNotFoundError, NotADirectoryError):
            return None
        return disk.stat(folder).inode


@contextmanager
def opened(disk: Disk, tree: int, *, create: bool = False) -> Generator[Moves]:
    """Open the records of a tree."""
    with contextlib.ExitStack() as held:
        folder = CLOSED
        with contextlib.suppress(FileNotFoundError):
            folder = close_with(held, disk, disk.open_folder(tree, paths.MOVES, create=create))
        yield Moves(disk, folder)


@contextmanager
def of_tree(trees: SessionFolders, place: Place) -> Generator[Moves]:
    """Open the records of the tree of a place, which may not exist yet."""
    disk = trees.disk
    with contextlib.ExitStack() as held:
        folder = CLOSED
        with contextlib.suppress(FileNotFoundError):
            tree = close_with(held, disk, trees.open_tree(place))
            folder = close_with(held, disk, disk.open_folder(tree, paths.MOVES))
        yield Moves(disk, folder)


def sweep(disk: Disk, tree: int, now: float, expiry_s: float) -> int:
    """Remove the expired records of a tree, and return their number; the next sweep continues."""
    with contextlib.suppress(OSError), opened(disk, tree) as moves:
        return moves.expire(now, expiry_s)
    return 0


def check_same(record: Record, move: Move | None, kind: Kind, session: str, wanted: Move) -> None:
    """Refuse a key that belongs to another command.

    Args:
        record: the record with the key.
        move: its contents, None if they are incomplete.
        kind: the kind of the command.
        session: the session of the command.
        wanted: the source and the target of the command; an empty source fits all.

    Raises:
        BadRequest: the key belongs to another command.
    """
    if move is None:
        return
    is_same = record.kind == kind and move.target == wanted.target
    if not is_same or wanted.source not in {"", move.source}:
        raise BadRequest(
            f"the key {record.key!r} belongs to the {record.kind} of {move.source!r} to"
            f" {move.target!r}: a key names one command for ever; use a new one",
            session=session,
        )


def has_arrived(trees: SessionFolders, place: Place, kind: Kind, key: str, source: str) -> bool:
    """Whether an earlier copy of a command brought a session to its place, now durable.

    Args:
        trees: the session trees.
        place: the place of the session.
        kind: the kind of the command, no rename.
        key: its key.
        source: the source in its record; an empty one fits all.

    Raises:
        BadRequest: the key belongs to another command.
        OutcomeUnknown: an earlier copy was cut short, and the session was moved since.
    """
    with of_tree(trees, place) as found:
        record = found.with_key(key)
        if record is None:
            return False
        move = found.read(record)
        check_same(record, move, kind, place.session, Move(source, place.session, 0))
        if move is None:
            return False
        if record.is_done:
            return True
        if trees.inode(place) == move.inode:
            # The process that moved it may have died before the syncs.
            trees.sync_parent(place)
            found.finish(record)
            return True
        if _inode(trees, place, _source_path(record, move)) == move.inode:
            return False
        raise unknown(place.session, key, move)


def carry(
    disk: Disk, found: Moves, record: Record, texts: Texts,
    folder: int, name: str, target: int, new_name: str,
) -> None:  # fmt: skip
    """Move a session whose record was begun; durable on return, and forgotten if nothing moved.

    A rename is complete only later, once it is in the session's timeline.

    Raises:
        Exists: the place is taken.
        StorageFailed: the file system does not move the folder.
        OutcomeUnknown: the disk failed during or after the move.
    """
    try:
        disk.move(folder, name, target, new_name, record.key)
    except StenoError:
        # It was refused before anything moved.
        found.forget(record)
        raise
    except OSError as error:
        if error.errno in TAKEN:
            found.forget(record)
            raise Exists(texts.taken, session=texts.session) from None
        if error.errno in UNMOVED:
            found.forget(record)
            # On an overlay a folder of the lower layer cannot be renamed.
            raise StorageFailed(
                f"{texts.source} cannot be moved to {texts.target}: {error}; it was not"
                f" {texts.done}, {remedy_of(error)} and send the command again",
                session=texts.session,
            ) from None
        raise _doubtful(texts.session, record.key, error) from None
    try:
        disk.fsync(target)  # the move is durable from here on
        disk.fsync(folder)
        if record.kind != "rename":
            found.finish(record)
    except OSError as error:
        raise _doubtful(texts.session, record.key, error) from None


def unknown(session: str, key: str, move: Move) -> OutcomeUnknown:
    """Return the error for an incomplete command whose session is at neither of its places."""
    return OutcomeUnknown(
        f"the session was to move from {move.source!r} to {move.target!r} with this key, and is at"
        " neither of them now: `steno sessions` and `steno sessions --trash` show where it is",
        session=session,
        code=ErrorCode.NOT_FOUND,
        key=key,
    )


def _doubtful(session: str, key: str, error: OSError) -> OutcomeUnknown:
    return OutcomeUnknown(
        f"the session may be moved, but the disk failed to move or sync it ({error}): send the"
        " command again with its key",
        session=session,
        code=ErrorCode.STORAGE_FAILED,
        key=key,
    )
