"""The log in a session's folder: plain JSONL files under a lock.

Files: `context.jsonl` is appended to. `context_N.jsonl` is the file that the rewrite to generation
N replaced. `timeline.jsonl` is appended to and synced line by line. `context.mark` is the recovery
point for the next opening. `quarantine/` has copies of bytes that were cut.
"""

import errno
import functools
import threading
import zlib
from collections.abc import Callable, Mapping, Sequence
from typing import Concatenate, ParamSpec, TypeVar

import msgspec

from steno_protocol import limits, paths
from steno_protocol.checksums import BlockChecksums
from stenod.store.disk import Disk, FileStat
from stenod.store.failed_syncs import FailedSyncs
from stenod.store.handles import (
    FileView,
    SharedHandle,
    copy_all,
    expanded,
    open_stored,
    write_all,
)
from stenod.store.log import Copy, Piece
from stenod.store.names import (
    link_generation,
    past_generations,
    read_file,
    remove,
    replacing,
    stat_file,
    stat_generation,
)
from stenod.store.quarantine import quarantine


class Replaced(OSError):
    """Another program replaced or removed the open file."""


class TailChecksum(msgspec.Struct, frozen=True):
    """The checksum of the last durable bytes of an open file.

    Attributes:
        generation: the file's generation.
        start: offset of the first byte of the tail.
        size: the file's durable bytes.
        crc: the CRC-32 of the bytes from `start` to `size`.
    """

    generation: int
    start: int
    size: int
    crc: int


Params = ParamSpec("Params")
Result = TypeVar("Result")


def _keeping_folder_open(
    method: Callable[Concatenate["JsonlLog", Params], Result],
) -> Callable[Concatenate["JsonlLog", Params], Result]:
    """Keep the folder open, and its lock, until a method returns, even if the log is closed.

    So the next opening of the session waits for running operations.
    """

    @functools.wraps(method)
    def wrapper(log: "JsonlLog", /, *args: Params.args, **named: Params.kwargs) -> Result:
        with log.folder_handle.held():
            return method(log, *args, **named)

    return wrapper


class JsonlLog:
    """The files of one session, open for its one writer.

    Args:
        disk: the disk of the files.
        folder: the open, locked folder; the log closes it.
        path: the folder's path, for messages and replies.
        handle: the open file that is appended to.
        generation: the generation of that file.
        size: bytes of that file, all of them durable.
        name: the name of that file.
        failed_syncs: records a failed sync of the file.
        checksums: the checksums of the file's blocks; without them the blocks of the present bytes
            have unknown checksums.
        deleted: the files of the stream's earlier generations, which deletions left behind; None
            for the context and the wire file.

    Attributes:
        name: the name of the file that is appended to.
        generation: the generation that is appended to.
        size: bytes of the file.
        synced: durable bytes of the file.
        path: the folder's path.
        checksums: the checksums of the durable bytes.
        folder_handle: the open folder; each operation in the folder holds it.
        confirmed_tail: the checksum at the last call of `confirm`, for `still_holds` of the next
            log.
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
        deleted: Mapping[int, str] | None = None,
    ) -> None:
        self.generation = generation
        self.size = size
        self.synced = size
        self.path = path
        self._disk = disk
        self.folder_handle = SharedHandle(disk, folder)
        self.name = name
        self._deleted = deleted
        self._file = SharedHandle(disk, handle)
        self._failed_syncs = FailedSyncs() if failed_syncs is None else failed_syncs
        self._identity = disk.stat(handle)
        self._unsynced: list[bytes] = []
        self._timeline_size: int | None = None
        self._recovery_point_at = (generation, 0)
        self._tail_start, self._tail_crc = self._checksum_tail(handle, size)
        self.checksums = BlockChecksums(size) if checksums is None else checksums
        self.confirm()
        # Readers get a view on the event loop while a rewrite runs in a thread.
        self._swap = threading.Lock()

    @property
    def _folder(self) -> int:
        return self.folder_handle.number

    @property
    def file_path(self) -> str:
        """The path of the file that is appended to."""
        return f"{self.path}/{self.name}"

    def append(self, data: bytes) -> None:
        """Append lines; they are not durable on return.

        After an error the caller must call `discard_unsynced`, and may call `sync_earlier_appends`
        before it.

        Raises:
            OSError: any part of the lines may be in the file.
        """
        # A list, because joining the many lines of a busy wire file each time would be slow.
        self._unsynced.append(data)
        done = self._disk.write(self._file.handle, data)
        if done < len(data):
            write_all(self._disk, self._file.handle, data[done:])
        self.size += len(data)

    def sync(self) -> None:
        """Make all appended lines durable.

        Raises:
            OSError: none of the lines appended since the last sync is known to be durable.
        """
        try:
            self._disk.fdatasync(self._file.handle)
        except OSError:
            self._failed_syncs.add(self._identity)
            raise
        self._finish_sync()

    @property
    def has_rivals(self) -> bool:
        """True if the daemon of another machine may take the session over and change it."""
        return self._disk.has_rivals

    def confirm_owner(self) -> None:
        """Raise an OSError unless this daemon still owns the session; waits for other machines."""
        self._disk.confirm(self._file.handle)

    def check(self) -> None:
        """Sync the lines that another program appended, and raise the error of its failed sync.

        The kernel reports that error only to handles that were open at the time, as this one was.
        """
        with self._failed_syncs.syncing(self._identity):
            self._disk.fdatasync(self._file.handle)

    @staticmethod
    def sync_all(logs: "Sequence[JsonlLog]") -> list[OSError | None]:
        """Make the lines appended to several logs of one disk durable, as a group commit.

        On most disks the logs share one verdict: if the sync of one log fails, no log is durable. A
        disk that fails a flush reports the error to one of the overlapping syncs, and the other
        syncs return success though their bytes are lost.

        Returns:
            For each log None if it is durable, else an error.
        """
        if len(logs) == 1:
            try:
                logs[0].sync()
            except OSError as error:
                return [error]
            return [None]
        return JsonlLog._finish_syncs(
            logs, logs[0]._disk.fdatasync_all([log._file.handle for log in logs])
        )

    @staticmethod
    async def sync_on_loop(logs: "Sequence[JsonlLog]") -> list[OSError | None] | None:
        """As `sync_all`, on the event loop; None if the disk has to block, and nothing was done."""
        errors = await logs[0]._disk.sync_on_loop([log._file.handle for log in logs])
        return None if errors is None else JsonlLog._finish_syncs(logs, errors)

    @staticmethod
    def _finish_syncs(
        logs: "Sequence[JsonlLog]", errors: Sequence[OSError | None]
    ) -> list[OSError | None]:
        first = next((error for error in errors if error is not None), None)
        is_shared = first is not None and logs[0]._disk.syncs_share_fate
        outcomes = [first if error is None and is_shared else error for error in errors]
        for log, outcome in zip(logs, outcomes, strict=True):
            if outcome is None:
                log._finish_sync()
            else:
                log._failed_syncs.add(log._identity)
        return outcomes

    def _finish_sync(self) -> None:
        self.synced = self.size
        for data in self._unsynced:
            self._tail_crc = zlib.crc32(data, self._tail_crc)
            self.checksums.feed(data)
        self._unsynced.clear()

    @_keeping_folder_open
    def sync_earlier_appends(self) -> bool:
        """Make the appends before a failed append durable, so that `discard_unsynced` keeps them.

        Returns:
            False if there are none, or if the file has other bytes in their place; the file is
            unchanged then.

        Raises:
            OSError: the appends cannot be made durable.
        """
        *earlier, failed = self._unsynced
        start, ours = self.synced, b"".join(earlier)
        if not ours or self._disk.read(self._file.handle, len(ours), start) != ours:
            return False
        self.check()
        self._unsynced.pop()
        self._finish_sync()
        self._unsynced.append(failed)
        return True

    @_keeping_folder_open
    def discard_unsynced(self) -> None:
        """Cut the file to its durable bytes; the cut is durable on return.

        Bytes of another program are copied to quarantine first. The log's own bytes need no copy:
        they were not acknowledged, and their senders get an error.

        Raises:
            OSError: the disk failed, or another program cut the file; the position of the log's own
                bytes is then unknown until the file is opened again.
        """
        handle, ours = self._file.handle, b"".join(self._unsynced)
        for _ in range(limits.MEND_LOOKS_MAX):
            tail = self._unsynced_tail()
            is_cut = self._disk.stat(handle).size < self.synced
            if is_cut or not (ours.startswith(tail) or self.still_holds(self.confirmed_tail)):
                # The log's own bytes may be before the durable size, where nothing may be cut.
                raise OSError(errno.ESTALE, "another program changed this file", self.name)
            if not ours.startswith(tail):
                quarantine(self._disk, self._folder, self.name, self.synced, tail)
            # One read of one byte more than expected: another program may write between two
            # system calls.
            if self._disk.read(handle, len(tail) + 1, self.synced) == tail:
                break
        else:
            raise OSError(errno.EBUSY, "another program keeps writing", self.name)
        if tail:
            self._disk.truncate(handle, self.synced)
        self._disk.fsync(handle)
        self._failed_syncs.resolve(self._identity)
        self.size = self.synced
        self._unsynced.clear()

    def _unsynced_tail(self) -> bytes:
        """Returns the bytes that the file has after its durable bytes."""
        size = self._disk.stat(self._file.handle).size
        return self._disk.read(self._file.handle, max(0, size - self.synced), self.synced)

    def is_foreign_changed(self) -> bool:
        """Returns whether another program appended to, cut or replaced the file."""
        folder = self.folder_handle.number
        return not self._disk.has(folder, self.name, self._identity.inode, self.size)

    def may_be_foreign_changed(self) -> bool:
        """Returns `is_foreign_changed`, or True if the disk fails."""
        try:
            return self.is_foreign_changed()
        except OSError:
            return True

    def confirm(self) -> None:
        """Record that all durable bytes belong to the session and may be published."""
        self.confirmed_tail = TailChecksum(
            self.generation, self._tail_start, self.synced, self._tail_crc
        )

    def still_holds(self, tail: TailChecksum) -> bool:
        """Returns False if another program changed the bytes of an earlier tail; blocks.

        A tail of another generation cannot be checked, and counts as unchanged.
        """
        if tail.generation != self.generation:
            return True
        has_size = self.synced >= tail.size
        return has_size and self._crc_of(self._file.handle, tail.start, tail.size) == tail.crc

    @_keeping_folder_open
    def keep_replaced(self) -> bool:
        """Keep the open file as a generation if another program replaced or removed it.

        Returns:
            True if a generation was created. A file that was moved to a generation's name is a
            generation already, and a file that was appended to or cut is still in its place.
        """
        is_kept = self.name != paths.CONTEXT or self._disk.is_read_only
        if is_kept or self._is_in_place():
            return False
        past = past_generations(self._disk, self._folder)
        for generation in past:
            if stat_generation(self._disk, self._folder, generation).inode == self._identity.inode:
                return False
        # The file may have been cut, too; an empty one is not kept.
        size = min(self.synced, self._disk.stat(self._file.handle).size)
        if size == 0:
            return False
        fresh, _ = self._build([Copy(self.generation, 0, size)])
        self._disk.close(fresh)
        link_generation(self._disk, self._folder, paths.REWRITE)
        self._disk.unlink(self._folder, paths.REWRITE)
        self._disk.fsync(self._folder)
        return True

    def keep_replaced_at_close(self) -> None:
        """Call `keep_replaced`; if it kept the file, create an empty one for the next opening."""
        if self.keep_replaced():
            with self.folder_handle.held() as folder:
                self._disk.close(self._disk.open_append(folder, self.name, create=True))
                self._disk.fsync(folder)

    def length(self, generation: int) -> int:
        """Returns the durable bytes of a generation; FileNotFoundError if there is none."""
        if generation == self.generation:
            return self.synced
        name = self._past_name(generation)
        with self.folder_handle.pinned() as folder:
            found = stat_file(self._disk, folder, name)
        if found is None:
            raise FileNotFoundError(f"there is no {name}")
        return found.size

    def read(self, generation: int, offset: int, size: int) -> bytes:
        """Returns up to `size` durable bytes of a generation from `offset`."""
        if generation == self.generation:
            size = min(size, self.synced - offset)
            return self._disk.read(self._file.handle, size, offset) if size > 0 else b""
        handle = self._open_past(generation)
        try:
            return self._disk.read(handle, size, offset)
        finally:
            self._disk.close(handle)

    def generations(self) -> list[int]:
        """Returns the existing generations, oldest first; the present one is the last."""
        if self._deleted is not None:
            # `gc` removes expired ones while the stream is open.
            with self.folder_handle.pinned() as folder:
                there = set(self._disk.names(folder))
            past = [number for number, name in self._deleted.items() if name in there]
            return [*sorted(past), self.generation]
        if self.name != paths.CONTEXT:
            return [self.generation]
        with self.folder_handle.pinned() as folder:
            return [*past_generations(self._disk, folder), self.generation]

    def timeline(self) -> bytes:
        """Returns the session's timeline; empty for a stream, which has no entry in it."""
        if self._deleted is not None:
            return b""
        with self.folder_handle.pinned() as folder:
            return read_file(self._disk, folder, paths.TIMELINE)

    def append_timeline(self, line: bytes) -> None:
        """Append a line to the timeline; it is durable on return.

        The log of a read-only disk appends nothing: the owner's daemon records what happens.
        """
        if self._disk.is_read_only:
            return
        with self.folder_handle.held() as folder:
            self._timeline_size = append_timeline(self._disk, folder, line, self._timeline_size)

    @_keeping_folder_open
    def replace(self, pieces: Sequence[Piece], intent: bytes) -> str:
        """Replace the file by a new one in one atomic step, durable on return.

        A crash between any two numbered steps leaves the session before or after the rewrite: the
        next opening voids an intent that no rename followed. Another program may rename files at
        any moment, so each name is checked again before acknowledged bytes could lose their last
        name.

        Args:
            pieces: the new file's content, in order.
            intent: the timeline's line for the rewrite.

        Returns:
            The path of the file that was replaced.

        Raises:
            Replaced: another program replaced or moved the file; the caller calls `keep_replaced`.
            OSError: the disk failed; the outcome is unknown until the log is opened again.
        """
        generation = self.generation + 1
        rotated = paths.generation_file(generation)
        self.append_timeline(intent)  # 1. the intent, synced
        fresh, size = self._build(pieces)  # 2. the new file under a temporary name, synced
        try:
            tail_start, crc = self._checksum_tail(fresh, size)
            checksums = self._checksums_of(fresh, pieces, size)
            self._link_present(rotated)  # 3. a second name for the old file
            self._disk.fsync(self._folder)  # 4. durable before step 5 removes its first name
            self._check_in_place()
            self._disk.rename(self._folder, paths.REWRITE, paths.CONTEXT)  # 5. the atomic step
            self._disk.fsync(self._folder)  # 6. the rewrite is durable
            if self._disk.stat(self._file.handle).size > self.synced:
                # Readers also get the lines that another program appended to the old file.
                self.check()
            identity = self._disk.stat(fresh)
        except OSError:
            self._disk.close(fresh)
            raise
        with self._swap:
            self._file.release()
            self._file = SharedHandle(self._disk, fresh)
            self.generation, self.size, self.synced = generation, size, size
            self._tail_start, self._tail_crc = tail_start, crc
            self.checksums = checksums
            self.confirm()
        self._identity = identity
        return f"{self.path}/{rotated}"

    def _link_present(self, rotated: str) -> None:
        """Give the open file a second name, but not another file that has its first name now."""
        try:
            self._disk.link(self._folder, paths.CONTEXT, rotated)
        except (FileNotFoundError, FileExistsError) as error:
            # Only another program can remove the first name or create the second one.
            raise Replaced(error.errno, "another program moved this file", self.name) from error
        linked = self._disk.stat_name(self._folder, rotated)
        if linked is None or linked.inode != self._identity.inode:
            remove(self._disk, self._folder, rotated)
            raise Replaced(errno.ESTALE, "another program replaced this file", self.name)

    def _check_in_place(self) -> None:
        """Refuse to replace a file that another program has just created at the name."""
        if not self._is_in_place():
            raise Replaced(errno.ESTALE, "another program replaced this file", self.name)

    def _is_in_place(self) -> bool:
        """Returns whether the file's name still leads to the open file."""
        named = self._disk.stat_name(self._folder, self.name)
        return named is not None and named.inode == self._identity.inode

    def save_recovery_point(self, data: bytes, generation: int, size: int) -> None:
        """Save a recovery point for the next opening, unless a newer one was saved.

        It is not synced: an opening without it is slower, but correct.

        Args:
            data: the encoded recovery point.
            generation: the generation that it describes.
            size: the durable bytes that it describes.
        """
        name = paths.recovery_point_file(self.name)
        with self.folder_handle.pinned() as folder:
            if (generation, size) < self._recovery_point_at:
                return
            with replacing(self._disk, folder, name) as handle:
                write_all(self._disk, handle, data)
            self._recovery_point_at = generation, size

    def view(self, generation: int) -> FileView:
        """Returns a view of a generation's durable bytes, which the caller releases."""
        with self._swap:
            if generation == self.generation:
                self._file.acquire()
                return FileView(self._file, self.synced)
        handle = self._open_past(generation)
        return FileView(SharedHandle(self._disk, handle), self._disk.stat(handle).size)

    def stat(self) -> FileStat:
        """Returns the metadata of the present generation's file."""
        return self._disk.stat(self._file.handle)

    def close(self) -> None:
        """Close the files, and release the folder's lock; never raises."""
        self._file.release()
        self.folder_handle.release()

    def _open_past(self, generation: int) -> int:
        with self.folder_handle.pinned() as folder:
            handle, name = open_stored(self._disk, folder, self._past_name(generation))
        # Not above: the event loop waits for the end of that block.
        return expanded(self._disk, handle, name)

    def _past_name(self, generation: int) -> str:
        if self._deleted is None:
            return paths.generation_file(generation + 1)
        try:
            return self._deleted[generation]
        except KeyError:
            raise FileNotFoundError(f"there is no generation {generation}") from None

    def _checksum_tail(self, handle: int, size: int) -> tuple[int, int]:
        """Returns the offset of a file's last `FINGERPRINT_BYTES` bytes, and their CRC-32."""
        start = max(0, size - limits.FINGERPRINT_BYTES)
        return start, self._crc_of(handle, start, size)

    def _checksums_of(self, handle: int, pieces: Sequence[Piece], size: int) -> BlockChecksums:
        """Returns a new file's checksums; its start is not read if it is the present file's."""
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
    """Append a line to a folder's timeline, durable on return; a failed line is cut off again.

    Args:
        disk: the disk of the folder.
        folder: the open folder.
        line: the line, with its newline.
        proven: the bytes that the caller knows to be durable. A longer timeline ends in a line
            that failed and could not be cut off either. A reader may have seen that line, so it is
            made durable before the new line.

    Returns:
        The timeline's new size in bytes.

    Raises:
        OSError: the line failed; it was cut off again, unless the disk refused that, too.
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
    """Rewrite the timeline's last line in place and sync it; returns False if it has no newline."""
    data = disk.read(handle, size, 0)
    start = data.rfind(b"\n", 0, -1) + 1
    disk.overwrite(handle, start, data[start:])
    disk.fsync(handle)
    return data.endswith(b"\n")
