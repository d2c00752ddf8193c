"""What a crash left open between a session's files: torn timelines, rewrites that were cut short.

Settled before anything is believed; what one file's end needs is `mending`.
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
    """Repair the timeline's own tail, and take back a rewrite that did not take place."""
    remove(disk, folder, paths.REWRITE)
    _mend_timeline(disk, folder)
    is_undone = _unlink_twin(disk, folder)
    data = read_file(disk, folder, paths.TIMELINE)
    last = timeline.in_doubt(data)
    if last is None or (not is_undone and _took_place(disk, folder, last)):
        return timeline.decode(data)
    line = timeline.encode(timeline.voided(last))
    jsonl.append_timeline(disk, folder, line)
    return timeline.decode(data + line)


def present_generation(disk: Disk, folder: int) -> int:
    """The generation that `context.jsonl` is."""
    past = past_generations(disk, folder)
    if past and _is_present(disk, folder, past[-1]):
        past.pop()
    return past[-1] + 1 if past else 0


def prove_left_behind(
    disk: Disk, folder: int, entries: list[TimelineEntry], present: int, failed_syncs: FailedSyncs
) -> None:
    """Make generations durable that were left behind since a mark: what is in them is believed.

    A daemon that was killed, or whose sync failed, leaves unsynced lines; then another
    program moves the file away. And it can append to one until a rewrite's very instant. An older
    one is in doubt if a read of it could not be synced.
    """
    mark = decode_recovery_point(read_file(disk, folder, paths.recovery_point_file(paths.CONTEXT)))
    latest = max((entry.generation for entry in entries), default=present)
    since = max(latest - 1, mark.generation if mark is not None else 0)
    for generation in range(0 if failed_syncs else since, present):
        if generation < since:
            named = disk.stat_name(folder, paths.generation_file(generation + 1))
            if named is None or not failed_syncs.has(named):
                continue
        # What cannot be opened for writing is none that a writer of ours left unsynced.
        with contextlib.suppress(FileNotFoundError, PermissionError):
            _prove(disk, folder, generation, mark, failed_syncs)


def _prove(
    disk: Disk, folder: int, generation: int, mark: RecoveryPoint | None, failed_syncs: FailedSyncs
) -> None:
    handle = disk.open_append(folder, paths.generation_file(generation + 1))
    try:
        found = disk.stat(handle)
        is_marked = mark is not None and (mark.generation, mark.inode) == (generation, found.inode)
        start = mark.bytes if mark is not None and is_marked else 0
        if not failed_syncs.has(found):
            start = max(start, found.size - limits.UNPROVEN_BYTES_MAX)
        write_again(disk, handle, start, found.size)
        with failed_syncs.syncing(found):
            disk.fsync(handle)
        failed_syncs.dispel(found)
    finally:
        disk.close(handle)


def _mend_timeline(disk: Disk, folder: int) -> None:
    """Cut what is torn, and make durable what is left before it is believed.

    Every line is synced before the next, so only the last can be torn or unproven. Damage before a
    whole line is old: it stays where it is.
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
    """Take back the second name that a rewrite gave the present file before it was cut short.

    No look is part of the removal. If another program puts its file in the place of the first name
    between the two, the second was the last one, and what had it is kept as a generation.

    Returns whether there was one: then the rewrite did not take place.
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
    """Make a generation of a file that has no name; the folder is not synced."""
    fresh = disk.open_new(folder, paths.REWRITE)
    try:
        copy_all(disk, handle, fresh, Copy(0, 0, disk.stat(handle).size))
        disk.fsync(fresh)
    finally:
        disk.close(fresh)
    link_generation(disk, folder, paths.REWRITE)
    disk.unlink(folder, paths.REWRITE)


def _took_place(disk: Disk, folder: int, rewrite: TimelineEntry) -> bool:
    """Whether the last rewrite's rename happened.

    Then the old file has its number, and what followed it begins with the new one; both may have
    grown since, by other programs. A rotation by another program has other bytes.
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

    An editor puts what it likes in the place of a file. The rewrite that made the file took place
    all the same: it was answered, and taken back it would be done once more by a repeat.
    """
    mark = decode_recovery_point(read_file(disk, folder, paths.recovery_point_file(paths.CONTEXT)))
    return mark is not None and mark.generation >= generation


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
    """True when a past generation's file is the very file that is the present one."""
    old = disk.stat_name(folder, paths.generation_file(generation + 1))
    present = disk.stat_name(folder, paths.CONTEXT)
    return old is not None and present is not None and old.inode == present.inode
