"""Opening of a session for its one writer: its files are synced, recovered, then replayed.

The damage of a crash is repaired: an interrupted rewrite, a torn tail. `inspection` reads a session
and repairs nothing.
"""

import contextlib

from steno_protocol import checkpoint_ids, limits, paths, timeline_entries
from steno_protocol.errors import Busy, Corrupt, Held, NotFound
from steno_protocol.positions import Position
from steno_protocol.timeline_entries import TimelineEntry
from stenod.core import dmail, timeline
from stenod.core.machine import Machine
from stenod.core.replay import Replay
from stenod.recovery import crash_recovery
from stenod.recovery.inspection import apply_checkpoint_floor, has_stamps
from stenod.recovery.key_lookup import blocks_of
from stenod.recovery.opened import Opened, Opening
from stenod.recovery.recent_keys import recent_keys
from stenod.recovery.recovered_file import recover_file
from stenod.recovery.tail_repair import FileEnd
from stenod.store import jsonl
from stenod.store.disk import Disk
from stenod.store.handles import viewed
from stenod.store.jsonl import JsonlLog
from stenod.store.names import past_generations


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
    recovered = recover_file(end, opening, entries)
    replay = recovered.replay
    created = not entries and replay.lines == 0
    if timeline.incarnation_of(entries) is None and not disk.is_read_only:
        first = _first_entry(opening, generation, created=created)
        # A folder that is adopted may be opened for a reader alone.
        with contextlib.nullcontext() if created else disk.unmodified(folder):
            jsonl.append_timeline(disk, folder, timeline.encode(first))
        entries = [*entries, first]
    reuses_ids = opening.shared or not has_stamps(entries)
    if not reuses_ids:
        entries = _count_checkpoints(disk, folder, opening, entries, generation)
    apply_checkpoint_floor(replay, entries, generation)
    head = Position(generation, replay.lines)
    if before_change is not None and not disk.is_read_only:
        _record_change(end, entries, before_change, head, opening.now)
    log = JsonlLog(
        disk, folder, opening.path, context, generation, recovered.size,
        failed_syncs=opening.failed_syncs, checksums=recovered.checksums,
    )  # fmt: skip
    first_lines = timeline.first_lines_of(entries, generation)
    if timeline.is_inferred(entries, generation):
        # Any of its lines may be a copy of an older line, so keys are looked up in all files.
        first_lines = replay.lines
    machine = Machine(
        opening.session,
        head,
        replay.counters,
        recent_keys(log, opening, replay.lines, first_lines, recovered.recovery_point, entries),
        stamp=has_stamps(entries),
    )
    machine.seek_index = replay.seek_index
    machine.incarnation = timeline.incarnation_of(entries) or ""
    machine.reuses_ids = reuses_ids
    machine.checkpoint_floor = checkpoint_ids.checkpoint_floor(entries, generation)
    machine.unreserved_id = timeline.unreserved_id(entries, generation)
    machine.mail = dmail.pending(entries, generation)
    machine.delivered = dmail.delivered_last(entries)
    return Opened(
        log,
        machine,
        timeline.incarnation_of(entries) or "",
        created,
        made_by_key=_made_by_key(entries),
        repaired=recovered.repaired,
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
        with viewed(disk, folder, paths.generation_file(generation + 1)) as view:
            for _, block in blocks_of(view.read):
                replay.feed(block)
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
