"""Opening of a stream or a wire file: synced, recovered, then replayed."""

import contextlib
from collections.abc import Callable, Mapping

import msgspec

from steno_protocol import limits, paths
from steno_protocol.blocks import count_lines
from steno_protocol.errors import BadRequest, TooLarge
from steno_protocol.positions import Position
from steno_protocol.wire import WireRecord, parse_wire_line
from stenod.core import timeline
from stenod.core.keys import KeyTable
from stenod.core.stream_machine import StreamMachine
from stenod.core.wire_machine import WireMachine
from stenod.recovery.cold_streams import expand_stream
from stenod.recovery.opened import NoFileYet, Opened, Opening
from stenod.recovery.recent_keys import last_lines, recent_keys
from stenod.recovery.recovered_file import recover_file
from stenod.recovery.tail_repair import FileEnd
from stenod.store.disk import Disk
from stenod.store.failed_syncs import FailedSyncs
from stenod.store.handles import expanded_blocks, open_file
from stenod.store.jsonl import JsonlLog
from stenod.store.names import (
    deleted_streams,
    read_file,
    stat_stored_file,
    streams,
    void_deletions,
)


def open_stream(
    disk: Disk,
    folder: int,
    opening: Opening,
    *,
    name: str,
    stamp: bool,
    context_head: Callable[[], Position],
) -> Opened:
    """Open a stream or the wire file of a session whose context this process has open and locked.

    Takes over the folder's handle, and closes it on failure. A missing file is created, unless it
    is opened for followers only.

    Args:
        disk: the disk of the session.
        folder: the session's open folder.
        opening: the options, time and path.
        name: the name of the file.
        stamp: True if the session's lines get an `_id`.
        context_head: returns the durable head of the context.

    Raises:
        NoFileYet: the file is missing, and opened for followers only.
        TooLarge: the session has `STREAMS_MAX` streams, and none of this name.
        Busy: another program seems to be writing lines.
        OSError: the disk failed; any repair may or may not have been made.
    """
    handle: int | None = None
    try:
        if not disk.is_read_only:
            expand_stream(disk, folder, name)
        deleted = _deleted_files(disk, folder, name)
        generation = stream_generation(deleted)
        entries = timeline.decode(read_file(disk, folder, paths.TIMELINE))
        if opening.to_follow and stat_stored_file(disk, folder, name) is None:
            incarnation = timeline.incarnation_of(entries) or ""
            raise NoFileYet(opening, Position(generation, 0), incarnation)
        _check_stream_count(disk, folder, name, opening)
        stream = paths.stream_of(name)
        for void in void_deletions(disk, folder, stream) if stream else ():
            # In a copy of the folder, whose files have one name each, it would be a deletion.
            disk.unlink(folder, void.file)
        if deleted and disk.stat_name(folder, name) is None:
            # The deletion may not be durable: the name of a new file could outlive its rename.
            disk.fsync(folder)
        if disk.is_read_only:
            handle = open_file(disk, folder, name)
        else:
            handle = disk.open_append(folder, name, create=True)
        end = FileEnd(
            disk, folder, handle, name, generation, opening.session, opening.path,
            opening.failed_syncs,
        )  # fmt: skip
        recovered = recover_file(end, opening, entries)
        log = JsonlLog(
            disk, folder, opening.path, handle, generation, recovered.size, name=name,
            failed_syncs=opening.failed_syncs, checksums=recovered.checksums, deleted=deleted,
        )  # fmt: skip
        lines, point = recovered.replay.lines, recovered.recovery_point
        head = Position(generation, lines)
        keys = recent_keys(log, opening, lines, 0, point, (), is_stream=deleted is not None)
        machine = _stream_machine(
            log, opening.session, head, keys, stamp=stamp, context_head=context_head
        )
        incarnation = timeline.incarnation_of(entries) or ""
        return Opened(log, machine, incarnation, created=False, repaired=recovered.repaired)
    except BaseException:
        for opened in (handle, folder):
            if opened is not None:
                disk.close(opened)
        raise


def _stream_machine(
    log: JsonlLog,
    session: str,
    head: Position,
    keys: KeyTable,
    *,
    stamp: bool,
    context_head: Callable[[], Position],
) -> StreamMachine:
    if log.name != paths.WIRE:
        return StreamMachine(session, head, keys, stamp=stamp)
    floor = _last_joined_position(log)
    return WireMachine(session, head, keys, stamp=stamp, context_head=context_head, floor=floor)


def _deleted_files(disk: Disk, folder: int, name: str) -> dict[int, str] | None:
    """Returns the files that deletions of a stream left behind; None for the wire file."""
    stream = paths.stream_of(name)
    if stream is None:
        return None
    return {each.number - 1: each.file for each in deleted_streams(disk, folder, stream)}


def stream_generation(deleted: Mapping[int, str] | None) -> int:
    """Returns the generation of a stream's file, by the files that its deletions left behind."""
    return max(deleted, default=-1) + 1 if deleted else 0


def closed_generation(disk: Disk, folder: int, name: str) -> int:
    """Returns the generation of a closed stream or wire file, by its folder."""
    return stream_generation(_deleted_files(disk, folder, name))


def _check_stream_count(disk: Disk, folder: int, name: str, opening: Opening) -> None:
    if name == paths.WIRE or stat_stored_file(disk, folder, name) is not None:
        return
    if len(streams(disk, folder)) >= limits.STREAMS_MAX:
        raise TooLarge(
            f"the session has {limits.STREAMS_MAX} streams, which is the limit: delete one that is"
            " not needed, or use another session",
            session=opening.session,
        )


class StreamSize(msgspec.Struct, frozen=True):
    """The readable part of a stream's file: its bytes and lines, and its generation."""

    bytes: int
    lines: int
    generation: int


def measure_stream(
    disk: Disk, folder: int, handle: int, name: str, failed_syncs: FailedSyncs
) -> StreamSize:
    """Returns the readable part of a closed stream or wire file; reads from its recovery point on.

    The file is synced first, so that no reader gets lines that a power cut could lose.

    Raises:
        Unproven: an earlier sync of the file failed, so a sync proves nothing.
    """
    failed_syncs.sync_to_read(disk, handle, name)
    generation = closed_generation(disk, folder, name)
    end = FileEnd(disk, folder, handle, name, generation, "", "", failed_syncs)
    recovery_point = end.recovery_point()
    size = end.readable_size(recovery_point)
    return StreamSize(size, end.line_count(recovery_point, size), generation)


def measure_compressed(disk: Disk, folder: int, handle: int, name: str) -> StreamSize:
    """Returns the size of a closed stream from its compressed file, all of which is readable."""
    size = lines = 0
    for block in expanded_blocks(disk, handle, paths.compressed_file(name)):
        size += len(block)
        lines += count_lines(block)
    return StreamSize(size, lines, closed_generation(disk, folder, name))


def _last_joined_position(log: JsonlLog) -> Position:
    """Returns the context position of the last event in a wire file."""
    for line in reversed(last_lines(log, log.size)):
        event = parse_wire_line(line)
        if isinstance(event, WireRecord) and event.at is not None:
            with contextlib.suppress(BadRequest):
                return Position.parse(event.at)
    return Position(0, 0)
