"""Compression of files whose bytes do not change, and the way back.

1. The compressed file is written beside the plain one, synced, read back and compared. 2. A rename
gives it its name, which the folder's sync makes durable. 3. The plain file is removed.

The way back has the same steps. At every instant one of the two files is whole, and a reader takes
the plain one if there is one. Either has the modification time of the other.
"""

import errno
import zlib
from collections.abc import Iterator
from contextlib import suppress

from steno_protocol import compression, limits, paths
from stenod.store.disk import Disk
from stenod.store.handles import closing, expanded_blocks, write_all
from stenod.store.names import read_file, remove
from stenod.store.usage import BLOCK_BYTES


def compress_generation(disk: Disk, folder: int, generation: int) -> int:
    """Compress a past generation; see `compress_file`."""
    return compress_file(disk, folder, paths.generation_file(generation + 1))


def compress_file(disk: Disk, folder: int, name: str) -> int:
    """Compress a file that nobody writes; it is durable on return.

    Returns:
        The bytes that it takes less, in whole blocks; 0 if it stays plain, because it would take
        as many.

    Raises:
        BadRequest: nothing that is installed can compress it.
        OSError: it stays plain, or both files are there. It also stays plain if another program
            changed it meanwhile.
    """
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


def expand_file(disk: Disk, folder: int, name: str) -> None:
    """Give a compressed file its plain form again, durable on return; it may lack a compressed one.

    Raises:
        Contradicted: a plain form beside it was changed since, and has other bytes.
        OSError: the compressed form is damaged, nothing that is installed can expand it, or the
            disk failed; both may be there.
    """
    packed = paths.compressed_file(name)
    whole, plain = disk.stat_name(folder, packed), disk.stat_name(folder, name)
    if whole is None:
        return
    if plain is None:
        _expand(disk, folder, packed, name)
    elif _begins_durably_with(disk, folder, name, packed):
        pass
    elif plain.modified_s == whole.modified_s:
        # Nobody changed it: a power cut took bytes of it that an earlier sync had failed to write.
        _expand(disk, folder, packed, name)
    else:
        raise compression.Contradicted(
            errno.EEXIST,
            f"an older version, which does not read {packed}, began another {name} beside it: keep"
            " a copy of both, then remove one of them",
            packed,
        )
    # Without its name on the disk, a power cut could leave neither of them.
    disk.fsync(folder)
    disk.unlink(folder, packed)
    disk.fsync(folder)


def _expand(disk: Disk, folder: int, packed: str, name: str) -> None:
    fresh = f"{name}.new"
    remove(disk, folder, fresh)
    try:
        with (
            closing(disk, disk.open_read(folder, packed)) as source,
            closing(disk, disk.open_new(folder, fresh)) as handle,
        ):
            for block in expanded_blocks(disk, source, packed):
                write_all(disk, handle, block)
            disk.copy_time(source, handle)
            disk.fsync(handle)
    except Exception:
        with suppress(OSError):
            remove(disk, folder, fresh)
        raise
    disk.rename(folder, fresh, name)


def _begins_durably_with(disk: Disk, folder: int, name: str, packed: str) -> bool:
    """Whether a plain file begins with the bytes of the compressed one, which a crash left.

    The plain file is synced: it may also be one that `zstd -d` wrote.
    """
    head = compression.plain_head(read_file(disk, folder, packed, compression.HEAD_BYTES))
    with closing(disk, disk.open_read(folder, name)) as plain:
        if head is None or disk.stat(plain).size < head.size:
            return False
        crc = 0
        for block in _blocks(disk, plain, head.size):
            crc = zlib.crc32(block, crc)
        disk.fsync(plain)
        return crc == head.crc


def _write(disk: Disk, folder: int, plain: int, size: int, fresh: str) -> int:
    """Write the compressed file, and return the bytes that it takes less."""
    crc = 0
    for block in _blocks(disk, plain, size):
        crc = zlib.crc32(block, crc)
    with closing(disk, disk.open_new(folder, fresh)) as handle:
        for block in compression.compressed(_blocks(disk, plain, size), size, crc):
            write_all(disk, handle, block)
        disk.copy_time(plain, handle)
        disk.fsync(handle)
        for _ in expanded_blocks(disk, handle, fresh):
            pass
        return _in_blocks(size) - _in_blocks(disk.stat(handle).size)


def _blocks(disk: Disk, handle: int, size: int) -> Iterator[bytes]:
    for offset in range(0, size, limits.COPY_BYTES):
        yield disk.read(handle, min(limits.COPY_BYTES, size - offset), offset)


def _in_blocks(size: int) -> int:
    return -(-size // BLOCK_BYTES) * BLOCK_BYTES
