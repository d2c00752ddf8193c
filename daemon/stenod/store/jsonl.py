"""A session folder on a disk as a log: plain JSONL files, flocked, appended to and swapped.

Files: `context.jsonl` is appended to; `context_N.jsonl` is what the rewrite to generation N left
behind; `timeline.jsonl` is appended to and synced at once; `context.mark` is a note to the next
open; `quarantine/` holds bytes that were cut.
"""

import errno
import functools
import threading
import zlib
from collections.abc import Callable, Sequence
from typing import Concatenate, ParamSpec, TypeVar

import msgspec

from steno_protocol import limits, paths
from steno_protocol.checksums import BlockChecksums
from stenod.store.disk import Disk, FileStat
from stenod.store.failed_syncs import FailedSyncs
from stenod.store.handles import FileView, SharedHandle, copy_all, write_all
from stenod.store.log import Copy, Piece
from stenod.store.names import link_generation, past_generations, read_file, remove, stat_generation
from stenod.store.quarantine import quarantine


class Replaced(OSError):
    """Another program put another file in the place of the one that is open, or none."""


class Known(msgspec.Struct, frozen=True):
    """What an open file durably held, as far as it was looked at.

    Attributes:
        generation: which file it is.
        start: offset of the first byte that was looked at.
        size: its durable bytes.
        crc: the CRC-32 of those from `start` to `size`.
    """

    generation: int
    start: int
    size: int
    crc: int


Wanted = ParamSpec("Wanted")
Given = TypeVar("Given")


def _holding(
    work: Callable[Concatenate["JsonlLog", Wanted], Given],
) -> Callable[Concatenate["JsonlLog", Wanted], Given]:
    """The folder's number stays the folder's until a method is done, also when the log is closed.

    The lock goes with it: the next opening of the session waits for running operations.
    """

    @functools.wraps(work)
    def held(log: "JsonlLog", /, *args: Wanted.args, **named: Wanted.kwargs) -> Given:
        with log.names.held():
            return work(log, *args, **named)

    return held


class JsonlLog:
    """The files of one session, open for its one writer.

    Args:
        disk: the disk they lie on.
        folder: the open, locked folder; the log closes it.
        path: the folder's path, for messages and answers.
        handle: the open file that is appended to.
        generation: which generation that is.
        size: its bytes, all of them durable.
        name: its name.
        failed_syncs: records a failed sync of the file.
        checksums: of its blocks; without them, none of what is there now is known.

    Attributes:
        synced: how many of the file's `size` bytes are durable.
        checksums: of the file's durable bytes.
        names: the open folder, held by each operation in it.
        known: what was durable when `confirm` was called last, to be found again by the next log.
    """

    def __init__(
        self,
        disk: Disk,
        folder: int,
        path: str,
        handle: int,
        generation: int,
        size: int,
        name: str = paths.CONTEXT,
        failed_syncs: FailedSyncs | None = None,
        checksums: BlockChecksums | None = None,
    ) -> None:
        self.generation = generation
        self.size = size
        self.synced = size
        self.path = path
        self._disk = disk
        self.names = SharedHandle(disk, folder)
        self._name = name
        self._file = SharedHandle(disk, handle)
        self._failed_syncs = FailedSyncs() if failed_syncs is None else failed_syncs
        self._identity = disk.stat(handle)
        self._unsynced: list[bytes] = []
        self._timeline_size: int | None = None
        self._marked = (generation, 0)
        self._known_from, self._crc = self._end_of(handle, size)
        self.checksums = BlockChecksums(size) if checksums is None else checksums
        self.confirm()
        # Readers ask for a view on the event loop while a rewrite runs in a thread.
        self._swap = threading.Lock()

    @property
    def _folder(self) -> int:
        return self.names.number

    @property
    def file_path(self) -> str:
        """Where the file lies that is appended to."""
        return f"{self.path}/{self._name}"

    def append(self, data: bytes) -> None:
        """Append lines; not durable. After an error call `take_back`, or `keep_earlier` first."""
        # Gathered, not joined: a second of a busy wire file is many lines and many bytes.
        self._unsynced.append(data)
        done = self._disk.write(self._file.handle, data)
        if done < len(data):
            write_all(self._disk, self._file.handle, data[done:])
        self.size += len(data)

    def sync(self) -> None:
        """Make everything that was appended durable."""
        try:
            self._disk.fdatasync(self._file.handle)
        except OSError:
            self._failed_syncs.note(self._identity)
            raise
        self._synced()

    def check(self) -> None:
        """Sync what another program appended, too, and hear of an error that a sync of its met.

        Only this handle gets that error: a handle opened later does not.
        """
        with self._failed_syncs.syncing(self._identity):
            self._disk.fdatasync(self._file.handle)

    @staticmethod
    def sync_all(logs: "Sequence[JsonlLog]") -> list[OSError | None]:
        """Make what was appended to several logs of one disk durable, together.

        The logs share one verdict: if the sync of any of them fails, none of them is durable. A
        disk that fails a flush reports it to one of the syncs that overlap, and the others return
        success though their bytes are lost.

        Returns:
            What became of each: None when it is durable, and then all are.
        """
        if len(logs) == 1:
            try:
                logs[0].sync()
            except OSError as error:
                return [error]
            return [None]
        errors = logs[0]._disk.fdatasync_all([log._file.handle for log in logs])
        first = next((error for error in errors if error is not None), None)
        if first is None:
            for log in logs:
                log._synced()
            return errors
        for log in logs:
            log._failed_syncs.note(log._identity)
        return [first if error is None else error for error in errors]

    def _synced(self) -> None:
        self.synced = self.size
        for data in self._unsynced:
            self._crc = zlib.crc32(data, self._crc)
            self.checksums.feed(data)
        self._unsynced.clear()

    @_holding
    def keep_earlier(self) -> bool:
        """After an append that failed: make durable what was appended before it.

        `take_back` then leaves it where it is.

        Returns:
            False when that is nothing, or not what stands there; nothing was done then.

        Raises:
            OSError: it cannot be made durable.
        """
        *earlier, failed = self._unsynced
        start, ours = self.synced, b"".join(earlier)
        if not ours or self._disk.read(self._file.handle, len(ours), start) != ours:
            return False
        self.check()
        self._unsynced.pop()
        self._synced()
        self._unsynced.append(failed)
        return True

    @_holding
    def take_back(self) -> None:
        """Cut the file to what is durable, durably; what is not ours goes to quarantine first.

        The log's own bytes need no copy: they were not acknowledged, and their senders get an
        error.

        Raises:
            OSError: the disk failed, or another program cut the file and the position of the log's
                bytes is unknown until it is opened again.
        """
        handle, ours = self._file.handle, b"".join(self._unsynced)
        for _ in range(limits.MEND_LOOKS_MAX):
            tail = self._tail()
            is_cut = self._disk.stat(handle).size < self.synced
            if is_cut or not (ours.startswith(tail) or self.still_has(self.known)):
                # Ours may stand before the length that was durable, where nothing is cut.
                raise OSError(errno.ESTALE, "another program changed this file", self._name)
            if not ours.startswith(tail):
                quarantine(self._disk, self._folder, self._name, self.synced, tail)
            # One call, and one byte more than expected: another program may write between two
            # calls.
            if self._disk.read(handle, len(tail) + 1, self.synced) == tail:
                break
        else:
            raise OSError(errno.EBUSY, "another program keeps writing", self._name)
        if tail:
            self._disk.truncate(handle, self.synced)
        self._disk.fsync(handle)
        self._failed_syncs.dispel(self._identity)
        self.size = self.synced
        self._unsynced.clear()

    def _tail(self) -> bytes:
        """What stands behind the durable bytes now."""
        size = self._disk.stat(self._file.handle).size
        return self._disk.read(self._file.handle, max(0, size - self.synced), self.synced)

    def is_foreign_changed(self) -> bool:
        """True when another program appended to, cut or replaced the file."""
        return not self._disk.has(self.names.number, self._name, self._identity.inode, self.size)

    def may_be_foreign_changed(self) -> bool:
        """As `is_foreign_changed`, but True when it cannot be determined."""
        try:
            return self.is_foreign_changed()
        except OSError:
            return True

    def confirm(self) -> None:
        """Record that all durable bytes belong to the session and may be published."""
        self.known = Known(self.generation, self._known_from, self.synced, self._crc)

    def still_has(self, known: Known) -> bool:
        """True unless it is known that another program changed what a file held; blocks."""
        if known.generation != self.generation:
            return True
        is_there = self.synced >= known.size
        return is_there and self._crc_of(self._file.handle, known.start, known.size) == known.crc

    @_holding
    def keep_replaced(self) -> bool:
        """Keep what we had open as a generation when another program replaced or removed it.

        Returns whether it had to be kept; a file that was moved to a generation's name is one
        already, and a file that was only appended to or cut is still in its place.
        """
        if self._name != paths.CONTEXT or self._is_in_place():
            return False
        past = past_generations(self._disk, self._folder)
        for generation in past:
            if stat_generation(self._disk, self._folder, generation).inode == self._identity.inode:
                return False
        # It may have been cut, too; and nothing is kept of what held nothing.
        size = min(self.synced, self._disk.stat(self._file.handle).size)
        if size == 0:
            return False
        fresh, _ = self._build([Copy(self.generation, 0, size)])
        self._disk.close(fresh)
        link_generation(self._disk, self._folder, paths.REWRITE)
        self._disk.unlink(self._folder, paths.REWRITE)
        self._disk.fsync(self._folder)
        return True

    def leave(self) -> None:
        """As `keep_replaced`, at the end: a file is there then, for the next opening to go on."""
        if self.keep_replaced():
            with self.names.held() as folder:
                self._disk.close(self._disk.open_append(folder, self._name, create=True))
                self._disk.fsync(folder)

    def length(self, generation: int) -> int:
        """Durable bytes of a generation; FileNotFoundError if there is none."""
        if generation == self.generation:
            return self.synced
        with self.names.pinned() as folder:
            return stat_generation(self._disk, folder, generation).size

    def read(self, generation: int, offset: int, size: int) -> bytes:
        """Up to `size` bytes of a generation from `offset`, no more than are durable."""
        if generation == self.generation:
            size = min(size, self.synced - offset)
            return self._disk.read(self._file.handle, size, offset) if size > 0 else b""
        handle = self._open_past(generation)
        try:
            return self._disk.read(handle, size, offset)
        finally:
            self._disk.close(handle)

    def generations(self) -> list[int]:
        """The generations that are there, oldest first, the present one last."""
        if self._name != paths.CONTEXT:
            return [self.generation]
        with self.names.pinned() as folder:
            return [*past_generations(self._disk, folder), self.generation]

    def timeline(self) -> bytes:
        """The session's timeline."""
        with self.names.pinned() as folder:
            return read_file(self._disk, folder, paths.TIMELINE)

    def append_timeline(self, line: bytes) -> None:
        """Append a line to the timeline, durably."""
        with self.names.held() as folder:
            self._timeline_size = append_timeline(self._disk, folder, line, self._timeline_size)

    @_holding
    def replace(self, pieces: Sequence[Piece], intent: bytes) -> str:
        """Swap in a new file made of pieces, in one instant, durable on return.

        Each numbered step is a point where a crash must leave the session before or after; the
        intent that is not followed by the rename is taken back when the log is opened again.
        Names may lead elsewhere at any moment, because another program renames as it likes: so
        each is looked at once more before what was acknowledged could lose its last one.

        Raises:
            Replaced: another program was at the names; `keep_replaced` has to follow.
            OSError: the disk failed; the outcome is unknown until the log is opened again.
        """
        generation = self.generation + 1
        rotated = paths.generation_file(generation)
        self.append_timeline(intent)  # 1. what is about to happen, synced
        fresh, size = self._build(pieces)  # 2. the new file aside, synced
        try:
            known_from, crc = self._end_of(fresh, size)
            checksums = self._checksums_of(fresh, pieces, size)
            self._link_present(rotated)  # 3. a second name for the old
            self._disk.fsync(self._folder)  # 4. which must outlive the loss of its first
            self._check_in_place()
            self._disk.rename(self._folder, paths.REWRITE, paths.CONTEXT)  # 5. the instant
            self._disk.fsync(self._folder)  # 6. now it cannot be undone
            if self._disk.stat(self._file.handle).size > self.synced:
                # What another program appended until then is read there, too.
                self.check()
            identity = self._disk.stat(fresh)
        except OSError:
            self._disk.close(fresh)
            raise
        with self._swap:
            self._file.release()
            self._file = SharedHandle(self._disk, fresh)
            self.generation, self.size, self.synced = generation, size, size
            self._known_from, self._crc = known_from, crc
            self.checksums = checksums
            self.confirm()
        self._identity = identity
        return f"{self.path}/{rotated}"

    def _link_present(self, rotated: str) -> None:
        """Give the open file a second name; a file that came to its place gets none."""
        try:
            self._disk.link(self._folder, paths.CONTEXT, rotated)
        except (FileNotFoundError, FileExistsError) as error:
            # Only another program can remove the first name or create the second one.
            raise Replaced(error.errno, "another program moves this file", self._name) from error
        linked = self._disk.stat_name(self._folder, rotated)
        if linked is None or linked.inode != self._identity.inode:
            remove(self._disk, self._folder, rotated)
            raise Replaced(errno.ESTALE, "another program replaced this file", self._name)

    def _check_in_place(self) -> None:
        """Refuse to replace a file that another program has just put there."""
        if not self._is_in_place():
            raise Replaced(errno.ESTALE, "another program replaced this file", self._name)

    def _is_in_place(self) -> bool:
        """True while the file's name leads to the one that is open."""
        named = self._disk.stat_name(self._folder, self._name)
        return named is not None and named.inode == self._identity.inode

    def save_recovery_point(self, mark: bytes, generation: int, size: int) -> None:
        """Keep a note for the next open; it may be lost, and none that is newer is lost for it.

        Args:
            mark: the note.
            generation: the generation that it describes.
            size: how many of that one's bytes were durable.
        """
        name = paths.recovery_point_file(self._name)
        fresh = f"{name}.new"
        with self.names.pinned() as folder:
            if (generation, size) < self._marked:
                return
            remove(self._disk, folder, fresh)
            handle = self._disk.open_new(folder, fresh)
            try:
                write_all(self._disk, handle, mark)
            finally:
                self._disk.close(handle)
            self._disk.rename(folder, fresh, name)
            self._marked = generation, size

    def view(self, generation: int) -> FileView:
        """The durable bytes of a generation as a view, which the reader releases."""
        with self._swap:
            if generation == self.generation:
                self._file.acquire()
                return FileView(self._file, self.synced)
        handle = self._open_past(generation)
        return FileView(SharedHandle(self._disk, handle), self._disk.stat(handle).size)

    def stat(self) -> FileStat:
        """What is known of the present generation's file."""
        return self._disk.stat(self._file.handle)

    def close(self) -> None:
        """Close the files and give up the session; never raises."""
        self._file.release()
        self.names.release()

    def _open_past(self, generation: int) -> int:
        with self.names.pinned() as folder:
            return self._disk.open_read(folder, paths.generation_file(generation + 1))

    def _end_of(self, handle: int, size: int) -> tuple[int, int]:
        """Where the last bytes of a file begin, and their CRC-32."""
        start = max(0, size - limits.FINGERPRINT_BYTES)
        return start, self._crc_of(handle, start, size)

    def _checksums_of(self, handle: int, pieces: Sequence[Piece], size: int) -> BlockChecksums:
        """The checksums of a new file; what it keeps from the present one's start is not read."""
        first = pieces[0] if pieces else b""
        keeps_start = (
            isinstance(first, Copy) and first.generation == self.generation and first.offset == 0
        )
        kept = first.size if keeps_start and isinstance(first, Copy) else 0
        checksums = self.checksums.whole_blocks(kept)
        for offset in range(checksums.size, size, limits.COPY_BYTES):
            checksums.feed(self._disk.read(handle, min(limits.COPY_BYTES, size - offset), offset))
        return checksums

    def _crc_of(self, handle: int, start: int, end: int) -> int:
        crc = 0
        for offset in range(start, end, limits.COPY_BYTES):
            data = self._disk.read(handle, min(limits.COPY_BYTES, end - offset), offset)
            crc = zlib.crc32(data, crc)
        return crc

    def _build(self, pieces: Sequence[Piece]) -> tuple[int, int]:
        remove(self._disk, self._folder, paths.REWRITE)
        self._disk.close(self._disk.open_new(self._folder, paths.REWRITE))
        handle = self._disk.open_append(self._folder, paths.REWRITE)
        try:
            size = sum(self._put(handle, piece) for piece in pieces)
            self._disk.fsync(handle)
        except BaseException:
            self._disk.close(handle)
            raise
        return handle, size

    def _put(self, target: int, piece: Piece) -> int:
        if isinstance(piece, bytes):
            write_all(self._disk, target, piece)
            return len(piece)
        if piece.generation == self.generation:
            copy_all(self._disk, self._file.handle, target, piece)
            return piece.size
        source = self._open_past(piece.generation)
        try:
            copy_all(self._disk, source, target, piece)
        finally:
            self._disk.close(source)
        return piece.size


def append_timeline(disk: Disk, folder: int, line: bytes, proven: int | None = None) -> int:
    """Append a line to a folder's timeline and make it durable; a failed line is cut again.

    Args:
        proven: the length of which the caller knows that all of it is durable. What is longer ends
            in a line that failed and could not be cut again either: a reader may see it and lose
            it, so it is made durable before another stands behind it.

    Returns:
        The timeline's length now.
    """
    is_new = disk.stat_name(folder, paths.TIMELINE) is None
    handle = disk.open_append(folder, paths.TIMELINE, create=True)
    try:
        size = disk.stat(handle).size
        if size not in (0, proven) and not _prove_last_line(disk, handle, size):
            line = b"\n" + line
        try:
            write_all(disk, handle, line)
            disk.fdatasync(handle)
        except OSError:
            disk.truncate(handle, size)
            disk.fsync(handle)
            raise
    finally:
        disk.close(handle)
    if is_new:
        disk.fsync(folder)
    return size + len(line)


def _prove_last_line(disk: Disk, handle: int, size: int) -> bool:
    """Write the timeline's last line over itself and sync it; False if it is only half a one."""
    data = disk.read(handle, size, 0)
    start = data.rfind(b"\n", 0, -1) + 1
    disk.overwrite(handle, start, data[start:])
    disk.fsync(handle)
    return data.endswith(b"\n")
