"""One session that this daemon owns: what was done to its folder, and what of that is published."""

import errno
import threading
import zlib
from collections.abc import Generator, Iterable, Iterator, Sequence
from typing import Final

from steno_protocol import paths
from steno_protocol.journal_entries import (
    AnyEntry,
    Append,
    Copy,
    Create,
    Cut,
    Name,
    encode_entries,
)
from steno_protocol.limits import COPY_BYTES
from stenod.core.manifest import Content, Manifest
from stenod.store.disk import Disk, FileStat
from stenod_cluster import limits
from stenod_cluster.journal import (
    Fenced,
    InDoubt,
    Journal,
    Kind,
    Label,
    Owner,
    Publication,
    subject_of_name,
)

_NOTES: Final = (paths.TIMELINE, paths.STATE, paths.STATE_NEW)
"""Files that also grow where room is made."""


class OwnedFolder:
    """The folder of a session whose last message in the journal is of this daemon.

    What is done to the folder is noted as entries; a sync publishes those that were noted before.
    There is one publication of a folder at a time. The event loop carries all of them, and so must
    not wait for one: it publishes only what no thread is publishing.

    Args:
        path: the name of the session, its path in the session tree, such as `a/b`.
        identity: the identity of the session.
        owner: this daemon.
        sequence: the session's last message in the journal, 0 if there is none.
        manifest: the files as that message left them.
        inodes: the number of each of these files by its inode on this disk.
        name_sequence: the last message of the name, 0 if there is none.
        is_new: the name does not lead here yet; the next change is published with it.

    Attributes:
        owner: this daemon.
        publishing: held by whoever publishes, and taken before `lock`.
        lock: held for moments, while something is noted or what was noted is looked at.
        handles: open handles of its files.
        snapshot_sequence: the first message of the last whole snapshot.
        lost: another daemon owns it, and nothing can be published any more.
    """

    def __init__(
        self,
        path: str,
        identity: str,
        owner: Owner,
        sequence: int,
        manifest: Manifest,
        inodes: dict[int, int],
        name_sequence: int = 0,
        *,
        is_new: bool = False,
    ) -> None:
        self.path = path
        self.identity = identity
        self.name_sequence = name_sequence
        self.is_new = is_new
        self.sequence = sequence
        self.manifest = manifest
        self.inodes = inodes
        self.publishing = threading.Lock()
        self.lock = threading.RLock()
        self._marked = 0
        self._behind_mark_bytes = 0
        self.handles: set[int] = set()
        self.lost: Fenced | None = None
        self.owner = owner
        self._pending: list[AnyEntry] = []
        # How many of these are being published.
        self._in_flight = 0
        self.snapshot_sequence = 0
        self._doubt: int | None = None
        self._has_parts = False

    @property
    def is_published(self) -> bool:
        """True if the journal has all that was noted, in changes that are whole."""
        is_whole = self._doubt is None and not self._has_parts
        return is_whole and not self._pending and self.lost is None

    @property
    def is_mark_due(self) -> bool:
        """True if the next opening would have to read much of the journal, or all of it."""
        return not self._marked or self._behind_mark_bytes >= limits.JOURNAL_MARK_BYTES

    @property
    def is_behind_mark(self) -> bool:
        """True if this daemon published something since the mark on this disk."""
        return self.sequence != self._marked

    def note_marked(self) -> None:
        """Note that this disk has a mark with all that was published."""
        self._marked, self._behind_mark_bytes = self.sequence, 0

    # --- what was done, with the lock ------------------------------------------------------------

    def note_file(self, name: str, file: FileStat) -> None:
        """Note that a name leads to a file, which may be new or another program's."""
        known = self.inodes.get(file.inode)
        if known is None or known not in self.manifest.files:
            self.inodes[file.inode] = self.manifest.next_file
            self._note(Create(self.manifest.next_file, name))
        elif self.manifest.names.get(name) != known:
            self._note(Name(name, known))

    def note_content(self, disk: Disk, handle: int) -> None:
        """Note the bytes that a file has behind those of the manifest, or that it lost some."""
        file = disk.stat(handle)
        number = self.inodes.get(file.inode)
        content = self.manifest.files.get(number) if number is not None else None
        if number is None or content is None:
            return
        if file.size < content.size:
            self.note_cut(disk, handle, file.size)
            content = self.manifest.files[number]
        while content.size < file.size:
            step = min(limits.JOURNAL_DATA_BYTES_MAX, file.size - content.size)
            data = disk.read(handle, step, content.size)
            if not data:
                break
            self._note(Append(number, content.size, content.crc, data))
            content = self.manifest.files[number]

    def note_cut(self, disk: Disk, handle: int, size: int) -> None:
        """Note that a file is cut to a size, before or after it is."""
        number = self.inodes.get(disk.stat(handle).inode)
        content = self.manifest.files.get(number) if number is not None else None
        if number is None or content is None:
            return
        if size < content.size:
            self._forget_unpublished(number, size)
        if size < self.manifest.files[number].size:
            self._note(Cut(number, size, crc_of(disk, handle, 0, size)))

    def _forget_unpublished(self, number: int, size: int) -> None:
        """Forget what was appended to a file behind a size, as far as it cannot be in the journal.

        What the journal refuses would be published again with each later change, and refused.
        """
        if self._doubt is not None:
            return
        for index in reversed(range(self._in_flight, len(self._pending))):
            entry = self._pending[index]
            if not isinstance(entry, Append):
                # It may stand on what was appended before it.
                return
            if entry.file == number and entry.offset >= size:
                del self._pending[index]
                self.manifest.files[number] = Content(entry.offset, entry.crc)

    def note_copy(self, disk: Disk, source: FileStat, target: int, offset: int, size: int) -> None:
        """Note that a range of a file was copied behind the end of another one.

        Nothing is noted if the journal lacks the source; `note_content` finds the bytes then.
        """
        file, other = self.inodes.get(disk.stat(target).inode), self.inodes.get(source.inode)
        if file is None or other is None or size < limits.JOURNAL_COPY_BYTES_MIN:
            return
        before, there = self.manifest.files.get(file), self.manifest.files.get(other)
        if before is None or there is None or offset + size > there.size:
            return
        crc = crc_of(disk, target, before.size, before.size + size, before.crc)
        self._note(Copy(file, before.size, before.crc, other, offset, size, crc))

    def note_unlink(self, name: str) -> None:
        """Note that a name was removed."""
        if name in self.manifest.names:
            self._note(Name(name, None))

    def note_name(self, disk: Disk, folder: int, name: str) -> None:
        """Note the file that a name leads to now, with its content if it is new here."""
        file = disk.stat_name(folder, name)
        if file is None:
            self.note_unlink(name)
            return
        self.note_file(name, file)
        if self.manifest.files[self.inodes[file.inode]].size < file.size:
            handle = disk.open_read(folder, name)
            try:
                self.note_content(disk, handle)
            finally:
                disk.close(handle)

    def note_names(self, disk: Disk, folder: int, names: Iterable[str]) -> None:
        """Note what several names of a folder lead to now; takes the lock."""
        with self.lock:
            for name in names:
                self.note_name(disk, folder, name)

    def note_all(self, disk: Disk, folder: int, names: Iterable[str]) -> None:
        """Note what a folder has, for a snapshot in place of what the journal has of it."""
        self.note_names(disk, folder, names)
        with self.lock:
            self._pending.clear()

    def _note(self, entry: AnyEntry) -> None:
        self.manifest.apply(entry)
        self._pending.append(entry)
        if isinstance(entry, Copy):
            # The next opening elsewhere copies as much, though the message is short.
            self._behind_mark_bytes += entry.size

    # --- publishing, without the lock ------------------------------------------------------------

    def shipping(self, *, is_named: bool = True) -> Generator[Publication, int | OSError]:
        """Yield what has to be published, one after another; each outcome is sent in.

        The journal has all that was noted at the end.

        Args:
            is_named: a new session gets its name with it.

        Raises:
            Fenced: another daemon owns the folder; nothing of the change is in the journal.
            InDoubt: the change may be in the journal; the next shipping finds out.
            OSError: nothing of the change is in the journal; the next shipping tries again.
        """
        yield from self.settling()
        with self.lock:
            self._in_flight = count = len(self._pending)
            bodies = _bodies_of(self._pending)
            is_growth = self._adds_records()
        if not count:
            return
        try:
            for body in bodies[:-1]:
                yield from self._publish(Kind.PART, body, 0, is_growth=is_growth)
            yield from self._publish(
                Kind.CHANGE, bodies[-1], count, is_growth=is_growth, is_named=is_named
            )
            self._applied(count)
        finally:
            self._in_flight = 0

    def settling(self) -> Generator[Publication, int | OSError]:
        """Yield what settles a doubt, if there is one; as `shipping`."""
        if self.lost is not None:
            raise self.lost
        if self._doubt is not None:
            yield from self._settle(self._doubt)

    def confirming(self) -> Generator[Publication, int | OSError]:
        """Yield what shows that this daemon owns the folder; as `shipping`."""
        yield from self.shipping()
        if self.is_new:
            yield from self._publish(Kind.CHANGE, encode_entries([]), 0)
        else:
            yield from self._publish(Kind.OWN, b"", 0)

    def renewing(self) -> Generator[Publication, int | OSError]:
        """Yield what shows that the journal has the newest records; as `shipping`."""
        yield from self._publish(Kind.CHANGE, encode_entries([]), 0)

    def forking(self, source: str, position: int) -> Generator[Publication, int | OSError]:
        """Yield the first message of a fork; as `shipping`."""
        yield from self._publish(Kind.FORK, Label(source, str(position)).body(), 0)

    def held(self, outcome: int | OSError) -> None:
        """Note what came of the `own` by which a fork holds this session."""
        if isinstance(outcome, int):
            self.sequence = outcome
        elif isinstance(outcome, InDoubt):
            self._doubt = 0
        elif isinstance(outcome, Fenced) and outcome.subject == self.identity:
            self.lost = outcome

    def moved(self, path: str, sequence: int, name_sequence: int) -> None:
        """Note that the journal has the session under a name, with a message that this one owns."""
        self.path, self.sequence, self.name_sequence = path, sequence, name_sequence
        self._has_parts = self.is_new = False

    def snapshot(self, disk: Disk, folder: int) -> Generator[Publication, int | OSError]:
        """Yield the messages of a copy of the whole folder; as `shipping`.

        `snapshot_sequence` is the first of them afterwards: no earlier message is needed.
        """
        bodies: list[bytes] = []
        while not bodies:
            yield from self.shipping()
            with self.lock:
                # What was noted meanwhile would be in the copy, and come once more behind it.
                if not self._pending:
                    bodies = _bodies_of(list(self._entries_of_all(disk, folder)))
        yield from self._publish(Kind.SNAPSHOT, bodies[0], 0)
        self.snapshot_sequence = self.sequence
        for body in bodies[1:]:
            yield from self._publish(Kind.PART, body, 0)
        yield from self._publish(Kind.CHANGE, encode_entries([]), 0)

    def _entries_of_all(self, disk: Disk, folder: int) -> Iterator[AnyEntry]:
        names: dict[int, list[str]] = {}
        for name, number in self.manifest.names.items():
            names.setdefault(number, []).append(name)
        for number in sorted(names):
            first, *others = names[number]
            yield Create(number, first)
            yield from _appends(disk, folder, first, number, self.manifest.files[number])
            for name in others:
                yield Name(name, number)

    def _adds_records(self) -> bool:
        """Whether what was noted adds more than the notes of a deletion or a `gc`."""
        names = self.manifest.names
        grown = {each.file for each in self._pending if isinstance(each, Append)}
        # A long history has many names, and most changes are to this one.
        return names.get(paths.CONTEXT) in grown or any(
            file in grown and name not in _NOTES and not is_hint(name)
            for name, file in names.items()
        )

    def _publish(
        self,
        kind: Kind,
        body: bytes,
        entries: int,
        *,
        is_growth: bool = False,
        is_named: bool = True,
    ) -> Generator[Publication, int | OSError]:
        is_naming = self.is_new and is_named and kind is Kind.CHANGE
        also = (self._naming(),) if is_naming else ()
        outcome = yield Publication(
            self.identity, self.sequence, self.owner, kind, body, "", is_growth, also
        )
        if isinstance(outcome, int):
            self.sequence = outcome
            if also:
                self._named(outcome)
            with self.lock:
                self._behind_mark_bytes += len(body)
            self._has_parts = kind in {Kind.PART, Kind.SNAPSHOT}
            return
        if isinstance(outcome, Fenced):
            self.lost = outcome
        elif isinstance(outcome, InDoubt) or self._has_parts:
            # The parts of a change that failed would become the beginning of the next one.
            self._doubt = entries
        raise outcome

    def _naming(self) -> Publication:
        """The message that gives the session its name, in one batch with its first whole change."""
        label = Label(self.identity, "")
        subject = subject_of_name(self.path)
        return Publication(subject, self.name_sequence, self.owner, Kind.NAME, label.body())

    def _named(self, sequence: int) -> None:
        """The change with a sequence was stored right behind the name."""
        self.name_sequence, self.is_new = sequence - 1, False

    def _settle(self, entries: int) -> Generator[Publication, int | OSError]:
        """Find out whether a message in doubt, with so many entries, is in the journal.

        A read could miss it, since it may still come. Behind another message it cannot come, and
        the parts of an unfinished change are void.
        """
        outcome = yield Publication(self.identity, self.sequence, self.owner, Kind.OWN, b"")
        if isinstance(outcome, Fenced) and outcome.newer.owner == self.owner:
            newer = outcome.newer
            self.sequence, self._doubt = newer.sequence, None
            self._has_parts = newer.kind in {Kind.PART, Kind.SNAPSHOT}
            if newer.kind is Kind.CHANGE:
                self._applied(entries)
                if self.is_new:
                    self._named(newer.sequence)
            elif newer.kind is not Kind.OWN:
                # The parts of an unfinished change are void behind this message.
                yield from self._publish(Kind.OWN, b"", 0)
        elif isinstance(outcome, int):
            self.sequence, self._doubt, self._has_parts = outcome, None, False
        else:
            if isinstance(outcome, Fenced):
                self.lost = outcome
            raise outcome

    def _applied(self, entries: int) -> None:
        with self.lock:
            del self._pending[:entries]


def is_hint(name: str) -> bool:
    """Whether a file is a recovery point: an opening without it, or with an old one, is slower."""
    return name.endswith((".mark", ".mark.new"))


def _appends(disk: Disk, folder: int, name: str, number: int, content: Content) -> Iterator[Append]:
    """Yield a file's content as entries.

    Raises:
        OSError: the file has other bytes, which the entries after it would not continue.
    """
    handle = disk.open_read(folder, name)
    try:
        offset, crc = 0, 0
        while offset < content.size:
            step = min(limits.JOURNAL_DATA_BYTES_MAX, content.size - offset)
            data = disk.read(handle, step, offset)
            if not data:
                raise OSError(errno.ESTALE, "another program cut this file", name)
            yield Append(number, offset, crc, data)
            offset, crc = offset + len(data), zlib.crc32(data, crc)
        if crc != content.crc:
            raise OSError(errno.ESTALE, "another program changed this file", name)
    finally:
        disk.close(handle)


def _bodies_of(entries: Sequence[AnyEntry]) -> list[bytes]:
    """Return the entries as bodies of messages, in order."""
    bodies: list[bytes] = []
    part: list[AnyEntry] = []
    size = 0
    for entry in entries:
        entry_bytes = limits.ENTRY_BYTES + (len(entry.data) if isinstance(entry, Append) else 0)
        if part and size + entry_bytes > limits.JOURNAL_BODY_BYTES_MAX:
            bodies.append(encode_entries(part))
            part, size = [], 0
        part.append(entry)
        size += entry_bytes
    return [*bodies, encode_entries(part)]


def crc_of(disk: Disk, handle: int, start: int, end: int, crc: int = 0) -> int:
    """Return the CRC-32 of a range of a file, continued from that of the bytes before."""
    for offset in range(start, end, COPY_BYTES):
        crc = zlib.crc32(disk.read(handle, min(COPY_BYTES, end - offset), offset), crc)
    return crc


def ship(journal: Journal, folders: Sequence[OwnedFolder]) -> list[OSError | None]:
    """Publish what was noted in several folders, each of which the caller may publish alone.

    Returns:
        The error of each folder, or None if a majority has all of it on disk.
    """
    return ship_all(journal, [folder.shipping() for folder in folders])


async def ship_on_loop(journal: Journal, folders: Sequence[OwnedFolder]) -> list[OSError | None]:
    """As `ship`, on the event loop."""
    round_trips = _Shippings([folder.shipping() for folder in folders])
    while wanted := round_trips.wanted():
        round_trips.take(await journal.publish_on_loop(wanted))
    return round_trips.outcomes


def ship_all(
    journal: Journal, shippings: Sequence[Generator[Publication, int | OSError]]
) -> list[OSError | None]:
    """Run several shippings side by side, a message of each at a time; as `ship`."""
    round_trips = _Shippings(shippings)
    while wanted := round_trips.wanted():
        round_trips.take(journal.publish(wanted))
    return round_trips.outcomes


class _Shippings:
    """Several shippings side by side, a message of each at a time.

    Attributes:
        outcomes: the error of each, or None.
    """

    def __init__(self, shippings: Sequence[Generator[Publication, int | OSError]]) -> None:
        self.outcomes: list[OSError | None] = [None] * len(shippings)
        self._shippings = shippings
        self._sent: dict[int, int | OSError | None] = dict.fromkeys(range(len(shippings)))

    def wanted(self) -> list[Publication]:
        """The next message of each that has one."""
        wanted: dict[int, Publication] = {}
        for number, outcome in self._sent.items():
            shipping = self._shippings[number]
            try:
                wanted[number] = next(shipping) if outcome is None else shipping.send(outcome)
            except StopIteration:
                continue
            except OSError as error:
                self.outcomes[number] = error
        self._sent = dict.fromkeys(wanted)
        return list(wanted.values())

    def take(self, answers: Sequence[int | OSError]) -> None:
        """Take the outcome of each of these messages."""
        self._sent = dict(zip(self._sent, answers, strict=True))


def raise_first(outcomes: Sequence[OSError | None]) -> None:
    """Raise the first error of several outcomes, if there is one."""
    for outcome in outcomes:
        if outcome is not None:
            raise outcome
