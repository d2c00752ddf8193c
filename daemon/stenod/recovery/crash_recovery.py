"""Crash recovery across a session's files: torn timelines and interrupted rewrites.

It runs before any file is replayed. The repair of one file's end is in `tail_repair`.
"""

import contextlib
from collections.abc import Iterable

from steno_protocol import limits, paths
from steno_protocol.blocks import split_lines
from steno_protocol.timeline_entries import TimelineEntry
from stenod.core import timeline
from stenod.core.lines import holds_object
from stenod.core.recovery_point import RecoveryPoint, decode_recovery_point
from stenod.recovery.tail_repair import fingerprint
from stenod.store import jsonl
from stenod.store.disk import Disk
from stenod.store.failed_syncs import FailedSyncs
from stenod.store.handles import closing, copy_all, open_file, rewrite_in_place
from stenod.store.log import Copy
from stenod.store.names import (
    generations_among,
    link_generation,
    past_generations,
    read_file,
    remove,
    stat_file,
)
from stenod.store.quarantine import quarantine


def recover(disk: Disk, folder: int) -> list[TimelineEntry]:
    """Repair the timeline's tail, and void an interrupted rewrite; returns the timeline.

    On a disk that is only read the timeline is returned as it is.
    """
    if disk.is_read_only:
        return timeline.decode(read_file(disk, folder, paths.TIMELINE))
    remove(disk, folder, paths.REWRITE)
    _repair_timeline(disk, folder)
    is_undone = _unlink_second_name(disk, folder)
    data = read_file(disk, folder, paths.TIMELINE)
    last = timeline.in_doubt(data)
    if last is None or (not is_undone and _is_completed(disk, folder, last)):
        return timeline.decode(data)
    line = timeline.encode(timeline.voided(last))
    jsonl.append_timeline(disk, folder, line)
    return timeline.decode(data + line)


def present_generation(disk: Disk, folder: int, names: Iterable[str] | None = None) -> int:
    """Returns the generation of `context.jsonl`; `names` are those in the folder, if known."""
    past = past_generations(disk, folder) if names is None else generations_among(names)
    if past and _is_present_file(disk, folder, past[-1]):
        past.pop()
    return past[-1] + 1 if past else 0


def sync_past_generations(
    disk: Disk, folder: int, entries: list[TimelineEntry], present: int, failed_syncs: FailedSyncs
) -> None:
    """Make past generations since the last recovery point durable before they are read.

    A past generation can have unsynced lines: a daemon was killed, or its sync failed, before
    another program moved the file away; or another program appended to the file just before a
    rewrite replaced it. An older generation is synced only if a sync of it failed in this process.
    """
    recovery_point = decode_recovery_point(
        read_file(disk, folder, paths.recovery_point_file(paths.CONTEXT))
    )
    latest = max((entry.generation for entry in entries), default=present)
    since = max(latest - 1, recovery_point.generation if recovery_point is not None else 0)
    for generation in range(0 if failed_syncs else since, present):
        if generation < since:
            named = disk.stat_name(folder, paths.generation_file(generation + 1))
            if named is None or not failed_syncs.has(named):
                continue
        # A file that cannot be opened for writing has no unsynced lines of this daemon.
        with contextlib.suppress(FileNotFoundError, PermissionError):
            _sync_generation(disk, folder, generation, recovery_point, failed_syncs)


def _sync_generation(
    disk: Disk,
    folder: int,
    generation: int,
    recovery_point: RecoveryPoint | None,
    failed_syncs: FailedSyncs,
) -> None:
    with closing(disk, disk.open_append(folder, paths.generation_file(generation + 1))) as handle:
        found = disk.stat(handle)
        is_same_file = recovery_point is not None and (
            recovery_point.generation,
            recovery_point.inode,
        ) == (generation, found.inode)
        start = recovery_point.bytes if recovery_point is not None and is_same_file else 0
        if not failed_syncs.has(found):
            start = max(start, found.size - limits.UNPROVEN_BYTES_MAX)
        rewrite_in_place(disk, handle, start, found.size)
        with failed_syncs.syncing(found):
            disk.fsync(handle)
        failed_syncs.resolve(found)


def _repair_timeline(disk: Disk, folder: int) -> None:
    """Cut off torn lines at the timeline's end, and make the last line durable.

    Every line is synced before the next one is written, so only the last line can be torn or not
    durable. Damage before a whole line is old, and is left unchanged.
    """
    data = read_file(disk, folder, paths.TIMELINE)
    lines = split_lines(data)
    while lines and not (lines[-1].endswith(b"\n") and holds_object(lines[-1])):
        lines.pop()
    keep = sum(map(len, lines))
    if not data:
        return
    if keep < len(data):
        quarantine(disk, folder, paths.TIMELINE, keep, data[keep:])
    with closing(disk, disk.open_append(folder, paths.TIMELINE)) as handle:
        if keep < len(data):
            disk.truncate(handle, keep)
        if lines:
            disk.overwrite(handle, keep - len(lines[-1]), lines[-1])
        disk.fsync(handle)


def _unlink_second_name(disk: Disk, folder: int) -> bool:
    """Remove the second name that an interrupted rewrite gave the present file.

    The check and the removal are two system calls. If another program replaces the file at its
    first name between them, the second name is the last one, and the file is kept as a generation.

    Returns:
        True if there was a second name: the rewrite was not completed.
    """
    past = past_generations(disk, folder)
    if not (past and _is_present_file(disk, folder, past[-1])):
        return False
    name = paths.generation_file(past[-1] + 1)
    with closing(disk, disk.open_read(folder, name)) as handle:
        disk.unlink(folder, name)
        if disk.stat(handle).links == 0:
            _restore_generation(disk, folder, handle)
        disk.fsync(folder)
    return True


def _restore_generation(disk: Disk, folder: int, handle: int) -> None:
    """Create a generation from an open file that has no name; the folder is not synced."""
    with closing(disk, disk.open_new(folder, paths.REWRITE)) as fresh:
        copy_all(disk, handle, fresh, Copy(0, 0, disk.stat(handle).size))
        disk.fsync(fresh)
    link_generation(disk, folder, paths.REWRITE)
    disk.unlink(folder, paths.REWRITE)


def _is_completed(disk: Disk, folder: int, rewrite: TimelineEntry) -> bool:
    """Returns whether the last rewrite's rename happened.

    If it did, the old file has the generation's name, and the file after it begins with the new
    file's bytes; other programs may have appended to both. A file that another program rotated
    begins with other bytes.
    """
    followed = paths.generation_file(rewrite.generation + 1)
    if disk.stat_name(folder, followed) is None:
        followed = paths.CONTEXT
    old = timeline.fingerprint_of(rewrite, "old")
    new = timeline.fingerprint_of(rewrite, "new")
    rotated = paths.generation_file(rewrite.generation)
    if stat_file(disk, folder, rotated) is not None and _is_proven_completed(
        disk, folder, rewrite.generation
    ):
        return True
    return _begins_with(disk, folder, rotated, old) and _begins_with(disk, folder, followed, new)


def _is_proven_completed(disk: Disk, folder: int, generation: int) -> bool:
    """Returns whether the recovery point proves that a rewrite made this generation.

    An editor may have replaced the file since. The rewrite was acknowledged all the same: if it
    were voided, a repeated request would apply it twice.
    """
    recovery_point = decode_recovery_point(
        read_file(disk, folder, paths.recovery_point_file(paths.CONTEXT))
    )
    return recovery_point is not None and recovery_point.generation >= generation


def _begins_with(disk: Disk, folder: int, name: str, expected: timeline.Fingerprint | None) -> bool:
    try:
        handle = open_file(disk, folder, name)
    except FileNotFoundError:
        return False
    with closing(disk, handle):
        if expected is None:
            return True
        size = expected[0]
        return disk.stat(handle).size >= size and fingerprint(disk, handle, size) == expected


def _is_present_file(disk: Disk, folder: int, generation: int) -> bool:
    """Returns whether a past generation's name leads to the present file."""
    old = disk.stat_name(folder, paths.generation_file(generation + 1))
    present = disk.stat_name(folder, paths.CONTEXT)
    return old is not None and present is not None and old.inode == present.inode
