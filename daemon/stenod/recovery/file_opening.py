"""Opening a session: make what is there durable, settle what a crash left open, then believe it.

`inspect` reads a session and repairs nothing; `open_session` opens it for its one writer and puts
right what only a crash can have left: a rewrite that did not take place, a torn tail.
"""

import contextlib
import errno
from collections.abc import Callable, Sequence

import msgspec

from steno_protocol import checkpoint_ids, limits, paths, timeline_entries
from steno_protocol.checksums import BlockChecksums
from steno_protocol.context import ContextCounters
from steno_protocol.errors import BadRequest, Busy, Corrupt, Held, NotFound
from steno_protocol.lines import split_lines
from steno_protocol.positions import Position
from steno_protocol.replies import Mail
from steno_protocol.timeline_entries import TimelineEntry
from steno_protocol.wire import WireRecord, parse_wire_line
from stenod.core import dmail, timeline
from stenod.core.key_replay import applied_in
from stenod.core.keys import KeyTable
from stenod.core.machine import Machine
from stenod.core.recovery_point import RecoveryPoint, encode_recovery_point
from stenod.core.replay import Replay
from stenod.core.speculation import Speculation
from stenod.core.wire_machine import WireMachine
from stenod.recovery import crash_recovery
from stenod.recovery.tail_repair import FileEnd
from stenod.store import jsonl
from stenod.store.disk import Disk
from stenod.store.failed_syncs import FailedSyncs
from stenod.store.jsonl import JsonlLog
from stenod.store.names import past_generations, read_file


class OpenHow(msgspec.Struct, frozen=True):
    """How a session's files are to be opened.

    Attributes:
        create: make the session if there is none.
        stamp: whether a new session's lines bear `_id`.
        by: the client that asks.
        key: of the command that asks.
        proven: the length that was durable when a sync of this file failed in this process.
        taken_in: another program changed the files while they were open in this process.
    """

    create: bool = False
    stamp: bool = True
    by: str | None = None
    key: str | None = None
    proven: int | None = None
    taken_in: bool = False


class Opening(OpenHow, frozen=True, kw_only=True):
    """One opening of a session: how, where and when.

    Attributes:
        session: its id, for messages.
        path: its folder's path, for messages and answers.
        now: Unix time in seconds.
        incarnation: the id that a new session gets.
        shared: other programs write in this folder too, so a fresh half line may be theirs.
        failed_syncs: files with a failed sync in this process, by any handle.
    """

    session: str
    path: str
    now: float
    incarnation: str
    shared: bool = False
    failed_syncs: FailedSyncs = msgspec.field(default_factory=FailedSyncs)


class Opened(msgspec.Struct, frozen=True):
    """A session that is open for its writer.

    Attributes:
        created: this opening made it.
        made_by_key: the key of the command that made it, whenever that was, if it had one.
    """

    log: JsonlLog
    machine: Speculation
    incarnation: str
    created: bool
    made_by_key: str | None = None


class Inspection(msgspec.Struct, frozen=True):
    """What a session's files say, read without changing them.

    Attributes:
        size: bytes that a reader may be given: whole batches of whole lines.
        head: the position there.
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
        NotFound: there is no session, and none is to be made.
        Corrupt: its present generation is gone; nothing was changed.
        Busy: another program seems to be in the middle of a line, or of several, or of replacing
            the file.
        OSError: the disk failed; nothing is known to have changed.
    """
    context: int | None = None
    try:
        if not disk.lock(folder):
            raise Held(
                f"another daemon has {opening.path} open: stop it, or use its root",
                session=opening.session,
            )
        is_there = _check_present(disk, folder, opening)
        entries = crash_recovery.settle(disk, folder)
        context = _open_context(disk, folder, opening, is_there=is_there)
        return _open_files(disk, folder, context, opening, entries)
    except BaseException:
        for handle in (context, folder):
            if handle is not None:
                disk.close(handle)
        raise


def inspect(disk: Disk, folder: int, handle: int, failed_syncs: FailedSyncs) -> Inspection:
    """Read what a session's files say; `handle` is its open `context.jsonl`. Nothing is repaired.

    The file is synced first, so that nothing is shown that a power cut could take back.

    Raises:
        Unproven: that is not enough, because an earlier sync failed.
    """
    failed_syncs.sync_to_read(disk, handle, paths.CONTEXT)
    generation = crash_recovery.present_generation(disk, folder)
    end = FileEnd(disk, folder, handle, paths.CONTEXT, generation, "", "", failed_syncs)
    mark = end.recovery_point()
    size = end.readable_size(mark)
    replay = end.replay(mark, size)
    entries = timeline.decode(read_file(disk, folder, paths.TIMELINE))
    _raise_to_floor(replay, entries, generation)
    return Inspection(
        size=size,
        head=Position(generation, replay.lines),
        counters=replay.counters,
        incarnation=timeline.incarnation_of(entries) or "",
        stamp=_stamp(entries),
    )


def pending_mail(disk: Disk, folder: int) -> Mail | None:
    """The D-Mail that waits in a session; nothing is repaired."""
    entries = timeline.decode(read_file(disk, folder, paths.TIMELINE))
    return dmail.pending(entries, crash_recovery.present_generation(disk, folder))


def readable_size(
    disk: Disk, folder: int, handle: int, name: str, generation: int, failed_syncs: FailedSyncs
) -> int:
    """Bytes of a session's file that a reader may be given, without reading all of it.

    The file is synced first, so that nothing is shown that a power cut could take back.

    Raises:
        Unproven: that is not enough, because an earlier sync failed.
    """
    failed_syncs.sync_to_read(disk, handle, name)
    end = FileEnd(disk, folder, handle, name, generation, "", "", failed_syncs)
    return end.readable_size(end.recovery_point())


def recovery_point_of(log: JsonlLog, machine: Speculation) -> bytes:
    """The mark of an open session at its durable head.

    Raises:
        OSError: the disk failed, or another program changed the file: a mark of what lies there now
            would have it taken for ours.
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
        milestones=machine.milestones,
        checksums=log.checksums.known,
    )


def save_recovery_point(opened: Opened) -> None:
    """Write the mark of an open session; it raises as `recovery_point_of`."""
    log = opened.log
    log.save_recovery_point(recovery_point_of(log, opened.machine), log.generation, log.synced)


def _check_present(disk: Disk, folder: int, opening: Opening) -> bool:
    """Refuse a session without its present generation; nothing is changed.

    Unless it was open until then: what was open is a generation now, and the next one can begin.
    Returns whether it is there.

    Raises:
        Corrupt: it is gone.
        Busy: it went just now, and another one may be about to come.
    """
    if disk.stat_name(folder, paths.CONTEXT) is not None:
        return True
    has_past = bool(past_generations(disk, folder))
    age_s = opening.now - disk.stat(folder).modified_s
    is_fresh = opening.shared and has_past and abs(age_s) < limits.FOREIGN_SETTLE_S
    if is_fresh or (opening.taken_in and not opening.create):
        raise _moved_away(opening)
    if has_past and not opening.taken_in:
        raise Corrupt(present_lost(opening.path), session=opening.session)
    return False


def present_lost(path: str) -> str:
    """What is said of a session's folder that has a past and no present, and what to do."""
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
            # It was until now: there is such a session, and what is asked may be in it already.
            raise _moved_away(opening) from None
    if opening.create:
        return disk.open_append(folder, paths.CONTEXT, create=True)
    if opening.taken_in:
        raise _moved_away(opening)
    raise NotFound("there is no such session: open it first", session=opening.session)


def _open_files(
    disk: Disk, folder: int, context: int, opening: Opening, entries: list[TimelineEntry]
) -> Opened:
    generation = crash_recovery.present_generation(disk, folder)
    crash_recovery.prove_left_behind(disk, folder, entries, generation, opening.failed_syncs)
    end = FileEnd(
        disk, folder, context, paths.CONTEXT, generation, opening.session, opening.path,
        opening.failed_syncs,
    )  # fmt: skip
    # A foreign change of an open file is recorded by its writer.
    was_at = None if opening.taken_in else end.changed_since()
    size, replay, mark, checksums = _believe(end, opening, entries)
    created = not entries and replay.lines == 0
    if timeline.incarnation_of(entries) is None:
        first = _first_entry(opening, generation, created=created)
        jsonl.append_timeline(disk, folder, timeline.encode(first))
        entries = [*entries, first]
    _raise_to_floor(replay, entries, generation)
    head = Position(generation, replay.lines)
    if was_at is not None:
        _record_change(end, entries, was_at, head, opening.now)
    log = JsonlLog(
        disk, folder, opening.path, context, generation, size,
        failed_syncs=opening.failed_syncs, checksums=checksums,
    )  # fmt: skip
    first_lines = timeline.first_lines_of(entries, generation)
    if timeline.is_inferred(entries, generation):
        # It is unknown which of its lines are copies of older ones: their keys are looked up.
        first_lines = replay.lines
    machine = Machine(
        opening.session,
        head,
        replay.counters,
        _recent_keys(log, opening, replay.lines, first_lines, mark, entries),
        stamp=_stamp(entries),
    )
    machine.milestones = replay.milestones
    machine.checkpoint_floor = checkpoint_ids.checkpoint_floor(entries, generation)
    machine.unreserved_id = timeline.unreserved_id(entries, generation)
    machine.mail = dmail.pending(entries, generation)
    machine.delivered = dmail.delivered_last(entries)
    return Opened(
        log, machine, timeline.incarnation_of(entries) or "", created, _made_by_key(entries)
    )


def _record_change(
    end: FileEnd, entries: list[TimelineEntry], before: Position, after: Position, now: float
) -> None:
    """Record in the timeline, once, that a file changed while it was closed."""
    change = TimelineEntry(
        kind=timeline_entries.FOREIGN,
        generation=after.generation,
        at=now,
        why="another program changed the file while it was closed",
        details={"before": str(before), "after": str(after), "kept": False},
    )
    if not any(entry.kind == change.kind and entry.details == change.details for entry in entries):
        jsonl.append_timeline(end.disk, end.folder, timeline.encode(change))


def open_wire(
    disk: Disk,
    folder: int,
    opening: Opening,
    *,
    stamp: bool,
    context_head: Callable[[], Position],
) -> Opened:
    """Open the wire file of a session; this process has its context open and locked.

    Takes over the folder's handle, and closes it on failure. A file that is not there is made.

    Raises:
        Busy: another program seems to be in the middle of a line, or of several.
        OSError: the disk failed; nothing is known to have changed.
    """
    handle: int | None = None
    try:
        handle = disk.open_append(folder, paths.WIRE, create=True)
        entries = timeline.decode(read_file(disk, folder, paths.TIMELINE))
        end = FileEnd(
            disk, folder, handle, paths.WIRE, 0, opening.session, opening.path, opening.failed_syncs
        )
        size, replay, mark, checksums = _believe(end, opening, entries)
        log = JsonlLog(
            disk, folder, opening.path, handle, 0, size,
            name=paths.WIRE, failed_syncs=opening.failed_syncs, checksums=checksums,
        )  # fmt: skip
        machine = WireMachine(
            opening.session,
            Position(0, replay.lines),
            _recent_keys(log, opening, replay.lines, 0, mark, ()),
            stamp=stamp,
            context_head=context_head,
            floor=_last_at(log),
        )
        return Opened(log, machine, timeline.incarnation_of(entries) or "", created=False)
    except BaseException:
        for opened in (handle, folder):
            if opened is not None:
                disk.close(opened)
        raise


def _raise_to_floor(replay: Replay, entries: list[TimelineEntry], generation: int) -> None:
    """The next checkpoint's id is at least the one that the last rewrite left free."""
    floor = checkpoint_ids.checkpoint_floor(entries, generation)
    replay.counters.n_checkpoints = max(replay.counters.n_checkpoints, floor)


def _believe(
    end: FileEnd, opening: Opening, entries: list[TimelineEntry]
) -> tuple[int, Replay, RecoveryPoint | None, BlockChecksums]:
    """Make a file durable, mend its end, and read what it says: its size and the replay of it.

    With them comes the mark that it began from, if there is one to be believed, and the checksums
    of the whole file.
    """
    mark = end.recovery_point()
    is_fresh = end.is_fresh(opening.now, shared=opening.shared)
    if is_fresh:
        end.check_settled(mark)
    durable = end.make_durable(_proven(end, opening, mark, entries))
    if is_fresh:
        end.check_settled(mark)
    size = end.mend(mark, opening.now, entries, durable=durable)
    checksums = end.marked_checksums(mark)
    return size, end.replay(mark, size, checksums), mark, checksums


def _proven(
    end: FileEnd, opening: Opening, mark: RecoveryPoint | None, entries: list[TimelineEntry]
) -> int:
    """The length that some sync is known to have made durable."""
    if mark is not None:
        return mark.bytes
    if opening.proven is not None:
        # Of a file that another program cut since, nothing is known.
        return opening.proven if opening.proven <= end.size else 0
    if opening.failed_syncs.has(end.disk.stat(end.handle)):
        # A sync failed: of a read, or of a writer that had these files open before.
        return 0
    if opening.taken_in:
        # Ours were written again when it was opened first, and no sync of them failed since.
        return end.size
    # A file that was never ours has no acknowledged byte, and what others wrote is theirs to sync,
    # as long as no sync of ours failed.
    return max(0, end.size - limits.UNPROVEN_BYTES_MAX) if entries else end.size


def _recent_keys(
    log: JsonlLog,
    opening: Opening,
    lines: int,
    first_lines: int,
    mark: RecoveryPoint | None,
    entries: Sequence[TimelineEntry],
) -> KeyTable:
    """The keys of the last lines that were appended to this generation itself."""
    begin, known = log.size, 0 if log.size == log.generation == 0 else None
    if mark is not None and mark.lines >= first_lines:
        # What came behind the mark is among the last lines then, with its keys.
        is_near = log.size - mark.bytes <= limits.UNPROVEN_BYTES_MAX
        begin, known = (mark.bytes, mark.youngest_key_ms) if is_near else (begin, None)
    opened_ms, youngest_ms = int(opening.now * 1000), _youngest_ms(known, log.generation, entries)
    if _stamp(entries):
        table = KeyTable(opened_ms, youngest_ms)
    else:
        table = KeyTable(opened_ms, youngest_ms, limits.UNSTAMPED_KEYS_MAX)
    found = _last_lines(log, begin)
    for key, applied in applied_in(found, log.generation, lines - len(found)):
        if applied.first.line >= first_lines:
            table.add(key, applied)
    return table


def _youngest_ms(
    known: int | None, generation: int, entries: Sequence[TimelineEntry]
) -> int | None:
    """The creation time of the newest key used before the last lines; None if unknown."""
    if known is None:
        return None
    # A mail changes no generation, and leaves the mark as it was.
    used = [entry.key for entry in entries if entry.key and entry.generation >= generation]
    return max(known, *(paths.key_time_ms(key) or 0 for key in used), 0)


def _last_lines(log: JsonlLog, begin: int) -> list[bytes]:
    """The lines in the last block of the present file, and all from `begin` on."""
    start = max(0, min(begin, log.size - limits.BLOCK_BYTES))
    if not start:
        return split_lines(log.read(log.generation, 0, log.size))
    # With the byte before: a line may begin just there.
    data = log.read(log.generation, start - 1, log.size - start + 1)
    return split_lines(data[data.find(b"\n") + 1 :])


def _last_at(log: JsonlLog) -> Position:
    """The position that the last event of a wire file was joined to."""
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
        details={"incarnation": opening.incarnation, "stamp": opening.stamp, **key},
    )


def _made_by_key(entries: list[TimelineEntry]) -> str | None:
    key = next(
        (entry.details.get("key") for entry in entries if entry.kind == timeline_entries.CREATED),
        None,
    )
    return key if isinstance(key, str) else None


def _stamp(entries: Sequence[TimelineEntry]) -> bool:
    return all(entry.details.get("stamp", True) is not False for entry in entries)
