"""The mirror: a folder's files on this disk, made equal to the journal.

The journal is the truth. Files that already have its content are kept, an older mirror gets what it
lacks, and everything else is made again from the journal. What this disk has beyond the journal is
kept aside in `quarantine/`, unless this daemon's root was the only owner since: then it is the
session's own, such as lines that were acknowledged as `written`.

Files that were never compared with this stream may be newer: those of a root that joins, and of all
roots after a loss of the stream. If they begin with all records of the journal, they are left as
they are, for this daemon to publish; if neither begins with the other, they become another session.
"""

from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from itertools import chain, groupby
from typing import Final, assert_never

import msgspec

from steno_protocol import paths
from steno_protocol.journal_entries import AnyEntry, Append, Copy, Create, Cut, Name
from stenod.core.journal_replay import JournalReplay
from stenod.core.manifest import Manifest
from stenod.core.recovery_point import at_inode
from stenod.store.disk import Disk
from stenod.store.handles import copy_all, write_all
from stenod.store.log import Copy as Range
from stenod.store.names import read_file, remove, remove_all, replacing
from stenod.store.quarantine import quarantine
from stenod_cluster import limits
from stenod_cluster.journal import Message
from stenod_cluster.owned_folder import crc_of, is_hint, raise_first

_NEST: Final = ".mirror"
"""The folder in which new files are made."""


HERE: Final = "here"
"""Where the daemon is that took a folder over, if it is this one, whose files are the newest."""

_STATES: Final = (paths.STATE, paths.STATE_NEW)


class Seen(msgspec.Struct, frozen=True):
    """A file as it was when a mark was saved.

    Attributes:
        inode: its number.
        modified_s: Unix time of the last change of its content.
    """

    inode: int
    modified_s: float


class Mark(msgspec.Struct, frozen=True):
    """The manifest of a folder at one of its messages; it is a hint, and every use checks it.

    Attributes:
        sequence: the message; 0 if this root never acknowledged anything of the files.
        host: the root that wrote the mark; a copy of the folder elsewhere does not count.
        manifest: the files after the message.
        boot: this machine's boot, empty if unknown.
        seen: the files that had exactly the manifest's content, by their number. During the same
            boot, a file that was not changed since need not be read again: a long session has many
            generations, and all of them would be read at every takeover. After a power cut an
            unchanged time proves nothing.
        identity: the session whose messages they are.
        stream: the stream that has the message. In another one, its sequence means nothing.
        left: where the daemon is that took the folder over since; empty if none did, and `HERE` if
            that is this one.
        left_to: the root of that daemon.
    """

    sequence: int
    host: str
    manifest: Manifest
    boot: str = ""
    seen: dict[int, Seen] = {}
    identity: str = ""
    stream: str = ""
    left: str = ""
    left_to: str = ""

    @property
    def is_left(self) -> bool:
        """Whether another daemon has the newest files."""
        return self.left not in {"", HERE}


_mark_decoder = msgspec.json.Decoder(Mark)


def is_replicated(name: str) -> bool:
    """Whether a file of a session's folder belongs into the journal.

    The folder's place in the journal is this disk's, and other programs' files are not the
    session's. Recovery points are replicated, because they know the session's keys: without one the
    next opening of a long session has to read all of it for the first key that a caller made. The
    journal has names in UTF-8; steno gives no others.
    """
    if name.startswith((".", paths.JOURNAL_MARK)) or not _is_text(name):
        return False
    if paths.is_compressed(name):
        # From before the root joined the cluster.
        return True
    return name.endswith((".jsonl", ".jsonl.new")) or is_hint(name) or name in _STATES


def is_name(path: str) -> bool:
    """Whether a path in the session tree may be a session's: one in the trash may, too."""
    trash, *rest = path.split("/")
    named = rest if trash == paths.TRASH else [trash, *rest]
    return not any(each.startswith(".") or each == paths.QUARANTINE for each in named)


def session_files(disk: Disk, folder: int) -> list[str]:
    """Return the files of an open folder that belong into the journal.

    Links, FIFOs and folders are another program's, whatever their name.
    """
    return [
        name
        for name in disk.names(folder)
        if is_replicated(name) and _is_regular(disk, folder, name)
    ]


def _is_regular(disk: Disk, folder: int, name: str) -> bool:
    try:
        disk.close(disk.open_read(folder, name))
    except (PermissionError, FileNotFoundError):
        return False
    return True


def _is_text(name: str) -> bool:
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True


def read_mark(disk: Disk, folder: int, host: str) -> Mark | None:
    """Read a folder's mark; None if there is none of this root."""
    try:
        mark = _mark_decoder.decode(read_file(disk, folder, paths.JOURNAL_MARK))
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None
    return mark if mark.host == host else None


def save_first_mark(disk: Disk, folder: int, host: str, identity: str, stream: str) -> None:
    """Save the mark of a folder before it has the first file of a session.

    Without it the folder would seem to be one that the journal never had.
    """
    save_mark(disk, folder, Mark(0, host, Manifest(), "", {}, identity, stream))


def remove_lone_mark(disk: Disk, folder: int) -> None:
    """Remove the mark of an open folder that no file of a session followed."""
    if disk.names(folder) == [paths.JOURNAL_MARK]:
        disk.unlink(folder, paths.JOURNAL_MARK)


def is_uncompared(disk: Disk, folder: int, mark: Mark | None, stream: str) -> bool:
    """Whether an open folder has a session's files that were never compared with a stream."""
    return (mark is None or mark.stream != stream) and bool(session_files(disk, folder))


def seen_files(disk: Disk, folder: int, manifest: Manifest) -> dict[int, Seen]:
    """Return the files of a folder whose sizes are those of a manifest, for a mark."""
    found: dict[int, Seen] = {}
    for name, number in manifest.names.items():
        file = disk.stat_name(folder, name)
        if file is not None and file.size == manifest.files[number].size:
            found[number] = Seen(file.inode, file.modified_s)
    return found


def save_mark(disk: Disk, folder: int, mark: Mark) -> None:
    """Save the mark of an open folder; see `save_marks`."""
    save_marks(disk, {folder: mark})


def save_marks(disk: Disk, marks: Mapping[int, Mark]) -> None:
    """Save the marks of open folders; a power cut leaves each of them whole, or the one before.

    With neither, the files would seem never compared with the stream, and a tail that was not
    acknowledged would make them newer than the journal, whose timeline they may lack.

    A file that changed just now is not seen: a later change within the same tick of the file
    system's clock could leave its time and size as they are.
    """
    with ExitStack() as replaced:
        handles: list[int] = []
        for folder, mark in marks.items():
            handle = replaced.enter_context(replacing(disk, folder, paths.JOURNAL_MARK))
            now = disk.stat(handle).modified_s
            old = {
                number: seen
                for number, seen in mark.seen.items()
                if seen.modified_s < now - limits.SEEN_AGE_S
            }
            write_all(disk, handle, msgspec.json.encode(msgspec.structs.replace(mark, seen=old)))
            handles.append(handle)
        raise_first(disk.fdatasync_all(handles))


def _lasting_names(manifest: Manifest) -> dict[str, int]:
    """The names without those of hints."""
    return {name: file for name, file in manifest.names.items() if not is_hint(name)}


class Mirrored(msgspec.Struct, frozen=True):
    """A folder that has the content of the journal.

    Attributes:
        manifest: its files in the journal; on the disk they may have more bytes.
        inodes: the number of each file by its inode.
        read_bytes: bytes of the messages that were read.
        others: other hosts that published some of these.
    """

    manifest: Manifest
    inodes: dict[int, int]
    read_bytes: int
    others: set[str]


class Mirror:
    """Makes one folder equal to the journal.

    Args:
        disk: the disk of the folder.
        folder: the open folder.
        identity: the session.
        host: this root.
        read: returns the session's messages behind a sequence, up to the one that owns it.
        boot: this machine's boot, empty if unknown.
        stream: the identity of the stream.
        keep_beside: makes the files of the folder another session, too; False if it cannot.
        is_beside: whether that was done with a file, by its name and inode.
    """

    def __init__(
        self,
        disk: Disk,
        folder: int,
        identity: str,
        host: str,
        read: Callable[[int], Iterator[Message]],
        boot: str,
        stream: str,
        keep_beside: Callable[[], bool],
        is_beside: Callable[[str, int], bool],
    ) -> None:
        self._keep_beside = keep_beside
        self._is_beside = is_beside
        self._stream = stream
        self._boot = boot
        self._disk = disk
        self._folder = folder
        self._identity = identity
        self._host = host
        self._read = read
        self._read_bytes = 0
        self._others: set[str] = set()
        self._mark: Mark | None = None
        self._beside: set[int] = set()

    def make(self) -> Mirrored | None:
        """Make the folder equal to the journal.

        Returns:
            None if the folder has all records of the journal and newer ones; nothing was changed.

        Raises:
            Corrupt: the journal contradicts itself.
            OSError: the journal or the disk failed; the next call goes on from the files.
        """
        mark = self._mark = read_mark(self._disk, self._folder, self._host)
        if mark is not None and mark.sequence and self._is_known(mark):
            # Of a copy of another host's session, the mark's own message may be its only word.
            read = list(self._counted(mark.sequence - bool(mark.left)))
            tail = [message for message in read if message.sequence > mark.sequence]
            replay = JournalReplay(mark.manifest.copy())
            changes = [each for message in tail for each in replay.feed(message.kind, message.body)]
            is_alone = all(message.owner.host == self._host for message in tail)
            if replay.manifest.names and self._holds(replay.manifest, mark):
                return self._kept(replay.manifest, is_alone=is_alone)
            if self._holds(mark.manifest, mark):
                return self._made(mark.manifest, [changes], replay)
        replay = JournalReplay(Manifest())
        messages = self._counted(0)
        return self._made(
            Manifest(), (replay.feed(each.kind, each.body) for each in messages), replay
        )

    def _is_known(self, mark: Mark) -> bool:
        """Whether a mark is of this session in this stream."""
        return (mark.identity, mark.stream) == (self._identity, self._stream)

    def _counted(self, after: int) -> Iterator[Message]:
        for message in self._read(after):
            self._read_bytes += len(message.body)
            if message.owner.host != self._host:
                self._others.add(message.owner.host)
            yield message

    def _holds(self, manifest: Manifest, mark: Mark) -> bool:
        """Whether each name leads to a file that begins with its content."""
        checked: dict[int, int] = {}
        is_same_boot = bool(mark.boot) and mark.boot == self._boot
        known = mark.seen if is_same_boot else {}
        unread: dict[int, str] = {}
        for name, number in _lasting_names(manifest).items():
            found = self._disk.stat_name(self._folder, name)
            content = manifest.files[number]
            if found is None or found.size < content.size:
                return False
            # A power cut may have taken the rewrite back that made a file since the mark, and the
            # file before it may begin alike: an empty one is the beginning of any.
            is_sure = is_same_boot or number in mark.manifest.files
            if not is_sure and found.size != content.size:
                return False
            if checked.setdefault(number, found.inode) != found.inode:
                return False
            is_same = content == mark.manifest.files.get(number) and found.size == content.size
            if not is_same or known.get(number) != Seen(found.inode, found.modified_s):
                unread[number] = name
        if len({*checked.values()}) < len(checked):
            # Two names of one file, each of which has to lead to a file of its own.
            return False
        return all(
            self._crc(name, manifest.files[number].size) == manifest.files[number].crc
            for number, name in unread.items()
        )

    def _crc(self, name: str, size: int) -> int:
        handle = self._disk.open_read(self._folder, name)
        try:
            return crc_of(self._disk, handle, 0, size)
        finally:
            self._disk.close(handle)

    def _kept(self, manifest: Manifest, *, is_alone: bool) -> Mirrored:
        """The files have the journal's content, and perhaps more."""
        inodes: dict[int, int] = {}
        for name, number in _lasting_names(manifest).items():
            if not is_alone:
                size = manifest.files[number].size
                rest = self._cut(name, size)
                if rest:
                    quarantine(self._disk, self._folder, name, size, rest)
            found = self._disk.stat_name(self._folder, name)
            assert found is not None
            inodes[found.inode] = number
        self._remove_other_names(manifest, known=inodes)
        return Mirrored(manifest, inodes, self._read_bytes, self._others)

    def _made(
        self,
        base: Manifest,
        changes: Iterable[Sequence[AnyEntry | None]],
        replay: JournalReplay,
    ) -> Mirrored | None:
        """Apply changes to the files of `base`, and give the names to the files of the result.

        Returns:
            None if the folder has newer files.
        """
        with self._nest() as nest:
            files = _Files(self._disk, self._folder, nest)
            try:
                there = {number: name for name, number in _lasting_names(base).items()}
                rests: dict[int, bytes] = {}
                for number, name in there.items():
                    rests[number] = self._cut(name, base.files[number].size)
                    files.add(number, name)
                known = {files.inode(number): number for number in there}
                for entry in _joined(chain.from_iterable(changes)):
                    files.apply(entry)
                for number, rest in rests.items():
                    size = base.files[number].size
                    # Mostly the journal has brought the same bytes again.
                    if rest and not files.has(number, size, rest):
                        quarantine(self._disk, self._folder, there[number], size, rest)
                manifest = replay.manifest
                lasting = set(_lasting_names(manifest).values())
                inodes = {files.inode(number): number for number in lasting}
                if self._mark is None or not self._is_known(self._mark):
                    if self._is_newer(manifest, files):
                        return None
                    save_first_mark(
                        self._disk, self._folder, self._host, self._identity, self._stream
                    )
                self._give_names(manifest, files, inodes, known)
                self._put_hints(manifest, files)
            finally:
                files.close()
        return Mirrored(manifest, inodes, self._read_bytes, self._others)

    def _is_newer(self, manifest: Manifest, files: "_Files") -> bool:
        """Whether the folder has newer files than the journal, as far as it was never compared.

        If neither has them, those of the folder are kept elsewhere.
        """
        mark = self._mark
        if not is_uncompared(self._disk, self._folder, mark, self._stream):
            return False
        numbers = manifest.names
        sizes = {name: manifest.files[number].size for name, number in numbers.items()}
        theirs = _record_files({each: numbers[each] for each in numbers if sizes[each]})
        inodes = self._inodes()
        ours = _record_files(inodes)
        if _is_contained(ours, theirs, lambda name, other: files.begins(numbers[other], name)):
            return False
        if _is_contained(theirs, ours, lambda other, name: files.is_begun(numbers[other], name)):
            self._keep_notes(manifest, files)
            return True
        if self._keep_beside():
            self._beside.update(inodes.values())
        return False

    def _inodes(self) -> dict[str, int]:
        """The inodes of the session's files in the folder that are not empty, by their names."""
        found = {
            name: self._disk.stat_name(self._folder, name)
            for name in session_files(self._disk, self._folder)
        }
        return {name: file.inode for name, file in found.items() if file is not None and file.size}

    def _keep_notes(self, manifest: Manifest, files: "_Files") -> None:
        """Keep the journal's notes aside, as far as the folder's newer files do not have them."""
        for name in (paths.TIMELINE, paths.STATE):
            number = manifest.names.get(name)
            if number is None:
                continue
            if self._disk.stat_name(self._folder, name) is None or not files.is_begun(number, name):
                files.link(number, f"{_NEST}-{number}")
                place = f"{_NEST}-{number}", files.inode(number)
                _keep_aside(self._disk, self._folder, place[0], place[1], name)
                self._disk.unlink(self._folder, place[0])

    @contextmanager
    def _nest(self) -> Generator[int]:
        nest = self._disk.open_folder(self._folder, _NEST, create=True)
        try:
            for name in self._disk.names(self._folder):
                if name.startswith(f"{_NEST}-"):
                    self._disk.unlink(self._folder, name)
            remove_all(self._disk, nest)
            yield nest
            remove_all(self._disk, nest)
        finally:
            self._disk.close(nest)
        self._disk.remove_folder(self._folder, _NEST)

    def _give_names(
        self, manifest: Manifest, files: "_Files", inodes: dict[int, int], known: dict[int, int]
    ) -> None:
        # All files get a first name before any name is taken from another file.
        for number in inodes.values():
            files.link(number, f"{_NEST}-{number}")
        self._remove_other_names(manifest, known={**known, **inodes})
        for name, number in _lasting_names(manifest).items():
            found = self._disk.stat_name(self._folder, name)
            if found is not None and inodes.get(found.inode) == number:
                continue
            is_known = found is None or found.inode in known
            if found is not None and not is_known and not files.begins(number, name):
                self._put_aside(name, found.inode)
            self._disk.link(self._folder, f"{_NEST}-{number}", f"{_NEST}-name")
            self._disk.rename(self._folder, f"{_NEST}-name", name)
        for number in inodes.values():
            self._disk.unlink(self._folder, f"{_NEST}-{number}")
        self._disk.fsync(self._folder)

    def _put_hints(self, manifest: Manifest, files: "_Files") -> None:
        """Save the recovery points, which name the inodes of their files, for this disk."""
        for name, number in manifest.names.items():
            file = self._disk.stat_name(self._folder, name.removesuffix(".mark") + ".jsonl")
            data = files.content(number) if name.endswith(".mark") else b""
            point = at_inode(data, file.inode) if file is not None and data else None
            if point is not None:
                with replacing(self._disk, self._folder, name) as handle:
                    write_all(self._disk, handle, point)

    def _remove_other_names(self, manifest: Manifest, known: dict[int, int]) -> None:
        """Remove the names that the journal does not have; files it never had are kept aside."""
        for name in session_files(self._disk, self._folder):
            if name in manifest.names or is_hint(name):
                continue
            found = self._disk.stat_name(self._folder, name)
            is_unfinished = name in {paths.REWRITE, paths.STATE_NEW}
            if found is not None and found.inode not in known and not is_unfinished:
                self._put_aside(name, found.inode)
            self._disk.unlink(self._folder, name)

    def _put_aside(self, name: str, inode: int) -> None:
        # A mirror that died may have kept it beside.
        if inode not in self._beside and not self._is_beside(name, inode):
            _keep_aside(self._disk, self._folder, name, inode)

    def _cut(self, name: str, size: int) -> bytes:
        """Cut a file to a size; returns what it had behind that."""
        handle = self._disk.open_append(self._folder, name)
        try:
            rest = self._disk.read(handle, self._disk.stat(handle).size - size, size)
            if rest:
                self._disk.truncate(handle, size)
            return rest
        finally:
            self._disk.close(handle)


def put_aside(disk: Disk, folder: int) -> None:
    """Take the session out of an open folder, whose files go to `quarantine/`."""
    for name in session_files(disk, folder):
        found = disk.stat_name(folder, name)
        if found is not None and not is_hint(name):
            _keep_aside(disk, folder, name, found.inode)
    take_out(disk, folder)


def take_out(disk: Disk, folder: int) -> None:
    """Remove the session's files from an open folder, and the mark; others' files stay."""
    for name in (*session_files(disk, folder), paths.JOURNAL_MARK):
        remove(disk, folder, name)
    disk.fsync(folder)


def _record_files(files: Mapping[str, int]) -> dict[tuple[str, int], str]:
    """The names of the files with records, by what they are and which generation of that.

    The name is empty for what a rewrite left without a record, and for a stream that was deleted.

    Args:
        files: what tells one file from another, by their names.
    """
    found: dict[tuple[str, int], str] = {}
    last: dict[str, int] = {}
    for name, file in files.items():
        number, deleted = paths.generation_of(name), paths.deleted_stream_of(name)
        present = paths.CONTEXT if deleted is None else paths.stream_file(deleted.stream)
        number = number if deleted is None else deleted.number
        # A rewrite that was cut short left the present file a second name.
        if number is not None and files.get(present) != file:
            last[present] = max(number, last.get(present, 0))
            if not paths.is_compressed(name):
                found[present, number - 1] = name
    for name in files:
        # A cold stream is compressed as a whole, and at times it has both forms.
        present = paths.plain_file(name)
        if name != present and present in files:
            continue
        if present in {paths.CONTEXT, paths.WIRE} or paths.stream_of(present) is not None:
            found[present, last.get(present, 0)] = name
    for place in last.items():
        found.setdefault(place, "")
    return found


def _is_contained(
    inner: Mapping[tuple[str, int], str],
    outer: Mapping[tuple[str, int], str],
    is_beginning: Callable[[str, str], bool],
) -> bool:
    """Whether the files with records of one session are the beginning of those of another.

    Past generations that the other has no more were removed there, or compressed.
    """
    last: dict[str, int] = {}
    for name, generation in inner:
        last[name] = max(generation, last.get(name, 0))
    return all(
        not name or (outer[place] != "" and is_beginning(name, outer[place]))
        if place in outer
        else place[1] < last[place[0]]
        for place, name in inner.items()
    )


def _keep_aside(disk: Disk, folder: int, name: str, inode: int, shown: str | None = None) -> None:
    quarantined = disk.open_folder(folder, paths.QUARANTINE, create=True)
    try:
        kept = f"{shown or name}.inode-{inode}"
        remove(disk, quarantined, kept)
        disk.link(folder, name, kept, into=quarantined)
        disk.fsync(quarantined)
    finally:
        disk.close(quarantined)


def _joined(entries: Iterable[AnyEntry | None]) -> Iterator[AnyEntry | None]:
    """Join appends that follow one another in a file.

    Each write lets another thread have the interpreter, and a session may be many small records.
    """
    for file, run in groupby(entries, lambda each: each.file if type(each) is Append else None):
        if file is None:
            yield from run
            continue
        part, size = list[Append](), 0
        for each in run:
            assert isinstance(each, Append)
            part.append(each)
            size += len(each.data)
            if size >= limits.APPENDS_TOGETHER_BYTES:
                yield _as_one(part)
                part, size = [], 0
        if part:
            yield _as_one(part)


def _as_one(part: Sequence[Append]) -> Append:
    return msgspec.structs.replace(part[0], data=b"".join(each.data for each in part))


class _Files:
    """The files of a folder by their numbers, while changes are applied to them.

    A few are open at a time, because a long history has more files than a process may open.
    """

    def __init__(self, disk: Disk, folder: int, nest: int) -> None:
        self._disk = disk
        self._folder = folder
        self._nest = nest
        self._handles: dict[int, int] = {}
        self._places: dict[int, tuple[int, str]] = {}

    def add(self, number: int, name: str) -> None:
        """Add a file of the folder, by one of its names."""
        self._places[number] = self._folder, name

    def apply(self, entry: AnyEntry | None) -> None:
        """Apply an entry to the content of the files; names come last."""
        match entry:
            case None | Name():
                return
            case Append() | Cut() | Copy() if entry.file not in self._places:
                # A hint that was not whole yet at the mark.
                return
            case Create():
                # A snapshot makes all files again.
                if entry.file in self._handles:
                    self._disk.close(self._handles.pop(entry.file))
                remove(self._disk, self._nest, str(entry.file))
                self._places[entry.file] = self._nest, str(entry.file)
                self._disk.close(self._disk.open_new(self._nest, str(entry.file)))
            case Append():
                write_all(self._disk, self._handle(entry.file), entry.data)
            case Copy():
                piece = Range(0, entry.source_offset, entry.size)
                copy_all(self._disk, self._handle(entry.source), self._handle(entry.file), piece)
            case Cut():
                self._disk.truncate(self._handle(entry.file), entry.size)
            case _:
                assert_never(entry)

    def content(self, number: int) -> bytes:
        """All bytes of a small file; none if the journal brought it before the mark."""
        if number not in self._places:
            return b""
        handle = self._handle(number)
        return self._disk.read(handle, self._disk.stat(handle).size, 0)

    def inode(self, number: int) -> int:
        """The inode of a file."""
        return self._disk.stat(self._handle(number)).inode

    def has(self, number: int, offset: int, data: bytes) -> bool:
        """Whether a file has these bytes at an offset."""
        return self._disk.read(self._handle(number), len(data), offset) == data

    def begins(self, number: int, name: str) -> bool:
        """Whether a file begins with all that the folder has at a name."""
        surplus = self._surplus(number, name)
        return surplus is not None and surplus >= 0

    def is_begun(self, number: int, name: str) -> bool:
        """Whether the folder has at a name what begins with all of a file."""
        surplus = self._surplus(number, name)
        return surplus is not None and surplus <= 0

    def _surplus(self, number: int, name: str) -> int | None:
        """How much longer a file is than the folder's at a name; None if neither begins both."""
        handle, ours = self._disk.open_read(self._folder, name), self._handle(number)
        try:
            theirs_size, ours_size = (self._disk.stat(each).size for each in (handle, ours))
            shared = min(theirs_size, ours_size)
            is_same = crc_of(self._disk, handle, 0, shared) == crc_of(self._disk, ours, 0, shared)
            return ours_size - theirs_size if is_same else None
        finally:
            self._disk.close(handle)

    def link(self, number: int, name: str) -> None:
        """Give a file another name in the folder."""
        place, old = self._places[number]
        remove(self._disk, self._folder, name)
        self._disk.link(place, old, name, into=self._folder)

    def close(self) -> None:
        """Close all files."""
        while self._handles:
            self._disk.close(self._handles.popitem()[1])

    def _handle(self, number: int) -> int:
        found = self._handles.get(number)
        if found is None:
            if len(self._handles) >= limits.MIRROR_HANDLES_MAX:
                oldest = next(iter(self._handles))
                self._disk.close(self._handles.pop(oldest))
            place, name = self._places[number]
            found = self._handles[number] = self._disk.open_append(place, name)
        return found
