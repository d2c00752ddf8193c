"""A session as it lies on the disk, read without a repair."""

from collections.abc import Sequence

import msgspec

from steno_protocol import checkpoint_ids, paths
from steno_protocol.context import ContextCounters
from steno_protocol.positions import Position
from steno_protocol.replies import Mail
from steno_protocol.timeline_entries import TimelineEntry
from stenod.core import dmail, timeline
from stenod.core.replay import Replay
from stenod.recovery import crash_recovery
from stenod.recovery.tail_repair import FileEnd
from stenod.store.disk import Disk
from stenod.store.failed_syncs import FailedSyncs
from stenod.store.names import read_file


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
    apply_checkpoint_floor(replay, entries, generation)
    return Inspection(
        size=size,
        head=Position(generation, replay.lines),
        counters=replay.counters,
        incarnation=timeline.incarnation_of(entries) or "",
        stamp=has_stamps(entries),
    )


def pending_mail(disk: Disk, folder: int) -> Mail | None:
    """Returns the pending D-Mail of a session; nothing is repaired."""
    entries = timeline.decode(read_file(disk, folder, paths.TIMELINE))
    return dmail.pending(entries, crash_recovery.present_generation(disk, folder))


def readable_size(
    disk: Disk, folder: int, handle: int, name: str, generation: int, failed_syncs: FailedSyncs
) -> int:
    """Returns the readable bytes of a session's file, without reading all of it.

    No reader gets lines that a power cut could lose: the file is synced first, unless it ends at
    its recovery point, which is written behind a sync, and was not changed since.

    Raises:
        Unproven: an earlier sync of the file failed, so a sync proves nothing.
    """
    found = disk.stat(handle)
    failed_syncs.refuse_unproven(found, name)
    end = FileEnd(disk, folder, handle, name, generation, "", "", failed_syncs)
    recovery_point = end.recovery_point()
    if recovery_point is not None and recovery_point.bytes == found.size:
        # Another program may have written the same bytes again, or others before the fingerprint.
        saved = disk.stat_name(folder, paths.recovery_point_file(name))
        if saved is not None and found.changed_s < saved.modified_s:
            return found.size
    failed_syncs.sync_to_read(disk, handle, name)
    return end.readable_size(recovery_point)


def apply_checkpoint_floor(replay: Replay, entries: list[TimelineEntry], generation: int) -> None:
    """Raise the next checkpoint's id to the first one that the last rewrite left free."""
    floor = checkpoint_ids.checkpoint_floor(entries, generation)
    replay.counters.n_checkpoints = max(replay.counters.n_checkpoints, floor)


def has_stamps(entries: Sequence[TimelineEntry]) -> bool:
    return all(entry.details.get("stamp", True) is not False for entry in entries)
