"""Repair of torn writes at the end of a file.

Only bytes that a crash can have left are cut, and never without a copy. Everything here blocks.
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
    """The repair of a tail: `region` begins at `start`, and `tail` is its judgement."""

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
    """An open file of a session, with a tail that may need repair.

    Attributes:
        disk: the disk it lies on.
        folder: its open folder.
        handle: the open file.
        name: its name.
        generation: its generation; 0 for a file without generations.
        session: the session's id, for messages.
        path: the folder's path, for messages.
        failed_syncs: records a failed sync, and the first later one of the whole file.
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

    def recovery_point(self) -> RecoveryPoint | None:
        """Return the recovery point of an earlier writer, if it belongs to this file."""
        point = self._read_recovery_point()
        is_it = point is not None and self.disk.stat(self.handle).inode == point.inode
        return point if point is not None and is_it and self._holds(point) else None

    def changed_since(self) -> Position | None:
        """Return the head at the recovery point if the file has changed since, else None."""
        point = self._read_recovery_point()
        if point is None or self._holds(point):
            return None
        return Position(point.generation, point.lines)

    def _read_recovery_point(self) -> RecoveryPoint | None:
        point = decode_recovery_point(
            read_file(self.disk, self.folder, paths.recovery_point_file(self.name))
        )
        return point if point is not None and point.generation == self.generation else None

    def _holds(self, point: RecoveryPoint) -> bool:
        """Whether the file begins with the bytes of a recovery point, by its fingerprint."""
        is_there = 0 <= point.bytes <= self.size
        marked = (point.bytes, point.crc)
        return is_there and fingerprint(self.disk, self.handle, point.bytes) == marked

    def make_durable(self, proven: int) -> int:
        """Make the file durable before it is read, since its end may never have been synced.

        After a failed fsync the page cache shows bytes that no later fsync writes (Rebello et al.,
        Can Applications Recover from fsync Failures?, ATC 2020), and an earlier process may have
        had one. So the bytes behind the last proven length are written again first, and so is the
        size: a cut that a failed fsync dropped would leave the cut bytes on the disk.

        Args:
            proven: the length that is known to be durable.

        Returns:
            The durable size; later bytes may follow.
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
        """Whether a program that shares the folder may be writing to the file now."""
        age_s = now - self.disk.stat(self.handle).modified_s
        return shared and abs(age_s) < limits.FOREIGN_SETTLE_S

    def check_settled(self, point: RecoveryPoint | None) -> None:
        """Refuse to judge a tail that another program may be writing.

        Raises:
            Busy: the tail is damaged; nothing was changed.
        """
        tail = self._examine(point).tail
        if tail.damage is not None or tail.unended:
            raise Busy(
                f"another program seems to be writing a line of {self.path}/{self.name}: try again"
                " in a moment",
                session=self.session,
            )

    def readable_size(self, point: RecoveryPoint | None) -> int:
        """Return the bytes of whole batches of whole lines, which readers may get; repair nothing.

        The last block shows them, unless a torn batch begins before it.
        """
        reach = limits.BLOCK_BYTES
        while True:
            repair = self._examine(point, reach)
            is_all = repair.start == 0 or reach >= limits.TORN_TAIL_BYTES_MAX
            if repair.tail.keep or not repair.region or is_all:
                break
            reach *= 8
        whole = whole_lines(repair.region) if repair.tail.unended else repair.tail.keep
        return repair.start + whole

    def mend(
        self, point: RecoveryPoint | None, now: float, entries: list[TimelineEntry], *, durable: int
    ) -> int:
        """Repair the tail of the file durably, and return the file's size.

        1. The bytes to cut are copied. 2. The timeline gets an entry. 3. The bytes are cut, if they
        are unchanged. 4. The tail is judged again. A crash between two steps leaves the damage in
        place, so the next opening repeats the steps and writes no second entry.

        Args:
            point: the recovery point, if there is one.
            now: Unix time in seconds.
            entries: the timeline.
            durable: the size that was synced; bytes that another program has appended since are
                synced, too, because only durable bytes are published.

        Raises:
            Busy: another program keeps writing the tail, or edits the bytes before the recovery
                point; nothing was cut.
        """
        last = entries[-1] if entries else None
        for _ in range(limits.MEND_LOOKS_MAX):
            repair = self._examine(point)
            if repair.tail.damage is None and not repair.tail.unended:
                self._check_marked(point)
                if repair.end > durable:
                    self._sync()
                return repair.end
            entry = self._entry(repair, now)  # 1.
            if last is None or (last.kind, last.details) != (entry.kind, entry.details):
                jsonl.append_timeline(self.disk, self.folder, timeline.encode(entry))  # 2.
                last = entry
            self._check_marked(point)
            if self._is_still(repair):
                self._apply(repair)  # 3.
                durable = repair.keep
        raise Busy(
            f"another program keeps writing to {self.path}/{self.name}: try again in a moment",
            session=self.session,
        )

    def _entry(self, repair: _Repair, now: float) -> TimelineEntry:
        """Copy the bytes to cut, and return the timeline entry of the repair."""
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

    def _check_marked(self, point: RecoveryPoint | None) -> None:
        """Refuse a recovery point if another program is editing the bytes before it.

        The bytes behind it may then begin inside a line.

        Raises:
            Busy: the bytes changed; the next opening judges the file without the recovery point.
        """
        if point is not None and not self._holds(point):
            raise Busy(
                f"another program is editing {self.path}/{self.name}: try again in a moment",
                session=self.session,
            )

    def _is_still(self, repair: _Repair) -> bool:
        """Whether the tail is unchanged since it was judged."""
        expected = repair.region[repair.tail.keep :]
        # One read of one byte more than expected, since another program may write between two.
        return self.disk.read(self.handle, len(expected) + 1, repair.keep) == expected

    def _apply(self, repair: _Repair) -> None:
        if repair.tail.unended:
            write_all(self.disk, self.handle, b"\n")
        else:
            self.disk.truncate(self.handle, repair.keep)
        self._sync()

    def marked_checksums(self, point: RecoveryPoint | None) -> BlockChecksums:
        """Return the checksums up to the recovery point, empty ones without a recovery point."""
        if point is None:
            return BlockChecksums()
        return BlockChecksums(point.bytes, point.checksums)

    def replay(
        self, point: RecoveryPoint | None, size: int, checksums: BlockChecksums | None = None
    ) -> Replay:
        """Replay the first `size` bytes from the recovery point on, and feed `checksums`."""
        replay, offset = Replay(), 0
        if point is not None:
            replay = Replay(point.lines, point.counters(), SeekIndex(point.milestones))
            offset = point.bytes
        for block in self._blocks(offset, size):
            replay.feed(block)
            if checksums is not None:
                checksums.feed(block)
            offset += len(block)
            replay.milestones.record_offset(offset, replay.lines, replay.counters)
        return replay

    def _examine(
        self, point: RecoveryPoint | None, reach: int = limits.TORN_TAIL_BYTES_MAX
    ) -> _Repair:
        if point is None and reach > limits.BLOCK_BYTES and not self._has_lost_pages(reach):
            # Without NUL pages only the very end can be torn, which the last block shows.
            repair = self._examine(None, limits.BLOCK_BYTES)
            if repair.tail.keep or repair.start == 0:
                return repair
        start, region = self._region(point, reach)
        return _Repair(start, region, examine_tail(region, marked=point is not None))

    def _has_lost_pages(self, reach: int) -> bool:
        """Whether the last `reach` bytes have NULs: pages that no sync made durable."""
        size = self.size
        for offset in range(max(0, size - reach), size, limits.BLOCK_BYTES):
            if b"\0" in self.disk.read(self.handle, limits.BLOCK_BYTES, offset):
                return True
        return False

    def _region(self, point: RecoveryPoint | None, reach: int) -> tuple[int, bytes]:
        """Return offset and bytes to judge: behind the recovery point, or the end of the file."""
        size = self.size
        if point is not None:
            return point.bytes, self.disk.read(self.handle, size - point.bytes, point.bytes)
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
        """Yield whole lines from `start` to `end`, about `BLOCK_BYTES` at a time."""
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
    """Return the fingerprint of the first `size` bytes of an open file."""
    start = max(0, size - limits.FINGERPRINT_BYTES)
    return timeline.fingerprint(size, disk.read(handle, size - start, start))
