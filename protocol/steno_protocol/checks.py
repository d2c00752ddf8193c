"""Checks of files and of whole session folders; nothing is changed.

A session's files refer to each other: the timeline contains every rewrite, the recovery point the
checksums of the synced bytes, and file names the generations. A check compares them.
"""

import errno
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final, NamedTuple, Protocol

import msgspec

from steno_protocol import limits, paths, timeline_entries
from steno_protocol._json import is_object
from steno_protocol.checksums import BlockChecksums
from steno_protocol.compression import Unexpandable
from steno_protocol.damage import Edit, Finding, Scanner, merged
from steno_protocol.errors import TooLarge
from steno_protocol.line_schemas import LineSchema, schema_of
from steno_protocol.records import stamp_of
from steno_protocol.replies import CheckedFile, CheckFinding, Verification
from steno_protocol.timeline_entries import TimelineEntry

Progress = Callable[[int], None]
"""Receives the number of bytes checked since the last call."""

_SHORT_OF: Final = (errno.EMFILE, errno.ENFILE, errno.ENOMEM)
"""Errors of a process without handles or memory; the file itself may be sound."""

_SMALL_BYTES: Final = limits.MIB
"""Bytes of a state or a recovery point; a longer file is invalid."""

_decode = msgspec.json.Decoder().decode
_decode_entry = msgspec.json.Decoder(TimelineEntry).decode


class Facts(NamedTuple):
    """The size and inode of a file."""

    size: int
    inode: int


class Folder(Protocol):
    """An open folder that may be read. Every method may raise OSError."""

    def names(self, below: str = "") -> Sequence[str]:
        """List the names in it, or in its folder `below`; empty if that does not exist."""
        ...

    def facts(self, name: str) -> Facts | None:
        """Return size and inode of a file, None if it does not exist."""
        ...

    def read(self, name: str, size: int, offset: int) -> bytes:
        """Read up to `size` bytes of a file from `offset`."""
        ...


class Check(msgspec.Struct):
    """The results of a check so far.

    Attributes:
        progress: receives the number of bytes checked.
        files: the checked files.
        findings: the first `FINDINGS_LISTED_MAX` findings.
        damage: the number of findings that are damage, listed or not.
        notes: the number of the others.
    """

    progress: Progress = lambda _: None
    files: list[CheckedFile] = msgspec.field(default_factory=list[CheckedFile])
    findings: list[CheckFinding] = msgspec.field(default_factory=list[CheckFinding])
    damage: int = 0
    notes: int = 0

    def add(self, name: str, finding: Finding, remedy: str | None = None) -> None:
        """Add a finding; `remedy` names its remedy if that is not a repair."""
        self.damage += finding.is_damage
        self.notes += not finding.is_damage
        if len(self.findings) >= limits.FINDINGS_LISTED_MAX:
            return
        self.findings.append(
            CheckFinding(
                file=name,
                kind=finding.kind,
                what=finding.what,
                damage=finding.is_damage,
                offset=finding.offset,
                bytes=finding.size,
                line=finding.line,
                records=finding.records,
                remedy=finding.remedy if remedy is None else remedy,
            )
        )

    def report(self, session: str | None, generation: int = 0) -> Verification:
        """Return the results as a reply."""
        return Verification(
            session=session,
            generation=generation,
            files=self.files,
            findings=self.findings,
            damage=self.damage,
            notes=self.notes,
        )


def blocks(read: Callable[[int, int], bytes], size: int) -> Iterator[bytes]:
    """Read the first `size` bytes of a file block by block; fewer if it ends before."""
    offset = 0
    while offset < size:
        data = read(min(limits.BLOCK_BYTES, size - offset), offset)
        if not data:
            return
        offset += len(data)
        yield data


def check_file(
    check: Check, name: str, data: Iterable[bytes], schema: LineSchema, *, remedies: bool = True
) -> Scanner:
    """Check the lines of one file.

    Args:
        check: receives the findings.
        name: the file's name.
        data: its blocks.
        schema: the rules for its lines.
        remedies: a repair would change this file.
    """
    scanner = Scanner(schema)
    remedy = None if remedies else "none"
    for block in data:
        for finding in scanner.feed(block):
            check.add(name, finding, remedy)
        check.progress(len(block))
    for finding in scanner.finish():
        check.add(name, finding, remedy)
    check.files.append(
        CheckedFile(
            file=name,
            bytes=scanner.size,
            lines=scanner.lines,
            records=scanner.records,
            crc=scanner.crc,
        )
    )
    return scanner


def edits_of(
    data: Iterable[bytes],
    schema: LineSchema,
    chosen: Callable[[Finding], Iterable[Edit]] = lambda finding: finding.edits,
) -> tuple[Scanner, list[Edit]]:
    """Return the edits that repair a file, and the scanner that found them.

    Args:
        data: its blocks.
        schema: the rules for its lines.
        chosen: returns the edits for a finding.

    Raises:
        TooLarge: the file has more damaged places than one repair changes.
    """
    scanner, edits = Scanner(schema), list[Edit]()
    for block in data:
        edits += [edit for finding in scanner.feed(block) for edit in chosen(finding)]
        if len(edits) > limits.REPAIR_EDITS_MAX:
            edits = merged(edits)
        if len(edits) > limits.REPAIR_EDITS_MAX:
            raise TooLarge(
                f"more than {limits.REPAIR_EDITS_MAX} places are damaged, too many for a repair:"
                " check that the file is a transcript"
            )
    edits += [edit for finding in scanner.finish() for edit in chosen(finding)]
    return scanner, merged(edits)


def check_session(
    check: Check,
    folder: Folder,
    *,
    sizes: dict[str, int],
    live: int | None = None,
    repairable: frozenset[str] | None = None,
) -> int:
    """Check a session's folder.

    Args:
        check: receives the findings.
        folder: the session's folder.
        sizes: the number of whole bytes of the files that are appended to; the next opening
            repairs the bytes behind them. Files that are not named are checked as a whole.
        live: the present generation of a session that is being written; files that a rewrite may
            be changing are left out. None for a closed session.
        repairable: the files that a repair by the caller would change; None for all files.

    Returns:
        The present generation.

    Raises:
        OSError: the folder cannot be read, or the process has no handle or memory left. An
            unreadable file is a finding.
    """
    names = folder.names()
    past = sorted(n for n in map(paths.generation_of, names) if n is not None)
    if live is not None:
        past = [number for number in past if number <= live]
    present = live if live is not None else _present(folder, past)
    rewrites = _recorded_rewrites(check, folder) if paths.TIMELINE in names else []
    mended = {
        paths.generation_file(e.generation) for e in rewrites if e.kind == timeline_entries.MENDED
    }
    for name in _files(names, past):
        if name in mended:
            _check_mended(check, folder, name)
        else:
            is_repairable = repairable is None or name in repairable
            _check_lines(check, folder, name, sizes.get(name), remedies=is_repairable)
    _Structure(
        check,
        folder,
        past,
        present,
        rewrites,
        is_live=live is not None,
        replaces_state=repairable is not None and paths.STATE in repairable,
    ).check(names)
    return present


def _files(names: Sequence[str], past: Sequence[int]) -> list[str]:
    streams = sorted(n for n in names if paths.stream_of(n) or paths.deleted_stream_of(n))
    wanted = [
        paths.CONTEXT, *map(paths.generation_file, past), paths.WIRE, *streams, paths.TIMELINE
    ]  # fmt: skip
    there = set(names)
    return [name for name in wanted if name in there]


def _check_lines(
    check: Check, folder: Folder, name: str, whole: int | None, *, remedies: bool
) -> None:
    facts = folder.facts(name)
    if facts is None:
        return
    size = facts.size if whole is None else whole
    data = blocks(lambda count, offset: folder.read(name, count, offset), size)
    try:
        if size == 0:
            # An empty file has no block to read, so this read alone detects a path that is not a
            # file.
            folder.read(name, 0, 0)
        schema = schema_of(name, in_session=True)
        scanner = check_file(check, name, data, schema, remedies=remedies)
    except FileNotFoundError:
        return  # `gc` removed an old generation meanwhile
    except OSError as error:
        _report_unreadable(check, name, error)
        return
    if whole is not None and facts.size > whole:
        end = _read(
            check, folder, name, min(facts.size - whole, limits.LINE_CHECKED_BYTES_MAX), whole
        )
        check.add(name, _end(end or b"", whole, facts.size - whole, scanner.lines + 1), "opening")


def _end(data: bytes, offset: int, size: int, line: int) -> Finding:
    """Describe a tail that the next opening repairs: it cuts a torn write or adds a newline."""
    # A line of steno's without a newline was not acknowledged, so it is cut.
    if len(data) == size and stamp_of(data) is None and is_object(_decoded(data)):
        what = "another program's last line lacks its newline: the next opening adds it"
        return Finding("unended", what, offset + size, 0, line, 1)
    what = f"a torn tail of {size} bytes that were never acknowledged: the next opening cuts it"
    return Finding("torn", what, offset, size, line)


def _report_unreadable(check: Check, name: str, error: OSError) -> None:
    """Report an unreadable file, once per file.

    Raises:
        OSError: the process lacks handles or memory, so the file itself may be readable.
    """
    if error.errno in _SHORT_OF:
        raise error
    if isinstance(error, Unexpandable):
        kind, what = "unchecked", f"it was not checked: {error.strerror}"
    else:
        kind, what = "unreadable", f"it cannot be read: {error}"
    if not any(each.file == name and each.kind == kind for each in check.findings):
        check.add(name, Finding(kind, what))


def _check_mended(check: Check, folder: Folder, name: str) -> None:
    """Check a generation that a repair left behind; its damage is repaired, so it is a note."""
    apart = Check(check.progress)
    _check_lines(apart, folder, name, None, remedies=False)
    check.files += apart.files
    if apart.damage:
        what = f"the next generation, a repair, left out its {apart.damage} damaged places"
        check.add(name, Finding("mended", what))


def _recorded_rewrites(check: Check, folder: Folder) -> list[TimelineEntry]:
    """Return the rewrites in the timeline, oldest first, without voided ones."""
    facts = folder.facts(paths.TIMELINE)
    data = _read(check, folder, paths.TIMELINE, facts.size if facts else 0, 0) or b""
    found: list[TimelineEntry] = []
    for line in data.split(b"\n"):
        try:
            entry = _decode_entry(line)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            continue
        if entry.kind == timeline_entries.VOIDED:
            found = [other for other in found if other.generation != entry.generation]
        elif _fingerprint(entry, "old") is not None:
            found.append(entry)
    return found


def _read(check: Check, folder: Folder, name: str, size: int, offset: int) -> bytes | None:
    """Read a part of a file; None if it is gone, or unreadable, which is reported."""
    try:
        return folder.read(name, size, offset)
    except FileNotFoundError:
        return None
    except OSError as error:
        _report_unreadable(check, name, error)
        return None


def _present(folder: Folder, past: list[int]) -> int:
    """Return the generation of `context.jsonl`, ignoring a second name of it."""
    if past and _is_twin(folder, past[-1]):
        return past[-1] - 1
    return past[-1] if past else 0


def _is_twin(folder: Folder, number: int) -> bool:
    old, context = folder.facts(paths.generation_file(number)), folder.facts(paths.CONTEXT)
    return old is not None and context is not None and old.inode == context.inode


def _streams(names: Sequence[str]) -> list[tuple[str, int]]:
    """Return the file of each stream with its generation, the number of its deletions."""
    deleted: dict[str, int] = {}
    for each in filter(None, map(paths.deleted_stream_of, names)):
        deleted[each.stream] = max(each.number, deleted.get(each.stream, 0))
    streams = sorted(filter(None, map(paths.stream_of, names)))
    return [(paths.stream_file(stream), deleted.get(stream, 0)) for stream in streams]


class _Structure(msgspec.Struct, frozen=True):
    """Checks of a session's files against each other."""

    check_: Check
    folder: Folder
    past: list[int]
    present: int
    rewrites: list[TimelineEntry]
    is_live: bool
    replaces_state: bool

    def check(self, names: Sequence[str]) -> None:
        """Compare all files."""
        if paths.CONTEXT not in names:
            what = "it does not exist, so the session has no present generation"
            if self.past:
                newest = paths.generation_file(self.past[-1])
                what += f": move the newest generation, {newest}, here to continue from it"
            self._report("no_context", paths.CONTEXT, what)
            return
        self._generations()
        entries = [entry for entry in self.rewrites if entry.generation <= self._latest]
        for entry in entries:
            self._rewrite(entry, is_last=entry is entries[-1])
        files = [(paths.CONTEXT, self.present), (paths.WIRE, 0), *_streams(names)]
        for name, generation in files:
            if paths.recovery_point_file(name) in names:
                self._check_recovery_point(name, generation)
        if paths.STATE in names:
            self._state()
        if paths.REWRITE in names and not self.is_live:
            what = "an unfinished rewrite left this file; the next opening removes it"
            self._report("leftover", paths.REWRITE, what)
        self._quarantine()

    def _generations(self) -> None:
        highest = self.past[-1] if self.past else 0
        missing = sorted(set(range(1, highest + 1)) - set(self.past))
        for number in missing[:10]:
            what = "it is missing although later ones exist: it was removed, or has expired"
            self._report("generation_gap", paths.generation_file(number), what)
        if highest and not self.is_live and _is_twin(self.folder, highest):
            what = (
                f"a second name of {paths.CONTEXT}, from a rewrite that did not take place; the"
                " next opening removes it"
            )
            self._report("rewrite_open", paths.generation_file(highest), what)

    @property
    def _latest(self) -> int:
        # While a session is being written, only the rewrites up to its present one are settled.
        return self.present if self.is_live else self.present + 1

    def _rewrite(self, entry: TimelineEntry, *, is_last: bool) -> None:
        """Compare both files of a rewrite, the old and the new one, with its fingerprints."""
        left = paths.generation_file(entry.generation)
        followed = paths.generation_file(entry.generation + 1)
        # If a later generation followed and is missing, `gc` removed it, and `context.jsonl` is
        # not the file that this rewrite made.
        if entry.generation + 1 not in self.past and entry.generation >= self.present:
            followed = paths.CONTEXT
        is_open = entry.generation not in self.past or (
            not self.is_live and _is_twin(self.folder, entry.generation)
        )
        if is_open and entry.generation > self.present and is_last:
            what = (
                f"the rewrite {entry.kind!r} to generation {entry.generation} was begun and did"
                " not take place; the next opening voids it"
            )
            self._report("rewrite_open", paths.TIMELINE, what)
            return
        for name, which in ((left, "old"), (followed, "new")):
            fingerprint = _fingerprint(entry, which)
            # A missing file is an expired generation or was reported as a gap.
            if fingerprint is not None and self._begins_with(name, *fingerprint) is False:
                what = (
                    f"it does not begin with the {fingerprint[0]} bytes that the timeline has"
                    f" for the rewrite {entry.kind!r} to generation {entry.generation}"
                )
                self._report("rewrite_lost", name, what)

    def _begins_with(self, name: str, size: int, crc: int) -> bool | None:
        """Whether a file begins with the bytes of a fingerprint; None if it cannot be read."""
        facts = self.folder.facts(name)
        if facts is None:
            return None
        if facts.size < size:
            return False
        start = max(0, size - limits.FINGERPRINT_BYTES)
        data = self._read(name, size - start, start)
        return None if data is None else zlib.crc32(data) == crc

    def _check_recovery_point(self, name: str, generation: int) -> None:
        """Compare a file with its recovery point: synced bytes do not change."""
        data = self._read(paths.recovery_point_file(name), _SMALL_BYTES)
        if data is None:
            return
        point = _decoded(data[9:]) if data[:9] == b"%08x " % zlib.crc32(data[9:]) else None
        facts = self.folder.facts(name)
        if not is_object(point) or facts is None:
            what = "it is not a recovery point: the next opening reads the whole file"
            self._report("mark_ignored", paths.recovery_point_file(name), what)
            return
        is_its_own = (point.get("generation"), point.get("inode")) == (generation, facts.inode)
        size, crc = point.get("bytes"), point.get("crc")
        if not is_its_own or not isinstance(size, int) or not isinstance(crc, int):
            return
        known = point.get("checksums")
        checksums = BlockChecksums(size, _checksums(known)) if facts.size >= size else None
        is_found = checksums is not None and self._changed_blocks(name, checksums)
        if not is_found and self._begins_with(name, size, crc) is False:
            what = f"its first {size} bytes are not those that were synced"
            self._report("synced_lost", name, what)

    def _changed_blocks(self, name: str, checksums: BlockChecksums) -> bool:
        """Report the blocks of a file that differ from the synced ones; True if there are any."""
        data = blocks(lambda count, offset: self._read(name, count, offset) or b"", checksums.size)
        is_found = False
        for offset, size in checksums.differences(data):
            is_found = True
            what = (
                "these bytes are not those that were synced: the disk or another program changed"
                " them; restore the file from a copy, or, if the change is intended, remove"
                f" {paths.recovery_point_file(name)} while the session is closed"
            )
            self.check_.add(name, Finding("synced_lost", what, offset, size))
        return is_found

    def _state(self) -> None:
        data = self._read(paths.STATE, _SMALL_BYTES)
        if data is not None and not is_object(_decoded(data)):
            what = "it is not a JSON object: title, labels and archive are lost until set again"
            remedy = "replace" if self.replaces_state else None
            self.check_.add(paths.STATE, Finding("state_unreadable", what), remedy)

    def _quarantine(self) -> None:
        try:
            kept = self.folder.names(paths.QUARANTINE)
        except OSError as error:
            _report_unreadable(self.check_, paths.QUARANTINE, error)
            return
        if kept:
            what = f"{len(kept)} pieces that repairs cut from files are kept here"
            self._report("quarantined", paths.QUARANTINE, what)

    def _read(self, name: str, size: int, offset: int = 0) -> bytes | None:
        return _read(self.check_, self.folder, name, size, offset)

    def _report(self, kind: str, name: str, what: str) -> None:
        self.check_.add(name, Finding(kind, what))


def _checksums(value: object) -> list[int | None]:
    """Return the checksums of a recovery point; none if they are invalid."""
    try:
        return msgspec.convert(value, list[int | None])
    except msgspec.ValidationError:
        return []


def _fingerprint(entry: TimelineEntry, which: str) -> tuple[int, int] | None:
    match entry.details.get(which):
        case [int() as size, int() as crc]:
            return size, crc
        case _:
            return None


def _decoded(data: bytes) -> object:
    try:
        return _decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
