"""Forks that refer to their source, and the collection of unneeded messages.

    session F                first message: fork, of S up to message 17
    name .held/S/17/F        stored in one batch with the name of F and an `own` of S
    name .held/S/90/S        S itself needs nothing before message 90

The files of a fork are those of its source at a position, changed by the fork's own messages. The
`own` of the source is the fence between a fork and a collection by another daemon. A collection
first stores what the session itself needs, and lists the other holds afterwards; a fork that ends
first removes its hold, and lists the others afterwards. So the last of them finds the messages
unneeded, and removes them.
"""

import re
from typing import Final, NamedTuple

from steno_protocol import paths
from stenod.core.manifest import Content, Manifest
from stenod.recovery.crash_recovery import present_generation
from stenod.store.disk import Disk
from stenod_cluster import limits
from stenod_cluster.journal import (
    ENDED,
    HELD,
    Journal,
    Kind,
    Label,
    Owner,
    Publication,
    published,
    subject_of_name,
)
from stenod_cluster.mirror import session_files
from stenod_cluster.owned_folder import OwnedFolder, crc_of, raise_first, ship

_PATTERN: Final = re.compile(rf"{re.escape(HELD)}/([^/]+)/([0-9]+)/([^/]+)", re.ASCII)
"""The name of a hold; another program may give names that are none."""

_NONE: Final = Label("", "")


class Base(NamedTuple):
    """What a fork begins with.

    Attributes:
        source: the folder of the source.
        position: the message of the source up to which the fork has its messages.
        files: the files of the source behind that message.
    """

    source: OwnedFolder
    position: int
    files: Manifest


class _Hold(NamedTuple):
    """One need of a session's messages.

    Attributes:
        position: a fork needs the messages up to this one; the session itself those from it on.
        holder: the fork, or the session itself.
    """

    position: int
    holder: str


class Holds:
    """The holds: the forks that need the messages of a session, and what it needs itself.

    Args:
        journal: the messages of all sessions and names.
        owner: this daemon.
    """

    def __init__(self, journal: Journal, owner: Owner) -> None:
        self._journal = journal
        self._owner = owner

    def of_fork(self, base: Base, fork: str) -> tuple[Publication, Publication]:
        """The messages by which a fork holds its source, for one batch with the fork's name."""
        source = base.source
        own = Publication(source.identity, source.sequence, self._owner, Kind.OWN, b"")
        return self._message(source.identity, _Hold(base.position, fork)), own

    def of_end(self, identity: str) -> Publication:
        """The message by which a session needs nothing more, for one batch with its end."""
        return self._message(identity, _Hold(ENDED, identity), self._base(identity))

    def shorten(self, identity: str, needed: int) -> None:
        """Remove the messages of an owned session before one, but for those that forks need.

        Raises:
            OSError: the journal failed; some or none were removed.
        """
        message = self._message(identity, _Hold(needed, identity), self._base(identity))
        published(self._journal, message)
        self.collect(identity)
        self._thin(identity, needed, needed)

    def end(self, identity: str) -> None:
        """Remove the messages of a session that ended, but for those that forks need."""
        self.collect(identity)
        last = self._journal.last(identity)
        if last is not None:
            self._thin(identity, ENDED, last.sequence)

    def _thin(self, identity: str, needed: int, last: int) -> None:
        """Remove the messages between those that forks need and one that stays."""
        held = [each.position for each in self._held(identity) if each.holder != identity]
        kept = max((position for position in held if position < needed), default=last)
        if kept < last:
            self._journal.purge(identity, last, kept)

    def collect(self, identity: str) -> None:
        """Remove the messages that neither a session nor a fork of it needs.

        The sources of which it was the last fork follow.

        Raises:
            OSError: the journal failed; the next daemon that starts goes on.
        """
        while identity and not self._is_held_by_fork(identity):
            held = self._held(identity)
            own = [each for each in held if each.holder == identity]
            forks = [each for each in held if each.holder != identity]
            needed = max((each.position for each in own), default=0)
            if not own or any(each.position < needed for each in forks):
                return
            # A collection that died may have removed the first message, which says the source.
            bases = [self._noted_base(identity, each) for each in own]
            base = next(filter(any, bases), _NONE)
            self._journal.purge(identity, needed)
            if base.identity:
                self._forget(base.identity, _Hold(int(base.other), identity))
            for each in own:
                self._forget(identity, each)
            identity = base.identity

    def collect_all(self) -> None:
        """Go on where daemons died in a collection."""
        held = self._named(HELD)
        for identity in sorted({each for each, hold in held if hold.holder == each}):
            self.collect(identity)

    def _is_held_by_fork(self, identity: str) -> bool:
        """Whether the oldest hold of a session is a fork's.

        What the session itself needs, if that is known, is then stored later and behind the fork's
        position. The list of all forks takes as long as they are many.
        """
        oldest = self._named(f"{HELD}/{identity}", oldest=True)
        return any(hold.holder != identity for _, hold in oldest)

    def _held(self, identity: str) -> list[_Hold]:
        return [hold for _, hold in self._named(f"{HELD}/{identity}")]

    def _named(self, above: str, *, oldest: bool = False) -> list[tuple[str, _Hold]]:
        """The sessions that are held, and the holds, by the names below one."""
        found = map(_PATTERN.fullmatch, self._journal.names(above, oldest=oldest))
        return [(each[1], _Hold(int(each[2]), each[3])) for each in found if each]

    def _base(self, identity: str) -> Label:
        """The source of a fork and the position in it; empty for a session of its own."""
        last = self._journal.last(identity)
        messages = self._journal.read(identity, 0, 0 if last is None else last.sequence)
        first = next(iter(messages), None)
        return first.label if first is not None and first.kind is Kind.FORK else _NONE

    def _noted_base(self, identity: str, hold: _Hold) -> Label:
        noted = self._journal.last(_subject(identity, hold))
        source, _, position = ("" if noted is None else noted.label.other).partition(" ")
        return Label(source, position)

    def _message(self, identity: str, hold: _Hold, base: Label = _NONE) -> Publication:
        body = Label(hold.holder, " ".join(filter(None, base))).body()
        return Publication(_subject(identity, hold), 0, self._owner, Kind.NAME, body)

    def _forget(self, identity: str, hold: _Hold) -> None:
        self._journal.purge(_subject(identity, hold), ENDED)


def _subject(identity: str, hold: _Hold) -> str:
    return subject_of_name(f"{HELD}/{identity}/{hold.position}/{hold.holder}")


def base_at_head(journal: Journal, source: OwnedFolder) -> Base:
    """Return the last message of a source, and its files then; the caller publishes it alone.

    Raises:
        OSError: the journal failed, or another daemon owns the source.
    """
    while True:
        raise_first(ship(journal, [source]))
        with source.lock:
            if source.is_published:
                return Base(source, source.sequence, source.manifest.copy())


def note_fork(disk: Disk, fork: OwnedFolder, folder: int, base: Base, origin: int) -> bool:
    """Note what a fork has that its source has not.

    Args:
        disk: the disk of this machine.
        fork: the fork, of which nothing was noted.
        folder: the open folder of the fork.
        base: what it begins with.
        origin: the open folder of the source.

    Returns:
        Whether it shares anything; nothing is noted if it does not.
    """
    names = session_files(disk, folder)
    past = paths.generation_file(present_generation(disk, folder) + 1)
    shared: dict[str, int] = {}
    for name in names:
        # The source may have been rewritten since.
        there = past if name == paths.CONTEXT and past in base.files.names else name
        if there in base.files.names:
            size = _shared_bytes(disk, (folder, name), (origin, there), base)
            if size >= limits.JOURNAL_COPY_BYTES_MIN:
                shared[name] = size
                file = disk.stat_name(folder, name)
                assert file is not None
                fork.inodes[file.inode] = base.files.names[there]
    if not shared:
        return False
    fork.manifest = base.files.copy()
    with fork.lock:
        for name, size in shared.items():
            handle = disk.open_read(folder, name)
            try:
                fork.note_cut(disk, handle, size)
            finally:
                disk.close(handle)
        for name in names:
            fork.note_name(disk, folder, name)
        for name in fork.manifest.names.keys() - set(names):
            fork.note_unlink(name)
    return True


def _shared_bytes(disk: Disk, ours: tuple[int, str], theirs: tuple[int, str], base: Base) -> int:
    """Return the bytes with which a fork's file begins as one of its source in the journal."""
    number = base.files.names[theirs[1]]
    content = base.files.files[number]
    file, other = disk.stat_name(*ours), disk.stat_name(*theirs)
    if file is None or other is None or base.source.inodes.get(other.inode) != number:
        return 0
    if file.inode == other.inode:
        return content.size if file.size == content.size else 0
    handles = [disk.open_read(*ours), disk.open_read(*theirs)]
    try:
        return _common_bytes(disk, handles[0], handles[1], content, file.size)
    finally:
        for handle in handles:
            disk.close(handle)


def _common_bytes(disk: Disk, ours: int, theirs: int, content: Content, size: int) -> int:
    """Return the bytes before the block in which two files differ."""
    if crc_of(disk, theirs, 0, content.size) != content.crc:
        # Another program changed the file, and the journal does not know it.
        return 0
    end, step = min(size, content.size), limits.JOURNAL_COPY_BYTES_MIN
    for offset in range(0, end, step):
        count = min(step, end - offset)
        if disk.read(ours, count, offset) != disk.read(theirs, count, offset):
            return offset
    return end
