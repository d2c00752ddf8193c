"""Opening of a session: its files are synced, recovered, then replayed.

`open_session` opens a session for its one writer, and repairs the damage of a crash: an interrupted
rewrite, a torn tail. `inspect` reads a session and repairs nothing.
"""

import contextlib
import errno
from collections.abc import Callable, Mapping, Sequence

import msgspec

from steno_protocol import checkpoint_ids, limits, paths, timeline_entries
from steno_protocol.checksums import BlockChecksums
from steno_protocol.context import ContextCounters
from steno_protocol.errors import BadRequest, Busy, Corrupt, Held, NotFound, TooLarge
from steno_protocol.lines import split_lines
from steno_protocol.positions import Position
from steno_protocol.replies import Mail
from steno_protocol.timeline_entries import TimelineEntry
from steno_protocol.wire import WireRecord, parse_wire_line
from stenod.core import dmail, timeline
from stenod.core.key_replay import applied_in
from stenod.core.keys import KeyTable
from stenod.core.machine import FileMachine, Machine
from stenod.core.recovery_point import RecoveryPoint, encode_recovery_point
from stenod.core.replay import Replay
from stenod.core.stream_machine import StreamMachine
from stenod.core.wire_machine import WireMachine
from stenod.recovery import crash_recovery
from stenod.recovery.key_lookup import blocks_of
from stenod.recovery.tail_repair import FileEnd
from stenod.store import jsonl
from stenod.store.disk import Disk
from stenod.store.failed_syncs import FailedSyncs
from stenod.store.handles import FileView, SharedHandle
from stenod.store.jsonl import JsonlLog
from stenod.store.names import deleted_streams, past_generations, read_file, streams


class OpenOptions(msgspec.Struct, frozen=True):
    """The options of one opening.

    Attributes:
        create: create the session if there is none.
        stamp: True if a new session's lines get an `_id`.
        by: the client that opens the session.
        claim: the name that it claims, if it is on another machine.
        key: the idempotency key of its command.
        proven: the durable bytes of the file when a sync of it failed in this process; None if no
            sync failed.
        changed_while_open: another program changed the files while they were open in this process.
        to_follow: a missing stream or wire file is not created: its first record creates it.
    """

    create: bool = False
    stamp: bool = True
    by: str | None = None
    claim: str | None = None
    key: str | None = None
    proven: int | None = None
    changed_while_open: bool = False
    to_follow: bool = False


class NoFileYet(NotFound):
    """The file of a stream or of events does not exist, and its follower does not create it.

    Attributes:
        first: the position of the file's first record.
        incarnation: the session's incarnation.
    """

    def __init__(self, opening: "Opening", first: Position, incarnation: str) -> None:
        super().__init__("the file has no record yet", session=opening.session)
        self.first = first
        self.incarnation = incarnation


class Opening(OpenOptions, frozen=True, kw_only=True):
    """One opening of a session.

    Attributes:
        session: the session's id, for messages.
        path: the path of its folder, for messages and replies.
        now: Unix time in seconds.
        incarnation: the incarnation of a new session.
        shared: other programs write in this folder too, so a recent half line may be theirs.
        failed_syncs: the files with a failed sync in this process, by any handle.
    """

    session: str
    path: str
    now: float
    incarnation: str
    shared: bool = False
    failed_syncs: FailedSyncs = msgspec.field(default_factory=FailedSyncs)


class Opened(msgspec.Struct, frozen=True):
    """A session's file that is open for its writer.

    Attributes:
        log: the open files.
        machine: the replayed state.
        incarnation: the session's incarnation.
        created: this opening created the session.
        made_by_key: the idempotency key of the command that created the session, if it had one.
    """

    log: JsonlLog
    machine: FileMachine
    incarnation: str
    created: bool
    made_by_key: str | None = None


class Inspection(msgspec.Struct, frozen=True):
    """The state of a session's context, read without changing the files.

    Attributes:
        size: readable bytes: whole batches of whole lines.
        head: the position at their end.
        counters: the context's counters there.
        incarnation: the session's incarnation.
        stamp: True if the session's lines have an `_id`.
    """

    size: int
    head: Position
    counters: ContextCounters
    incarnation: str
    stamp: bool


def open_session(disk: Disk, folder: int, opening: Opening) -> Opened:
    """Open a session for its writer; takes over the folder's handle, and closes it on failure.

    Raises:
        Held: another daemon has the folder open.
        NotFound: there is no session, and `create` is False.
        Corrupt: its present generation is missing; nothing was changed.
        Busy: another program seems to be writing lines, or replacing the file.
        OSError: the disk failed; any repair may or may not have been made.
    """
    context: int | None = None
    try:
        if not disk.lock(folder):
            raise Held(
                f"another daemon has {opening.path} open: stop it, or use its root",
                session=opening.session,
            )
        is_there = _check_present(disk, folder, opening)
        entries = crash_recovery.recover(disk, folder)
        context = _open_context(disk, folder, opening, is_there=is_there)
        return _open_files(disk, folder, context, opening, entries)
    except BaseException:
        for handle in (context, folder):
            if handle is not None:
                disk.close(handle)
        raise


def inspect(disk: Disk, folder: int, handle: int, failed_syncs: FailedSyncs) -> Inspection:
    """Read the state of a session's context; nothing is repaired.

    The file is synced first, so that no reader gets lines that a power cut could lose.

    Args:
        disk: the disk of the session.
        folder: the session's open folder.
        handle: its open `context.jsonl`.
        failed_syncs: the files with a failed sync in this process.

    Raises:
        Unproven: an earlier sync of the file failed, so a sync proves nothing.
    """
    failed_syncs.sync_to_read(disk, handle, paths.CONTEXT)
    generation = crash_recovery.present_generation(disk, folder)
    end = FileEnd(disk, folder, handle, paths.CONTEXT, generation, "", "", failed_syncs)
    recovery_point = end.recovery_point()
    size = end.readable_size(recovery_point)
    replay = end.replay(recovery_point, size)
    entries = timeline.decode(read_file(disk, folder, paths.TIMELINE))
    _apply_checkpoint_floor(replay, entries, generation)
    return Inspection(
        size=size,
        head=Position(generation, replay.lines),
        counters=replay.counters,
        incarnation=timeline.incarnation_of(entries) or "",
        stamp=_has_stamps(entries),
    )


def pending_mail(disk: Disk, folder: int) -> Mail | None:
    """Returns the pending D-Mail of a session; nothing is repaired."""
    entries = timeline.decode(read_file(disk, folder, paths.TIMELINE))
    return dmail.pending(entries, crash_recovery.present_generation(disk, folder))


def readable_size(
    disk: Disk, folder: int, handle: int, name: str, generation: int, failed_syncs: FailedSyncs
) -> int:
    """Returns the readable bytes of a session's file, without reading all of it.

    The file is synced first, so that no reader gets lines that a power cut could lose.

    Raises:
        Unproven: an earlier sync of the file failed, so a sync proves nothing.
    """
    failed_syncs.sync_to_read(disk, handle, name)
    end = FileEnd(disk, folder, handle, name, generation, "", "", failed_syncs)
    return end.readable_size(end.recovery_point())


def recovery_point_of(log: JsonlLog, machine: FileMachine) -> bytes:
    """Returns the encoded recovery point of an open file at its durable head.

    Raises:
        OSError: the disk failed, or another program changed the file: a recovery point would make
            the next opening accept that change as the session's own.
    """
    size = log.synced
    tail_start = max(0, size - limits.FINGERPRINT_BYTES)
    tail = log.read(log.generation, tail_start, size - tail_start)
    if log.is_foreign_changed():
        raise OSError(errno.ESTALE, "another program changed this file", log.file_path)
    return encode_recovery_point(
        generation=log.generation,
        inode=log.stat().inode,
        size=size,
        crc=timeline.fingerprint(size, tail)[1],
        lines=machine.head.line,
        counters=machine.counters,
        youngest_key_ms=machine.keys.youngest_ms,
        milestones=machine.seek_index,
        checksums=log.checksums.known,
    )


def save_recovery_point(opened: Opened) -> None:
    """Save the recovery point of an open file; raises as `recovery_point_of`."""
    log = opened.log
    log.save_recovery_point(recovery_point_of(log, opened.machine), log.generation, log.synced)


def _check_present(disk: Disk, folder: int, opening: Opening) -> bool:
    """Refuse a session without its present generation; nothing is changed.

    A session that was open when its file was removed is not refused: the file is kept as a
    generation, and the next generation can begin.

    Returns:
        True if the present generation exists.

    Raises:
        Corrupt: the present generation is missing.
        Busy: another program moved it away recently, and may be about to write another file.
    """
    if disk.stat_name(folder, paths.CONTEXT) is not None:
        return True
    has_past = bool(past_generations(disk, folder))
    age_s = opening.now - disk.stat(folder).modified_s
    is_fresh = opening.shared and has_past and abs(age_s) < limits.FOREIGN_SETTLE_S
    if is_fresh or (opening.changed_while_open and not opening.create):
        raise _moved_away(opening)
    if has_past and not opening.changed_while_open:
        raise Corrupt(missing_context_text(opening.path), session=opening.session)
    return False


def missing_context_text(path: str) -> str:
    """Returns the error text for a folder with past generations but without `context.jsonl`."""
    return (
        f"{path} has older generations and no {paths.CONTEXT}: move the newest context_N.jsonl to"
        f" {paths.CONTEXT} to go on from it"
    )


def _moved_away(opening: Opening) -> Busy:
    return Busy(
        f"another program moved {opening.path}/{paths.CONTEXT} away and may be about to write"
        " another one: try again in a moment",
        session=opening.session,
    )


def _open_context(disk: Disk, folder: int, opening: Opening, *, is_there: bool) -> int:
    try:
        return disk.open_append(folder, paths.CONTEXT)
    except FileNotFoundError:
        if is_there:
            # The file existed at the check: the session exists, and may hold the request already.
            raise _moved_away(opening) from None
    if opening.create:
        return disk.open_append(folder, paths.CONTEXT, create=True)
    if opening.changed_while_open:
        raise _moved_away(opening)
    raise NotFound("there is no such session: open it first", session=opening.session)


def _open_files(
    disk: Disk, folder: int, context: int, opening: Opening, entries: list[TimelineEntry]
) -> Opened:
    generation = crash_recovery.present_generation(disk, folder)
    crash_recovery.sync_past_generations(disk, folder, entries, generation, opening.failed_syncs)
    end = FileEnd(
        disk, folder, context, paths.CONTEXT, generation, opening.session, opening.path,
        opening.failed_syncs,
    )  # fmt: skip
    # A foreign change of an open file is recorded by its writer.
    before_change = None if opening.changed_while_open else end.head_before_change()
    size, replay, recovery_point, checksums = _recover_file(end, opening, entries)
    created = not entries and replay.lines == 0
    if timeline.incarnation_of(entries) is None and not disk.is_read_only:
        first = _first_entry(opening, generation, created=created)
        # A folder that is adopted may be opened for a reader alone.
        with contextlib.nullcontext() if created else disk.unmodified(folder):
            jsonl.append_timeline(disk, folder, timeline.encode(first))
        entries = [*entries, first]
    reuses_ids = opening.shared or not _has_stamps(entries)
    if not reuses_ids:
        entries = _count_checkpoints(disk, folder, opening, entries, generation)
    _apply_checkpoint_floor(replay, entries, generation)
    head = Position(generation, replay.lines)
    if before_change is not None and not disk.is_read_only:
        _record_change(end, entries, before_change, head, opening.now)
    log = JsonlLog(
        disk, folder, opening.path, context, generation, size,
        failed_syncs=opening.failed_syncs, checksums=checksums,
    )  # fmt: skip
    first_lines = timeline.first_lines_of(entries, generation)
    if timeline.is_inferred(entries, generation):
        # Any of its lines may be a copy of an older line, so keys are looked up in all files.
        first_lines = replay.lines
    machine = Machine(
        opening.session,
        head,
        replay.counters,
        _recent_keys(log, opening, replay.lines, first_lines, recovery_point, entries),
        stamp=_has_stamps(entries),
    )
    machine.seek_index = replay.seek_index
    machine.incarnation = timeline.incarnation_of(entries) or ""
    machine.reuses_ids = reuses_ids
    machine.checkpoint_floor = checkpoint_ids.checkpoint_floor(entries, generation)
    machine.unreserved_id = timeline.unreserved_id(entries, generation)
    machine.mail = dmail.pending(entries, generation)
    machine.delivered = dmail.delivered_last(entries)
    return Opened(
        log, machine, timeline.incarnation_of(entries) or "", created, _made_by_key(entries)
    )


def _count_checkpoints(
    disk: Disk, folder: int, opening: Opening, entries: list[TimelineEntry], present: int
) -> list[TimelineEntry]:
    """Make sure that the timeline records an id above all ids of past generations.

    The rewrites of earlier versions and of other programs record none, so the generations since the
    last recorded one are read, once.

    Returns:
        The timeline, with the entry that was appended, if there was one.
    """
    first = checkpoint_ids.NextCheckpointIds(entries).newest_recorded(present)
    if first == present:
        return entries
    past = [each for each in past_generations(disk, folder) if first <= each < present]
    replay = Replay()
    for generation in past:
        shared = SharedHandle(disk, disk.open_read(folder, paths.generation_file(generation + 1)))
        try:
            size = disk.stat(shared.handle).size
            for _, block in blocks_of(FileView(shared, size).read):
                replay.feed(block)
        finally:
            shared.release()
    next_id = max(replay.counters.n_checkpoints, checkpoint_ids.checkpoint_floor(entries, present))
    entry = TimelineEntry(
        kind=timeline_entries.COUNTED,
        generation=present,
        at=opening.now,
        details={"next_id": next_id},
    )
    jsonl.append_timeline(disk, folder, timeline.encode(entry))
    return [*entries, entry]


def _record_change(
    end: FileEnd, entries: list[TimelineEntry], before: Position, after: Position, now: float
) -> None:
    """Append one timeline entry for a file that changed while it was closed."""
    change = TimelineEntry(
        kind=timeline_entries.FOREIGN,
        generation=after.generation,
        at=now,
        why="another program changed the file while it was closed",
        details={"before": str(before), "after": str(after), "kept": False},
    )
    if not any(entry.kind == change.kind and entry.details == change.details for entry in entries):
        jsonl.append_timeline(end.disk, end.folder, timeline.encode(change))


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
        deleted = _deleted_files(disk, folder, name)
        generation = stream_generation(deleted)
        entries = timeline.decode(read_file(disk, folder, paths.TIMELINE))
        if opening.to_follow and disk.stat_name(folder, name) is None:
            incarnation = timeline.incarnation_of(entries) or ""
            raise NoFileYet(opening, Position(generation, 0), incarnation)
        _check_stream_count(disk, folder, name, opening)
        handle = disk.open_append(folder, name, create=True)
        end = FileEnd(
            disk, folder, handle, name, generation, opening.session, opening.path,
            opening.failed_syncs,
        )  # fmt: skip
        size, replay, recovery_point, checksums = _recover_file(end, opening, entries)
        log = JsonlLog(
            disk, folder, opening.path, handle, generation, size, name=name,
            failed_syncs=opening.failed_syncs, checksums=checksums, deleted=deleted,
        )  # fmt: skip
        head = Position(generation, replay.lines)
        keys = _recent_keys(
            log, opening, replay.lines, 0, recovery_point, (), is_stream=deleted is not None
        )
        machine = _stream_machine(
            log, opening.session, head, keys, stamp=stamp, context_head=context_head
        )
        return Opened(log, machine, timeline.incarnation_of(entries) or "", created=False)
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


def _check_stream_count(disk: Disk, folder: int, name: str, opening: Opening) -> None:
    if name == paths.WIRE or disk.stat_name(folder, name) is not None:
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
    generation = stream_generation(_deleted_files(disk, folder, name))
    end = FileEnd(disk, folder, handle, name, generation, "", "", failed_syncs)
    recovery_point = end.recovery_point()
    size = end.readable_size(recovery_point)
    return StreamSize(size, end.line_count(recovery_point, size), generation)


def _apply_checkpoint_floor(replay: Replay, entries: list[TimelineEntry], generation: int) -> None:
    """Raise the next checkpoint's id to the first one that the last rewrite left free."""
    floor = checkpoint_ids.checkpoint_floor(entries, generation)
    replay.counters.n_checkpoints = max(replay.counters.n_checkpoints, floor)


def _recover_file(
    end: FileEnd, opening: Opening, entries: list[TimelineEntry]
) -> tuple[int, Replay, RecoveryPoint | None, BlockChecksums]:
    """Make a file durable, repair its end, and replay it.

    Returns:
        The file's size, its replay, the recovery point that the replay began from (None if there is
        no valid one), and the checksums of the whole file.
    """
    recovery_point = end.recovery_point()
    is_fresh = end.is_fresh(opening.now, shared=opening.shared)
    if is_fresh:
        end.check_not_being_written(recovery_point)
    durable = end.make_durable(_durable_size(end, opening, recovery_point, entries))
    if is_fresh:
        end.check_not_being_written(recovery_point)
    size = end.repair(recovery_point, opening.now, entries, durable=durable)
    checksums = end.recovered_checksums(recovery_point)
    return size, end.replay(recovery_point, size, checksums), recovery_point, checksums


def _durable_size(
    end: FileEnd,
    opening: Opening,
    recovery_point: RecoveryPoint | None,
    entries: list[TimelineEntry],
) -> int:
    """Returns the bytes that an earlier sync is known to have made durable."""
    if recovery_point is not None:
        return recovery_point.bytes
    if opening.proven is not None:
        # If another program cut the file since, no byte is known to be durable.
        return opening.proven if opening.proven <= end.size else 0
    if opening.failed_syncs.has(end.disk.stat(end.handle)):
        # The sync of a read failed, or that of a writer that had this file open before.
        return 0
    if opening.changed_while_open:
        # The first opening wrote the unproven bytes again, and no sync failed since.
        return end.size
    # A file without a timeline was never open here, so none of its bytes was acknowledged. Other
    # programs have to sync their bytes, as long as no sync of this daemon failed.
    return max(0, end.size - limits.UNPROVEN_BYTES_MAX) if entries else end.size


def _recent_keys(
    log: JsonlLog,
    opening: Opening,
    lines: int,
    first_lines: int,
    recovery_point: RecoveryPoint | None,
    entries: Sequence[TimelineEntry],
    *,
    is_stream: bool = False,
) -> KeyTable:
    """Returns the keys of the last lines, except lines that a rewrite copied."""
    begin, known = log.size, 0 if log.size == log.generation == 0 else None
    if recovery_point is not None and recovery_point.lines >= first_lines:
        # If few bytes follow the recovery point, the last lines include them and their keys.
        is_near = log.size - recovery_point.bytes <= limits.UNPROVEN_BYTES_MAX
        begin, known = (
            (recovery_point.bytes, recovery_point.youngest_key_ms) if is_near else (begin, None)
        )
    opened_ms, youngest_ms = int(opening.now * 1000), _youngest_ms(known, log.generation, entries)
    if _has_stamps(entries):
        table = KeyTable(opened_ms, youngest_ms)
    else:
        table = KeyTable(opened_ms, youngest_ms, limits.UNSTAMPED_KEYS_MAX)
    found = _last_lines(log, begin)
    first = lines - len(found)
    for key, applied in applied_in(found, log.generation, first, is_stream=is_stream):
        if applied.first.line >= first_lines:
            table.add(key, applied)
    return table


def _youngest_ms(
    known: int | None, generation: int, entries: Sequence[TimelineEntry]
) -> int | None:
    """Returns the creation time of the newest key used before the last lines; None if unknown."""
    if known is None:
        return None
    # The timeline is read too: sending a D-Mail uses a key, but writes no line after the recovery
    # point.
    used = [entry.key for entry in entries if entry.key and entry.generation >= generation]
    return max(known, *(paths.key_time_ms(key) or 0 for key in used), 0)


def _last_lines(log: JsonlLog, begin: int) -> list[bytes]:
    """Returns the lines in the last block of the present file, and all lines from `begin` on."""
    start = max(0, min(begin, log.size - limits.BLOCK_BYTES))
    if not start:
        return split_lines(log.read(log.generation, 0, log.size))
    # One more byte before: it is a newline if a line begins exactly at `start`.
    data = log.read(log.generation, start - 1, log.size - start + 1)
    return split_lines(data[data.find(b"\n") + 1 :])


def _last_joined_position(log: JsonlLog) -> Position:
    """Returns the context position of the last event in a wire file."""
    for line in reversed(_last_lines(log, log.size)):
        event = parse_wire_line(line)
        if isinstance(event, WireRecord) and event.at is not None:
            with contextlib.suppress(BadRequest):
                return Position.parse(event.at)
    return Position(0, 0)


def _first_entry(opening: Opening, generation: int, *, created: bool) -> TimelineEntry:
    key = {"key": opening.key} if created and opening.key is not None else {}
    return TimelineEntry(
        kind=timeline_entries.CREATED if created else timeline_entries.ADOPTED,
        generation=generation,
        at=opening.now,
        by=opening.by,
        claim=opening.claim,
        details={"incarnation": opening.incarnation, "stamp": opening.stamp, **key},
    )


def _made_by_key(entries: list[TimelineEntry]) -> str | None:
    key = next(
        (entry.details.get("key") for entry in entries if entry.kind == timeline_entries.CREATED),
        None,
    )
    return key if isinstance(key, str) else None


def _has_stamps(entries: Sequence[TimelineEntry]) -> bool:
    return all(entry.details.get("stamp", True) is not False for entry in entries)
