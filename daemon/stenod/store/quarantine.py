"""Quarantine of bytes that a repair cuts from a file."""

import zlib

from steno_protocol import limits, paths
from stenod.store.disk import Disk
from stenod.store.handles import closing, write_new
from stenod.store.names import remove


def quarantine(disk: Disk, folder: int, name: str, offset: int, data: bytes) -> str:
    """Copy bytes that are about to be cut to a file named for their place; durable on return.

    The same damage is kept once, and the oldest of more than `QUARANTINE_FILES_MAX` is removed.

    Returns:
        The name of the file in the quarantine folder.
    """
    kept = f"{name}.at-{offset}.crc-{zlib.crc32(data):08x}"
    with closing(disk, disk.open_folder(folder, paths.QUARANTINE, create=True)) as nest:
        # Written again even if it exists: after a failed sync the page cache shows bytes that no
        # later sync writes.
        remove(disk, nest, kept)
        _drop_oldest(disk, nest)
        write_new(disk, nest, kept, data)
        disk.fsync(nest)
    return kept


def _drop_oldest(disk: Disk, nest: int) -> None:
    names = disk.names(nest)
    aged: list[tuple[float, str]] = []
    for name in names:
        found = disk.stat_name(nest, name)
        if found is not None:
            aged.append((found.modified_s, name))
    for _, name in sorted(aged)[: max(0, len(aged) - limits.QUARANTINE_FILES_MAX + 1)]:
        disk.unlink(nest, name)
