"""Compression of past generations, whose bytes never change.

1. The compressed file is written beside the plain one, synced, read back and compared. 2. A rename
gives it its name, which the folder's sync makes durable. 3. The plain file is removed.

At every instant one of the two files is whole. A reader takes the plain one if there is one.
"""

import errno
import zlib
from collections.abc import Iterator
from contextlib import suppress

from steno_protocol import compression, limits, paths
from stenod.store.disk import Disk
from stenod.store.handles import closing, write_all
from stenod.store.names import remove
from stenod.store.usage import BLOCK_BYTES


def compress_generation(disk: Disk, folder: int, generation: int) -> int:
    """Compress a past generation; it is durable on return.

    Returns:
        The bytes that it takes less, in whole blocks; 0 if it stays plain, because it would take
        as many.

    Raises:
        BadRequest: nothing that is installed can compress it.
        OSError: it stays plain, or both files are there. It also stays plain if another program
            changed it meanwhile.
    """
    name = paths.generation_file(generation + 1)
    packed = paths.compressed_file(name)
    fresh = f"{packed}.new"
    remove(disk, folder, fresh)
    try:
        with closing(disk, disk.open_read(folder, name)) as plain:
            found = disk.stat(plain)
            freed = _write(disk, folder, plain, found.size, fresh)  # 1.
        if not disk.has(folder, name, found.inode, found.size):
            raise OSError(errno.EBUSY, "another program changed the file", name)
    except Exception:
        with suppress(OSError):
            remove(disk, folder, fresh)
        raise
    if freed <= 0:
        disk.unlink(folder, fresh)
        return 0
    disk.rename(folder, fresh, packed)  # 2.
    disk.fsync(folder)
    disk.unlink(folder, name)  # 3.
    disk.fsync(folder)
    return freed


def _write(disk: Disk, folder: int, plain: int, size: int, fresh: str) -> int:
    """Write the compressed file, and return the bytes that it takes less."""
    crc = 0
    for block in _blocks(disk, plain, size):
        crc = zlib.crc32(block, crc)
    with closing(disk, disk.open_new(folder, fresh)) as handle:
        for block in compression.compressed(_blocks(disk, plain, size), size, crc):
            write_all(disk, handle, block)
        disk.fsync(handle)
        for _ in compression.expanded(lambda count, at: disk.read(handle, count, at), fresh):
            pass
        return _in_blocks(size) - _in_blocks(disk.stat(handle).size)


def _blocks(disk: Disk, handle: int, size: int) -> Iterator[bytes]:
    for offset in range(0, size, limits.COPY_BYTES):
        yield disk.read(handle, min(limits.COPY_BYTES, size - offset), offset)


def _in_blocks(size: int) -> int:
    return -(-size // BLOCK_BYTES) * BLOCK_BYTES
