"""Files of a session's streams: the list, deletions, and the expiry of deleted ones.

    stream-notes.jsonl                      the stream
    stream-notes.mark                       its recovery point
    stream-notes~1~1764000000~<key>.jsonl   its first generation, deleted at that time by that key

A deletion is one rename, and all its facts are in the new name. A stream with a successor gets that
name as its second one, and the rename of the successor is the instant: before it both names are of
one file, and the deletion is void. The newest deleted file of a stream keeps its name when it
expires, and loses its contents: its number is the stream's generation. That of a scratch stream
goes.
Everything here blocks.
"""

from collections.abc import Set
from contextlib import suppress

import msgspec

from steno_protocol import paths
from steno_protocol.commands import DeleteStream
from steno_protocol.errors import BadRequest, Conflict, ErrorCode, NotFound, OutcomeUnknown
from steno_protocol.paths import DeletedStream
from steno_protocol.positions import Position
from steno_protocol.replies import Deleted, StreamEntry
from stenod.recovery import stream_opening
from stenod.recovery.opened import Opened
from stenod.sessions.session_folders import Place
from stenod.store.disk import Disk
from stenod.store.failed_syncs import FailedSyncs
from stenod.store.handles import closing, open_stored
from stenod.store.names import deleted_streams, remove, streams, void_deletions


class StreamPart(msgspec.Struct, frozen=True):
    """The durable part of a stream.

    Attributes:
        stream: the stream's name.
        head: its head.
        bytes: its durable bytes.
        modified_s: Unix time of its last change, in seconds.
        inode: the inode of its file.
    """

    stream: str
    head: Position
    bytes: int
    modified_s: float
    inode: int

    @property
    def entry(self) -> StreamEntry:
        """Its entry in a list."""
        return StreamEntry(
            stream=self.stream,
            head=str(self.head),
            records=self.head.line,
            bytes=self.bytes,
            modified_at=self.modified_s,
        )


def open_part(opened: Opened) -> StreamPart | None:
    """Return the durable part of an open file; None for the wire file."""
    stream = paths.stream_of(opened.log.name)
    if stream is None:
        return None
    stat = opened.log.stat()
    return StreamPart(stream, opened.machine.head, opened.log.synced, stat.modified_s, stat.inode)


def closed_parts(
    disk: Disk, folder: int, wanted: str | None, failed_syncs: FailedSyncs, known: Set[str]
) -> list[StreamPart]:
    """Return the durable parts of the closed streams of a session.

    Args:
        disk: the disk it lies on.
        folder: its open folder.
        wanted: only the stream of this name; None for all.
        failed_syncs: the files with a failed sync.
        known: the streams to leave out, because they are open.

    Raises:
        Unproven: a stream's durable length is unknown until it is opened.
        OSError: a stream cannot be read.
    """
    names = streams(disk, folder) if wanted is None else [wanted]
    found = (_part(disk, folder, name, failed_syncs) for name in names if name not in known)
    return [part for part in found if part is not None]


def unproven(disk: Disk, folder: int, wanted: str | None, failed_syncs: FailedSyncs) -> list[str]:
    """List the streams with a failed sync."""
    found: list[str] = []
    for name in streams(disk, folder) if wanted is None else [wanted]:
        stat = disk.stat_name(folder, paths.stream_file(name))
        if stat is not None and failed_syncs.has(stat):
            found.append(name)
    return found


def _part(disk: Disk, folder: int, stream: str, failed_syncs: FailedSyncs) -> StreamPart | None:
    name = paths.stream_file(stream)
    while True:
        generation = stream_opening.closed_generation(disk, folder, name)
        try:
            handle, stored = open_stored(disk, folder, name)
        except FileNotFoundError:
            return None
        with closing(disk, handle):
            if stored == name:
                size = stream_opening.measure_stream(disk, folder, handle, name, failed_syncs)
            else:
                size = stream_opening.measure_compressed(disk, folder, handle, name)
            stat = disk.stat(handle)
        # Otherwise the stream was deleted meanwhile, and the file may be of either generation.
        if size.generation == generation:
            head = Position(generation, size.lines)
            return StreamPart(stream, head, size.bytes, stat.modified_s, stat.inode)


def find_deleted(
    disk: Disk, folder: int, place: Place, command: DeleteStream, expiry_s: float
) -> Deleted | None:
    """Return the first answer of an earlier, now durable deletion; None if there was none.

    Raises:
        BadRequest: the key deleted another stream.
    """
    found = [each for each in deleted_streams(disk, folder) if each.key == command.key]
    if not found:
        return None
    if found[0].stream != command.stream:
        raise BadRequest(
            f"the key {command.key!r} deleted another stream, {found[0].stream!r}: a key names one"
            " command for ever; use a new one",
            session=place.session,
        )
    # The process that renamed it may have died before the sync.
    disk.fsync(folder)
    return _answer(place, found[0], expiry_s)


def discard(
    disk: Disk, folder: int, place: Place, command: DeleteStream, now: float, expiry_s: float,
    failed_syncs: FailedSyncs,
) -> Deleted:  # fmt: skip
    """Delete a closed stream; durable on return.

    Raises:
        NotFound: the stream or its successor does not exist.
        Conflict: the stream's head is not the expected one.
        Unproven: the durable length of one of them is unknown until it is opened.
        OutcomeUnknown: the disk failed after the rename.
        OSError: the disk failed; the stream was not deleted.
    """
    name = paths.stream_file(command.stream)
    # Synced first: a key in it is answered from its deleted generation, too.
    part = _part(disk, folder, command.stream, failed_syncs)
    if part is None:
        raise _missing(place, command.stream)
    _check_head(place, command, part.head)
    if command.successor and not _part(disk, folder, command.successor, failed_syncs):
        raise _missing(place, command.successor)
    for each in filter(None, (command.stream, command.successor)):
        # Of a successor, too: a void name of it would stay one of the file with its new name.
        for void in void_deletions(disk, folder, each):
            disk.unlink(folder, void.file)
    before = deleted_streams(disk, folder, command.stream)
    number = before[-1].number + 1 if before else 1
    deleted = DeletedStream(command.stream, number, int(now), command.key)
    try:
        if command.successor:
            disk.link(folder, name, deleted.file)
            # Without its second name on the disk, a power cut after the rename loses the records.
            disk.fsync(folder)
            disk.rename(folder, paths.stream_file(command.successor), name)  # the instant
        else:
            disk.rename(folder, name, deleted.file)  # the instant
        disk.fsync(folder)  # durable from here on
    except OSError as error:
        if _is_in_place(disk, folder, part):
            raise
        raise OutcomeUnknown(
            f"the stream may be deleted, but the disk failed to sync it ({error}): send the command"
            " again with its key",
            session=place.session,
            code=ErrorCode.STORAGE_FAILED,
            key=command.key,
        ) from None
    # Without its stream it is of no use: another generation never begins from it.
    for each in filter(None, (command.stream, command.successor)):
        with suppress(OSError):
            remove(disk, folder, paths.recovery_point_file(paths.stream_file(each)))
    return _answer(place, deleted, expiry_s)


def _is_in_place(disk: Disk, folder: int, part: StreamPart) -> bool:
    with suppress(OSError):
        found = disk.stat_name(folder, paths.stream_file(part.stream))
        return found is not None and found.inode == part.inode
    return False


def _missing(place: Place, stream: str) -> NotFound:
    return NotFound(
        f"there is no stream {stream!r}: `steno stream {place.session}` lists the existing ones",
        session=place.session,
    )


def _check_head(place: Place, command: DeleteStream, head: Position) -> None:
    if command.expect is not None and Position.parse(command.expect) != head:
        raise Conflict(
            f"another writer was faster: {command.expect} was expected and the stream ends at"
            f" {head}; read from there, then decide again",
            session=place.session,
            head=str(head),
        )


class Expired(msgspec.Struct, frozen=True):
    """A deleted stream that has expired: its file, and the bytes that it takes."""

    file: str
    bytes: int
    is_newest: bool


def expired(disk: Disk, folder: int, now: float, expiry_s: float) -> list[Expired]:
    """List the deleted streams of a session that have expired and still take room."""
    found: list[Expired] = []
    deleted = deleted_streams(disk, folder)
    for number, each in enumerate(deleted):
        is_newest = number + 1 == len(deleted) or deleted[number + 1].stream != each.stream
        # Nobody asks for a generation of a name that is never used again.
        is_newest = is_newest and not paths.is_scratch_stream(each.stream)
        stat = disk.stat_name(folder, each.file)
        if stat is None or each.at_s + expiry_s >= now or (is_newest and not stat.size):
            continue
        found.append(Expired(each.file, stat.size, is_newest))
    return found


def expire(disk: Disk, folder: int, going: list[Expired]) -> None:
    """Remove expired streams, durable on return; the newest of each is emptied.

    Raises:
        OSError: a part of them may be left; the next collection removes the rest.
    """
    # Of unknown outcome, a deletion may not be durable: its stream would come back empty.
    disk.fsync(folder)
    for each in going:
        if each.is_newest:
            with closing(disk, disk.open_append(folder, each.file)) as handle:
                disk.truncate(handle, 0)
                disk.fsync(handle)
        else:
            disk.unlink(folder, each.file)
    disk.fsync(folder)


def _answer(place: Place, deleted: DeletedStream, expiry_s: float) -> Deleted:
    return Deleted(trash=f"{place.path}/{deleted.file}", expires_at=deleted.at_s + expiry_s)
