"""Recovery of unfinished rewrites and torn timelines after a crash.

It runs before any file is read for use; `tail_repair` repairs the tail of a single file.
"""

import contextlib

from steno_protocol import limits, paths
from steno_protocol.lines import split_lines
from steno_protocol.timeline_entries import TimelineEntry
from stenod.core import timeline
from stenod.core.lines import holds_object
from stenod.core.recovery_point import RecoveryPoint, decode_recovery_point
from stenod.recovery.tail_repair import fingerprint
from stenod.store import jsonl
from stenod.store.disk import Disk
from stenod.store.failed_syncs import FailedSyncs
from stenod.store.handles import copy_all, write_again
from stenod.store.log import Copy
from stenod.store.names import link_generation, past_generations, read_file, remove
from stenod.store.quarantine import quarantine


def settle(disk: Disk, folder: int) -> list[TimelineEntry]:
    """Repair the timeline's tail, and void a rewrite that did not take place."""
    remove(disk, folder, paths.REWRITE)
    _repair_timeline(disk, folder)
    is_undone = _unlink_twin(disk, folder)
    data = read_file(disk, folder, paths.TIMELINE)
    last = timeline.in_doubt(data)
    if last is None or (not is_undone and _took_place(disk, folder, last)):
        return timeline.decode(data)
    line = timeline.encode(timeline.voided(last))
    jsonl.append_timeline(disk, folder, line)
    return timeline.decode(data + line)


def present_generation(disk: Disk, folder: int) -> int:
    """Return the generation of `context.jsonl`."""
    past = past_generations(disk, folder)
    if past and _is_present(disk, folder, past[-1]):
        past.pop()
    return past[-1] + 1 if past else 0


def prove_left_behind(
    disk: Disk, folder: int, entries: list[TimelineEntry], present: int, failed_syncs: FailedSyncs
) -> None:
    """Make past generations durable that may have unsynced lines, before they are read.

    A killed daemon or a failed sync leaves unsynced lines, and another program may rotate the file
    then. Another program can also append to a file until a rewrite replaces it. These generations
    are newer than the recovery point. An older one is concerned if the sync before a read failed.
    """
    point = decode_recovery_point(read_file(disk, folder, paths.recovery_point_file(paths.CONTEXT)))
    latest = max((entry.generation for entry in entries), default=present)
    since = max(latest - 1, point.generation if point is not None else 0)
    for generation in range(0 if failed_syncs else since, present):
        if generation < since:
            named = disk.stat_name(folder, paths.generation_file(generation + 1))
            if named is None or not failed_syncs.has(named):
                continue
        # A file that cannot be opened for writing has no unsynced lines of the daemon.
        with contextlib.suppress(FileNotFoundError, PermissionError):
            _prove(disk, folder, generation, point, failed_syncs)


def _prove(
    disk: Disk, folder: int, generation: int, point: RecoveryPoint | None, failed_syncs: FailedSyncs
) -> None:
    handle = disk.open_append(folder, paths.generation_file(generation + 1))
    try:
        found = disk.stat(handle)
        is_marked = point is not None and (point.generation, point.inode) == (
            generation,
            found.inode,
        )
        start = point.bytes if point is not None and is_marked else 0
        if not failed_syncs.has(found):
            start = max(start, found.size - limits.UNPROVEN_BYTES_MAX)
        write_again(disk, handle, start, found.size)
        with failed_syncs.syncing(found):
            disk.fsync(handle)
        failed_syncs.dispel(found)
    finally:
        disk.close(handle)


def _repair_timeline(disk: Disk, folder: int) -> None:
    """Cut a torn last line of the timeline, and make the rest durable before it is read.

    Every line is synced before the next is written, so only the last can be torn or unsynced.
    Damage before a whole line is old and stays.
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
    handle = disk.open_append(folder, paths.TIMELINE)
    try:
        if keep < len(data):
            disk.truncate(handle, keep)
        if lines:
            disk.overwrite(handle, keep - len(lines[-1]), lines[-1])
        disk.fsync(handle)
    finally:
        disk.close(handle)


def _unlink_twin(disk: Disk, folder: int) -> bool:
    """Remove the second name that an unfinished rewrite gave the present file.

    The check and the removal are not atomic. If another program replaces the first name between
    them, the second name was the file's last one, and the file is put back as a generation.

    Returns:
        Whether there was a second name, so that the rewrite did not take place.
    """
    past = past_generations(disk, folder)
    if not (past and _is_present(disk, folder, past[-1])):
        return False
    name = paths.generation_file(past[-1] + 1)
    handle = disk.open_read(folder, name)
    try:
        disk.unlink(folder, name)
        if disk.stat(handle).links == 0:
            _put_back(disk, folder, handle)
        disk.fsync(folder)
    finally:
        disk.close(handle)
    return True


def _put_back(disk: Disk, folder: int, handle: int) -> None:
    """Make a file without a name a generation; the folder is not synced."""
    fresh = disk.open_new(folder, paths.REWRITE)
    try:
        copy_all(disk, handle, fresh, Copy(0, 0, disk.stat(handle).size))
        disk.fsync(fresh)
    finally:
        disk.close(fresh)
    link_generation(disk, folder, paths.REWRITE)
    disk.unlink(folder, paths.REWRITE)


def _took_place(disk: Disk, folder: int, rewrite: TimelineEntry) -> bool:
    """Whether the rename of the last rewrite happened.

    In that case the old file has the generation's name, and the file after it begins with the new
    bytes; other programs may have appended to both. A rotation by another program has other bytes.
    """
    followed = paths.generation_file(rewrite.generation + 1)
    if disk.stat_name(folder, followed) is None:
        followed = paths.CONTEXT
    old = timeline.fingerprint_of(rewrite, "old")
    new = timeline.fingerprint_of(rewrite, "new")
    rotated = paths.generation_file(rewrite.generation)
    if disk.stat_name(folder, rotated) is not None and _was_open(disk, folder, rewrite.generation):
        return True
    return _begins_with(disk, folder, rotated, old) and _begins_with(disk, folder, followed, new)


def _was_open(disk: Disk, folder: int, generation: int) -> bool:
    """Whether the recovery point proves that a generation existed, whatever the files show now.

    An editor may have replaced the file since. The rewrite took place all the same and was
    acknowledged; if it were voided, a repeat of its command would apply it twice.
    """
    point = decode_recovery_point(read_file(disk, folder, paths.recovery_point_file(paths.CONTEXT)))
    return point is not None and point.generation >= generation


def _begins_with(disk: Disk, folder: int, name: str, expected: timeline.Fingerprint | None) -> bool:
    try:
        handle = disk.open_read(folder, name)
    except FileNotFoundError:
        return False
    try:
        if expected is None:
            return True
        size = expected[0]
        return disk.stat(handle).size >= size and fingerprint(disk, handle, size) == expected
    finally:
        disk.close(handle)


def _is_present(disk: Disk, folder: int, generation: int) -> bool:
    """Whether a past generation's name leads to the same file as `context.jsonl`."""
    old = disk.stat_name(folder, paths.generation_file(generation + 1))
    present = disk.stat_name(folder, paths.CONTEXT)
    return old is not None and present is not None and old.inode == present.inode
