"""The present file of a session: made durable, repaired and replayed."""

from steno_protocol import limits
from steno_protocol.checksums import BlockChecksums
from steno_protocol.timeline_entries import TimelineEntry
from stenod.core.recovery_point import RecoveryPoint
from stenod.core.replay import Replay
from stenod.recovery.opened import Opening
from stenod.recovery.tail_repair import FileEnd


def recover_file(
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
