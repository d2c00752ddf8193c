"""The end of one of a session's files: made durable, then judged, then put right.

Only what a crash can have left is cut, and never without a copy. Everything here blocks.
"""

import errno
from collections.abc import Iterator

import msgspec

from steno_protocol import limits, paths, timeline_entries
from steno_protocol.checksums import BlockChecksums
from steno_protocol.errors import Busy
from steno_protocol.positions import Position
from steno_protocol.timeline_entries import TimelineEntry
from stenod.core import timeline
from stenod.core.lines import Tail, examine_tail, whole_lines
from stenod.core.recovery_point import RecoveryPoint, decode_recovery_point
from stenod.core.replay import Replay
from stenod.core.seek_index import SeekIndex
from stenod.store import jsonl
from stenod.store.disk import Disk
from stenod.store.failed_syncs import FailedSyncs
from stenod.store.handles import write_again, write_all
from stenod.store.names import read_file
from stenod.store.quarantine import quarantine


class _Repair(msgspec.Struct, frozen=True):
    """What the end of a file needs: `region` begins at `start`, `tail` says what of it stays."""

    start: int
    region: bytes
    tail: Tail

    @property
    def keep(self) -> int:
        return self.start + self.tail.keep

    @property
    def end(self) -> int:
        return self.start + len(self.region)


class FileEnd(msgspec.Struct, frozen=True):
    """An open file of a session, at which something may have to be mended.

    Attributes:
        disk: the disk it lies on.
        folder: its open folder.
        handle: the open file.
        name: its name.
        generation: which generation it is; 0 for a file that has none.
        session: the session's id, for messages.
        path: the folder's path, for messages.
        failed_syncs: records a failed sync, and the first one that covers the whole file.
    """

    disk: Disk
    folder: int
    handle: int
    name: str
    generation: int
    session: str
    path: str
    failed_syncs: FailedSyncs

    @property
    def size(self) -> int:
        """Its bytes."""
        return self.disk.stat(self.handle).size

    def mark(self) -> RecoveryPoint | None:
        """The mark that an earlier writer left, if it speaks of this very file."""
        mark = self._mark()
        is_it = mark is not None and self.disk.stat(self.handle).inode == mark.inode
        return mark if mark is not None and is_it and self._holds(mark) else None

    def changed_since(self) -> Position | None:
        """Where the file ended when an earlier writer left it, if that is not in it any more."""
        mark = self._mark()
        if mark is None or self._holds(mark):
            return None
        return Position(mark.generation, mark.lines)

    def _mark(self) -> RecoveryPoint | None:
        mark = decode_recovery_point(
            read_file(self.disk, self.folder, paths.recovery_point_file(self.name))
        )
        return mark if mark is not None and mark.generation == self.generation else None

    def _holds(self, mark: RecoveryPoint) -> bool:
        """True when the file starts with the bytes of the recovery point, by its fingerprint."""
        is_there = 0 <= mark.bytes <= self.size
        marked = (mark.bytes, mark.crc)
        return is_there and fingerprint(self.disk, self.handle, mark.bytes) == marked

    def make_durable(self, proven: int) -> int:
        """Sync first, then read: what was written and never synced must not be believed yet.

        After a failed fsync the page cache shows bytes that no later fsync would write (Rebello et
        al., Can Applications Recover from fsync Failures?, ATC 2020), and it is unknown whether an
        earlier process had one. So what lies behind the last proven length is written again first,
        and so is the size: a cut that a failed fsync dropped would leave the cut bytes on the disk.

        Returns the size that is durable; what is longer came since.
        """
        size = self.size
        write_again(self.disk, self.handle, proven, size)
        self.disk.hold_size(self.handle)
        self._sync()
        self.failed_syncs.dispel(self.disk.stat(self.handle))
        self.disk.fsync(self.folder)
        return size

    def _sync(self) -> None:
        with self.failed_syncs.syncing(self.disk.stat(self.handle)):
            self.disk.fsync(self.handle)

    def is_fresh(self, now: float, *, shared: bool) -> bool:
        """True when a program that shares the folder may be writing right now."""
        age_s = now - self.disk.stat(self.handle).modified_s
        return shared and abs(age_s) < limits.FOREIGN_SETTLE_S

    def check_settled(self, mark: RecoveryPoint | None) -> None:
        """Refuse to judge an end that another program may be in the middle of.

        Raises:
            Busy: it is damaged; nothing was changed.
        """
        tail = self._examine(mark).tail
        if tail.damage is not None or tail.unended:
            raise Busy(
                f"another program seems to be writing a line of {self.path}/{self.name}: try again"
                " in a moment",
                session=self.session,
            )

    def readable_size(self, mark: RecoveryPoint | None) -> int:
        """Bytes that a reader may be given: whole batches of whole lines; nothing is repaired.

        The last block is enough to see that, unless a batch without its end began before it.
        """
        reach = limits.BLOCK_BYTES
        while True:
            repair = self._examine(mark, reach)
            is_all = repair.start == 0 or reach >= limits.TORN_TAIL_BYTES_MAX
            if repair.tail.keep or not repair.region or is_all:
                break
            reach *= 8
        whole = whole_lines(repair.region) if repair.tail.unended else repair.tail.keep
        return repair.start + whole

    def mend(
        self, mark: RecoveryPoint | None, now: float, entries: list[TimelineEntry], *, durable: int
    ) -> int:
        """Put the end of the file right, durably; returns the size of what is left.

        1. The bytes to cut are copied, 2. the timeline gets an entry, 3. they are cut, if they
        still are what was copied; 4. what is there then is judged anew. A crash between two steps
        leaves the damage where it is, so that the steps are repeated and the entry is written once.

        Args:
            mark: how far it is known to have been synced.
            now: Unix time in seconds.
            entries: of the timeline.
            durable: the size that was synced; what another program appended since is synced, too,
                because only durable bytes are published.

        Raises:
            Busy: another program writes there faster than it can be copied, or edits what was
                marked; it was not cut.
        """
        last = entries[-1] if entries else None
        for _ in range(limits.MEND_LOOKS_MAX):
            repair = self._examine(mark)
            if repair.tail.damage is None and not repair.tail.unended:
                self._check_marked(mark)
                if repair.end > durable:
                    self._sync()
                return repair.end
            entry = self._entry(repair, now)  # 1.
            if last is None or (last.kind, last.details) != (entry.kind, entry.details):
                jsonl.append_timeline(self.disk, self.folder, timeline.encode(entry))  # 2.
                last = entry
            self._check_marked(mark)
            if self._is_still(repair):
                self._apply(repair)  # 3.
                durable = repair.keep
        raise Busy(
            f"another program keeps writing to {self.path}/{self.name}: try again in a moment",
            session=self.session,
        )

    def _entry(self, repair: _Repair, now: float) -> TimelineEntry:
        """The timeline entry of a repair, after its bytes were copied."""
        return TimelineEntry(
            kind=timeline_entries.REPAIRED,
            generation=self.generation,
            at=now,
            why=repair.tail.damage or "the last line lacked its newline",
            details={
                "file": self.name,
                "offset": repair.keep,
                "bytes": repair.end - repair.keep,
                "kept_in": self._copy_aside(repair),
            },
        )

    def _check_marked(self, mark: RecoveryPoint | None) -> None:
        """Refuse to go on from a mark below which another program edits right now.

        What stands behind it then may begin in the middle of a line.

        Raises:
            Busy: it does; the next opening judges what is there without the mark.
        """
        if mark is not None and not self._holds(mark):
            raise Busy(
                f"another program is editing {self.path}/{self.name}: try again in a moment",
                session=self.session,
            )

    def _is_still(self, repair: _Repair) -> bool:
        """True when the file ends as it did when it was examined: nothing came since."""
        expected = repair.region[repair.tail.keep :]
        # One call, and one byte more than expected: another program may write between two calls.
        return self.disk.read(self.handle, len(expected) + 1, repair.keep) == expected

    def _apply(self, repair: _Repair) -> None:
        if repair.tail.unended:
            write_all(self.disk, self.handle, b"\n")
        else:
            self.disk.truncate(self.handle, repair.keep)
        self._sync()

    def marked_checksums(self, mark: RecoveryPoint | None) -> BlockChecksums:
        """The checksums of the marked bytes; of none without a mark."""
        if mark is None:
            return BlockChecksums()
        return BlockChecksums(mark.bytes, mark.checksums)

    def replay(
        self, mark: RecoveryPoint | None, size: int, checksums: BlockChecksums | None = None
    ) -> Replay:
        """What the first `size` bytes say, from the mark on; `checksums` is fed with them."""
        replay, offset = Replay(), 0
        if mark is not None:
            replay = Replay(mark.lines, mark.counters(), SeekIndex(mark.milestones))
            offset = mark.bytes
        for block in self._blocks(offset, size):
            replay.feed(block)
            if checksums is not None:
                checksums.feed(block)
            offset += len(block)
            replay.milestones.record_offset(offset, replay.lines, replay.counters)
        return replay

    def _examine(
        self, mark: RecoveryPoint | None, reach: int = limits.TORN_TAIL_BYTES_MAX
    ) -> _Repair:
        if mark is None and reach > limits.BLOCK_BYTES and not self._has_lost_pages(reach):
            # Without NUL pages only the very end can be torn, and that is seen in little memory.
            repair = self._examine(None, limits.BLOCK_BYTES)
            if repair.tail.keep or repair.start == 0:
                return repair
        start, region = self._region(mark, reach)
        return _Repair(start, region, examine_tail(region, marked=mark is not None))

    def _has_lost_pages(self, reach: int) -> bool:
        """True when there are NULs in the last `reach` bytes: pages that no sync made durable."""
        size = self.size
        for offset in range(max(0, size - reach), size, limits.BLOCK_BYTES):
            if b"\0" in self.disk.read(self.handle, limits.BLOCK_BYTES, offset):
                return True
        return False

    def _region(self, mark: RecoveryPoint | None, reach: int) -> tuple[int, bytes]:
        """Offset and bytes of what has to be judged: behind the mark, or the end of the file."""
        size = self.size
        if mark is not None:
            return mark.bytes, self.disk.read(self.handle, size - mark.bytes, mark.bytes)
        start = max(0, size - reach)
        region = self.disk.read(self.handle, size - start, start)
        if start:
            skip = region.find(b"\n") + 1
            start, region = start + skip, region[skip:]
        return start, region

    def _copy_aside(self, repair: _Repair) -> str:
        if repair.tail.damage is None:
            return ""
        cut = repair.region[repair.tail.keep :]
        kept = quarantine(self.disk, self.folder, self.name, repair.keep, cut)
        return f"{paths.QUARANTINE}/{kept}"

    def _blocks(self, start: int, end: int) -> Iterator[bytes]:
        """Whole lines from `start` to `end`, about `BLOCK_BYTES` at a time."""
        rest = b""
        while start < end:
            data = self.disk.read(self.handle, min(limits.BLOCK_BYTES, end - start), start)
            if not data:
                raise OSError(errno.EIO, f"the file ends at {start}, before its {end} bytes")
            start += len(data)
            data = rest + data
            cut = whole_lines(data)
            rest = data[cut:]
            if cut:
                yield data[:cut]


def fingerprint(disk: Disk, handle: int, size: int) -> timeline.Fingerprint:
    """The fingerprint of the first `size` bytes of an open file."""
    start = max(0, size - limits.FINGERPRINT_BYTES)
    return timeline.fingerprint(size, disk.read(handle, size - start, start))
