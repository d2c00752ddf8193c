"""Repair of a torn tail: the end of one file of a session.

The file is synced first, then examined, then repaired. Only damage that a crash can cause is cut
off, and only after it was copied to quarantine. Everything here blocks.
"""

import errno
from collections.abc import Iterator

import msgspec

from steno_protocol import limits, paths, timeline_entries
from steno_protocol.blocks import count_lines
from steno_protocol.checksums import BlockChecksums
from steno_protocol.errors import Busy, Corrupt
from steno_protocol.positions import Position
from steno_protocol.replies import RepairedFile
from steno_protocol.timeline_entries import TimelineEntry
from stenod.core import timeline
from stenod.core.lines import Tail, examine_tail, whole_lines
from stenod.core.recovery_point import RecoveryPoint, decode_recovery_point
from stenod.core.replay import Replay
from stenod.core.seek_index import SeekIndex
from stenod.store import jsonl
from stenod.store.disk import Disk
from stenod.store.failed_syncs import FailedSyncs
from stenod.store.handles import rewrite_in_place, write_all
from stenod.store.names import read_file
from stenod.store.quarantine import quarantine


class _Repair(msgspec.Struct, frozen=True):
    """The repair that the end of a file needs.

    Attributes:
        start: offset of the region.
        region: the bytes that were examined, up to the end of the file.
        tail: the bytes of the region to keep, and the damage after them.
    """

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
    """The end of an open file of a session.

    Attributes:
        disk: the disk of the file.
        folder: its open folder.
        handle: the open file.
        name: the file's name.
        generation: the file's generation; 0 for a wire file, and the number of its deletions for a
            stream.
        session: the session's id, for messages.
        path: the folder's path, for messages.
        failed_syncs: the files with a failed sync in this process.
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
        """The file's size in bytes."""
        return self.disk.stat(self.handle).size

    def recovery_point(self) -> RecoveryPoint | None:
        """Returns the recovery point of an earlier writer; None if it is not of this file."""
        found = self._read_recovery_point()
        if found is None or found.inode != self.disk.stat(self.handle).inode:
            return None
        return found if self._matches(found) else None

    def head_before_change(self) -> Position | None:
        """Returns the head of an earlier writer if the file was changed below it, else None."""
        found = self._read_recovery_point()
        if found is None or self._matches(found):
            return None
        return Position(found.generation, found.lines)

    def _read_recovery_point(self) -> RecoveryPoint | None:
        data = read_file(self.disk, self.folder, paths.recovery_point_file(self.name))
        found = decode_recovery_point(data)
        return found if found is not None and found.generation == self.generation else None

    def _matches(self, recovery_point: RecoveryPoint) -> bool:
        """Returns whether the file has the recovery point's fingerprint up to its offset."""
        size = recovery_point.bytes
        expected = (size, recovery_point.crc)
        return 0 <= size <= self.size and fingerprint(self.disk, self.handle, size) == expected

    def make_durable(self, proven: int) -> int:
        """Make the file's present bytes durable, before they are read and served.

        After a failed fsync the page cache shows bytes that no later fsync writes (Rebello et al.,
        Can Applications Recover from fsync Failures?, ATC 2020), and an fsync of an earlier process
        may have failed. So all bytes after `proven` are written again before the sync, and so is
        the size: a failed fsync may have dropped a truncation, whose bytes are still on the disk.

        Args:
            proven: the bytes that are known to be durable.

        Returns:
            The durable size; another program may have appended to the file since.
        """
        size = self.size
        rewrite_in_place(self.disk, self.handle, proven, size)
        self.disk.mark_size_dirty(self.handle)
        self._sync()
        self.failed_syncs.resolve(self.disk.stat(self.handle))
        self.disk.fsync(self.folder)
        return size

    def _sync(self) -> None:
        with self.failed_syncs.syncing(self.disk.stat(self.handle)):
            self.disk.fsync(self.handle)

    def is_fresh(self, now: float, *, shared: bool) -> bool:
        """Returns whether another program that shares the folder may be writing right now."""
        age_s = now - self.disk.stat(self.handle).modified_s
        is_writing = shared and not self.disk.is_read_only
        return is_writing and abs(age_s) < limits.FOREIGN_SETTLE_S

    def check_not_being_written(self, recovery_point: RecoveryPoint | None) -> None:
        """Refuse a damaged end, which another program may be in the middle of writing.

        Raises:
            Busy: the end is damaged; nothing was changed.
        """
        tail = self._examine(recovery_point).tail
        if tail.damage is not None or tail.unended:
            raise Busy(
                f"another program seems to be writing a line of {self.path}/{self.name}: try again"
                " in a moment",
                session=self.session,
            )

    def readable_size(self, recovery_point: RecoveryPoint | None) -> int:
        """Returns the readable bytes: whole batches of whole lines; nothing is repaired.

        The last block shows this, unless an incomplete batch began before it. A last line that is
        too long to be examined is not readable.
        """
        begin = 0 if recovery_point is None else recovery_point.bytes
        if self.size - begin > limits.LINE_CHECKED_BYTES_MAX:
            last = self._last_line(begin)
            if self.size - last > limits.LINE_CHECKED_BYTES_MAX:
                return last
        reach = limits.BLOCK_BYTES
        while True:
            repair = self._examine(recovery_point, reach)
            is_all = repair.start == 0 or reach >= limits.TORN_TAIL_BYTES_MAX
            if repair.tail.keep or not repair.region or is_all:
                break
            reach *= 8
        whole = whole_lines(repair.region) if repair.tail.unended else repair.tail.keep
        return repair.start + whole

    def repair(
        self,
        recovery_point: RecoveryPoint | None,
        now: float,
        entries: list[TimelineEntry],
        *,
        durable: int,
    ) -> tuple[int, tuple[RepairedFile, ...]]:
        """Repair the end of the file, durable on return; on a read-only disk, leave it out.

        1. The damaged bytes are copied. 2. The timeline gets an entry. 3. The bytes are cut off if
        they are unchanged since they were copied. 4. The new end is examined. A crash between two
        steps leaves the damage in the file, so the next opening repeats the steps; the timeline
        gets the entry once.

        Args:
            recovery_point: the file's recovery point; bytes before it are not examined.
            now: Unix time in seconds.
            entries: the timeline.
            durable: the bytes that were synced; bytes that another program appended since are
                synced, too, because only durable bytes are published.

        Returns:
            The file's size after the repair, and what was repaired.

        Raises:
            Busy: another program keeps writing, or edits bytes before the recovery point; its
                bytes were not cut off.
        """
        if self.disk.is_read_only:
            return self.readable_size(recovery_point), ()
        last = entries[-1] if entries else None
        repaired: list[RepairedFile] = []
        for _ in range(limits.MEND_LOOKS_MAX):
            repair = self._examine(recovery_point)
            if repair.tail.damage is None and not repair.tail.unended:
                self._check_recovery_point(recovery_point)
                if repair.end > durable:
                    self._sync()
                return repair.end, tuple(repaired)
            entry = self._entry(repair, now)  # 1.
            if last is None or (last.kind, last.details) != (entry.kind, entry.details):
                jsonl.append_timeline(self.disk, self.folder, timeline.encode(entry))  # 2.
                last = entry
            self._check_recovery_point(recovery_point)
            if self._is_unchanged(repair):
                self._apply(repair)  # 3.
                durable = repair.keep
                repaired.append(self._repaired(entry))
        raise Busy(
            f"another program keeps writing to {self.path}/{self.name}: try again in a moment",
            session=self.session,
        )

    def _entry(self, repair: _Repair, now: float) -> TimelineEntry:
        """Copy the damaged bytes to quarantine; returns the timeline entry of the repair."""
        return TimelineEntry(
            kind=timeline_entries.REPAIRED,
            generation=self.generation if self.name == paths.CONTEXT else 0,
            at=now,
            why=repair.tail.damage or "the last line lacked its newline",
            details={
                "file": self.name,
                "offset": repair.keep,
                "bytes": repair.end - repair.keep,
                "kept_in": self._quarantine_damage(repair),
            },
        )

    def _repaired(self, entry: TimelineEntry) -> RepairedFile:
        kept_in = entry.details["kept_in"]
        return RepairedFile(
            session=self.session,
            file=self.name,
            offset=entry.details["offset"],
            bytes=entry.details["bytes"],
            kept_in=f"{self.path}/{kept_in}" if kept_in else "",
            why=entry.why or "",
        )

    def _check_recovery_point(self, recovery_point: RecoveryPoint | None) -> None:
        """Refuse a recovery point that another program invalidated since it was read.

        The bytes after its offset may then begin in the middle of a line.

        Raises:
            Busy: another program edits the file; the next opening ignores the recovery point.
        """
        if recovery_point is not None and not self._matches(recovery_point):
            raise Busy(
                f"another program is editing {self.path}/{self.name}: try again in a moment",
                session=self.session,
            )

    def _is_unchanged(self, repair: _Repair) -> bool:
        """Returns whether the file still ends as it did when it was examined."""
        expected = repair.region[repair.tail.keep :]
        # One read of one byte more than expected: another program may write between two calls.
        return self.disk.read(self.handle, len(expected) + 1, repair.keep) == expected

    def _apply(self, repair: _Repair) -> None:
        if repair.tail.unended:
            write_all(self.disk, self.handle, b"\n")
        else:
            self.disk.truncate(self.handle, repair.keep)
        self._sync()

    def recovered_checksums(self, recovery_point: RecoveryPoint | None) -> BlockChecksums:
        """Returns the checksums of the bytes before the recovery point, if there is one."""
        if recovery_point is None:
            return BlockChecksums()
        return BlockChecksums(recovery_point.bytes, recovery_point.checksums)

    def replay(
        self,
        recovery_point: RecoveryPoint | None,
        size: int,
        checksums: BlockChecksums | None = None,
    ) -> Replay:
        """Replay the first `size` bytes, from the recovery point on.

        Args:
            recovery_point: the state to begin with; None to read the file from its start.
            size: the end of the replay.
            checksums: gets the bytes that are read.
        """
        replay, offset = Replay(), 0
        if recovery_point is not None:
            replay = Replay(
                recovery_point.lines,
                recovery_point.counters(),
                SeekIndex(recovery_point.milestones),
            )
            offset = recovery_point.bytes
        for block in self._blocks(offset, size):
            replay.feed(block)
            if checksums is not None:
                checksums.feed(block)
            offset += len(block)
            replay.seek_index.record_offset(offset, replay.lines, replay.counters)
        return replay

    def line_count(self, recovery_point: RecoveryPoint | None, size: int) -> int:
        """Returns the number of lines in the first `size` bytes, from the recovery point on."""
        lines, offset = (0, 0) if recovery_point is None else (
            recovery_point.lines, recovery_point.bytes
        )  # fmt: skip
        return lines + sum(count_lines(block) for block in self._blocks(offset, size))

    def _examine(
        self, recovery_point: RecoveryPoint | None, reach: int = limits.TORN_TAIL_BYTES_MAX
    ) -> _Repair:
        if (
            recovery_point is None
            and reach > limits.BLOCK_BYTES
            and not self._has_lost_pages(reach)
        ):
            # Without lost pages only the last lines can be torn, and one block shows them.
            repair = self._examine(None, limits.BLOCK_BYTES)
            if repair.tail.keep or repair.start == 0:
                return repair
        begin = 0 if recovery_point is None else recovery_point.bytes
        if reach > limits.BLOCK_BYTES and self.size - begin > limits.LINE_CHECKED_BYTES_MAX:
            last = self._last_line(begin)
            if self.size - last > limits.LINE_CHECKED_BYTES_MAX:
                raise self._long_line(last)
        start, region = self._region(recovery_point, reach)
        return _Repair(start, region, examine_tail(region, marked=recovery_point is not None))

    def _last_line(self, begin: int) -> int:
        """Returns the offset of the last line, at least `begin`; the file may end with a newline.

        It reads one block at a time: the line may be longer than the memory.
        """
        end = size = self.size
        while end > begin:
            start = max(begin, end - limits.BLOCK_BYTES)
            data = self.disk.read(self.handle, end - start, start)
            newline = data.rfind(b"\n", 0, len(data) - (end == size))
            if newline >= 0:
                return start + newline + 1
            end = start
        return begin

    def _long_line(self, offset: int) -> Corrupt:
        return Corrupt(
            f"the line at byte {offset} of {self.path}/{self.name} has more than"
            f" {limits.LINE_CHECKED_BYTES_MAX} bytes, more than steno reads: move the session away"
            " and remove the line from a copy of the file",
            session=self.session,
        )

    def _has_lost_pages(self, reach: int) -> bool:
        """Returns whether the last `reach` bytes have NULs: pages that were never synced."""
        size = self.size
        for offset in range(max(0, size - reach), size, limits.BLOCK_BYTES):
            if b"\0" in self.disk.read(self.handle, limits.BLOCK_BYTES, offset):
                return True
        return False

    def _region(self, recovery_point: RecoveryPoint | None, reach: int) -> tuple[int, bytes]:
        """Returns offset and bytes to examine: all after the recovery point, or the last ones."""
        size = self.size
        if recovery_point is not None:
            return recovery_point.bytes, self.disk.read(
                self.handle, size - recovery_point.bytes, recovery_point.bytes
            )
        start = max(0, size - reach)
        region = self.disk.read(self.handle, size - start, start)
        if start:
            skip = region.find(b"\n") + 1
            start, region = start + skip, region[skip:]
        return start, region

    def _quarantine_damage(self, repair: _Repair) -> str:
        if repair.tail.damage is None:
            return ""
        cut = repair.region[repair.tail.keep :]
        kept = quarantine(self.disk, self.folder, self.name, repair.keep, cut)
        return f"{paths.QUARANTINE}/{kept}"

    def _blocks(self, start: int, end: int) -> Iterator[bytes]:
        """Yields the whole lines from `start` to `end`, about `BLOCK_BYTES` at a time.

        Raises:
            Corrupt: a line is too long to be kept in memory.
        """
        parts: list[bytes] = []
        held = 0
        while start < end:
            data = self.disk.read(self.handle, min(limits.BLOCK_BYTES, end - start), start)
            if not data:
                raise OSError(errno.EIO, f"the file ends at {start}, before its {end} bytes")
            start += len(data)
            cut = whole_lines(data)
            if cut:
                yield b"".join([*parts, data[:cut]])
                parts, held = [], 0
            parts.append(data[cut:])
            held += len(data) - cut
            if held > limits.LINE_CHECKED_BYTES_MAX:
                raise self._long_line(start - held)


def fingerprint(disk: Disk, handle: int, size: int) -> timeline.Fingerprint:
    """Returns the fingerprint of the first `size` bytes of an open file."""
    start = max(0, size - limits.FINGERPRINT_BYTES)
    return timeline.fingerprint(size, disk.read(handle, size - start, start))
