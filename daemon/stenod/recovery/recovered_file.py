"""The present file of a session: made durable, repaired and replayed."""

import msgspec

from steno_protocol import limits
from steno_protocol.checksums import BlockChecksums
from steno_protocol.replies import RepairedFile
from steno_protocol.timeline_entries import TimelineEntry
from stenod.core.recovery_point import RecoveryPoint
from stenod.core.replay import Replay
from stenod.recovery.opened import Opening
from stenod.recovery.tail_repair import FileEnd


class RecoveredFile(msgspec.Struct, frozen=True):
    """A file whose bytes are durable and whole.

    Attributes:
        size: its size in bytes.
        replay: its replayed lines.
        recovery_point: the point that the replay began from; None if there is no valid one.
        checksums: the checksums of the whole file.
        repaired: the repairs of its end.
    """

    size: int
    replay: Replay
    recovery_point: RecoveryPoint | None
    checksums: BlockChecksums
    repaired: tuple[RepairedFile, ...]


def recover_file(end: FileEnd, opening: Opening, entries: list[TimelineEntry]) -> RecoveredFile:
    """Make a file durable, repair its end, and replay it."""
    recovery_point = end.recovery_point()
    is_fresh = end.is_fresh(opening.now, shared=opening.shared)
    if is_fresh:
        end.check_not_being_written(recovery_point)
    durable = end.make_durable(_durable_size(end, opening, recovery_point, entries))
    if is_fresh:
        end.check_not_being_written(recovery_point)
    size, repaired = end.repair(recovery_point, opening.now, entries, durable=durable)
    checksums = end.recovered_checksums(recovery_point)
    replay = end.replay(recovery_point, size, checksums)
    return RecoveredFile(size, replay, recovery_point, checksums, repaired)


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
