"""Closed streams that a rule of retention compresses, and their opening.

A stream is expanded when it is opened, so only reads of closed sessions meet the compressed form.
Its recovery point goes with it from file to file.
"""

from contextlib import suppress

from steno_protocol import paths
from stenod.core.recovery_point import at_inode, decode_recovery_point
from stenod.recovery.tail_repair import FileEnd
from stenod.store.compressing import compress_file, expand_file
from stenod.store.disk import Disk, FileStat
from stenod.store.failed_syncs import FailedSyncs
from stenod.store.handles import closing, write_all
from stenod.store.names import read_file, replacing, streams
from stenod.store.usage import BLOCK_BYTES


def compressible_streams(
    disk: Disk, folder: int, before: float, failed_syncs: FailedSyncs
) -> list[tuple[str, FileStat]]:
    """Return the files of a closed session's streams that may be compressed.

    These stay plain: one with a second name, which would keep its blocks; one whose end an opening
    would repair, because nothing repairs a compressed one.

    Args:
        disk: the disk of the session.
        folder: its open folder.
        before: those that were changed before this Unix time in seconds.
        failed_syncs: the files with a failed sync.
    """
    found: list[tuple[str, FileStat]] = []
    for name in map(paths.stream_file, streams(disk, folder)):
        stat = disk.stat_name(folder, name)
        if (
            stat is not None
            and stat.modified_s < before
            and stat.size > BLOCK_BYTES
            and stat.links == 1
            and not failed_syncs.has(stat)
            and _is_whole(disk, folder, name, failed_syncs)
        ):
            found.append((name, stat))
    return found


def _is_whole(disk: Disk, folder: int, name: str, failed_syncs: FailedSyncs) -> bool:
    with closing(disk, disk.open_read(folder, name)) as handle:
        # So that a power cut leaves its bytes and its time, while both forms are there.
        with failed_syncs.syncing(disk.stat(handle)):
            disk.fsync(handle)
        end = FileEnd(disk, folder, handle, name, 0, "", "", failed_syncs)
        # Readers of the compressed form have no recovery point either.
        return end.readable_size(None) == end.size


def compress_stream(disk: Disk, folder: int, name: str) -> int:
    """Compress the file of a closed stream, which nobody may open meanwhile.

    Returns:
        The bytes that it takes less; 0 if it stays plain.

    Raises:
        BadRequest, OSError: as `compress_file`, and as `expand_file` if both forms are there.
    """
    # A compressed form that has other bytes must not be replaced.
    expand_file(disk, folder, name)
    plain = disk.stat_name(folder, name)
    freed = compress_file(disk, folder, name)
    _follow(disk, folder, name, plain, disk.stat_name(folder, paths.compressed_file(name)))
    return freed


def expand_stream(disk: Disk, folder: int, name: str) -> None:
    """Give a stream its plain form before it is opened; raises as `expand_file`."""
    packed = disk.stat_name(folder, paths.compressed_file(name))
    if packed is not None:
        expand_file(disk, folder, name)
        _follow(disk, folder, name, packed, disk.stat_name(folder, name))


def _follow(disk: Disk, folder: int, name: str, old: FileStat | None, new: FileStat | None) -> None:
    """Let the recovery point of one form be that of the other; it may be lost."""
    point_file = paths.recovery_point_file(name)
    data = read_file(disk, folder, point_file)
    point = decode_recovery_point(data)
    if old is None or new is None or point is None or point.inode != old.inode:
        return
    moved = at_inode(data, new.inode)
    assert moved is not None
    with suppress(OSError), replacing(disk, folder, point_file) as handle:
        write_all(disk, handle, moved)
