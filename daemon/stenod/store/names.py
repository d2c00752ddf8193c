"""Files and generations of a session's folder, by name."""

import contextlib
import errno
import os
from collections.abc import Generator, Iterable

import msgspec

from steno_protocol import compression, limits, paths
from steno_protocol.paths import DeletedStream
from stenod.store.disk import Disk, FileStat
from stenod.store.handles import closing


def read_file(disk: Disk, folder: int, name: str, bytes_max: int | None = None) -> bytes:
    """Read a small file, or its first bytes; empty if it does not exist."""
    try:
        handle = disk.open_read(folder, name)
    except FileNotFoundError:
        return b""
    with closing(disk, handle):
        return disk.read(handle, disk.stat(handle).size if bytes_max is None else bytes_max, 0)


def past_generations(disk: Disk, folder: int) -> list[int]:
    """List the past generations, oldest first."""
    return generations_among(disk.names(folder))


def generations_among(names: Iterable[str]) -> list[int]:
    """Return the past generations among the names in a folder, oldest first."""
    numbers = map(paths.generation_of, names)
    # A file that is being compressed has both names.
    return sorted({number - 1 for number in numbers if number is not None})


def streams(disk: Disk, folder: int) -> list[str]:
    """List the names of a session's streams, ordered."""
    return streams_among(disk.names(folder))


def streams_among(names: Iterable[str]) -> list[str]:
    """Return the names of the streams among the names in a folder, ordered."""
    found = map(paths.stored_stream_of, names)
    # A file that is being compressed has both names.
    return sorted({stream for stream in found if stream is not None})


def deleted_streams(disk: Disk, folder: int, stream: str | None = None) -> list[DeletedStream]:
    """List a session's deleted streams in order of their deletion; `stream` names one of them."""
    found = _named_deletions(disk, folder, stream)
    return [each for each in found if not _is_void(disk, folder, each)]


def void_deletions(disk: Disk, folder: int, stream: str) -> list[DeletedStream]:
    """List the deletions of a stream that were interrupted before its successor took its name."""
    found = _named_deletions(disk, folder, stream)
    return [each for each in found if _is_void(disk, folder, each)]


def _named_deletions(disk: Disk, folder: int, stream: str | None) -> list[DeletedStream]:
    found = (paths.deleted_stream_of(name) for name in disk.names(folder))
    return sorted(
        (each for each in found if each is not None and stream in {None, each.stream}),
        key=lambda each: (each.stream, each.number),
    )


def _is_void(disk: Disk, folder: int, deleted: DeletedStream) -> bool:
    """True if the file still has the stream's own name, too."""
    named = disk.stat_name(folder, deleted.file)
    if named is None or named.links == 1:
        return False
    present = disk.stat_name(folder, paths.stream_file(deleted.stream))
    return present is not None and present.inode == named.inode


def stat_generation(disk: Disk, folder: int, generation: int) -> FileStat:
    """Return the stat of a past generation; FileNotFoundError if it does not exist.

    That of a compressed one has the size of the plain file.
    """
    name = paths.generation_file(generation + 1)
    return _there(stat_file(disk, folder, name), name)


def stat_stored(disk: Disk, folder: int, generation: int) -> FileStat:
    """Return the stat of a past generation's file as it is stored, maybe compressed."""
    name = paths.generation_file(generation + 1)
    return _there(stat_stored_file(disk, folder, name), name)


def stat_stored_file(disk: Disk, folder: int, name: str) -> FileStat | None:
    """Return the stat of a session's file as it is stored, maybe compressed; None without one."""
    found = disk.stat_name(folder, name)
    if found is not None or not paths.is_compressible(name):
        return found
    # A file that is expanded meanwhile gets its plain name before it loses the other one.
    packed = disk.stat_name(folder, paths.compressed_file(name))
    return packed or disk.stat_name(folder, name)


def _there(found: FileStat | None, name: str) -> FileStat:
    if found is None:
        raise FileNotFoundError(f"there is no {name}")
    return found


def stat_file(disk: Disk, folder: int, name: str) -> FileStat | None:
    """Return the stat of a session's file; None if it does not exist, compressed or not."""
    found = disk.stat_name(folder, name)
    if found is not None or not paths.is_compressible(name):
        return found
    packed = paths.compressed_file(name)
    found = disk.stat_name(folder, packed)
    if found is None:
        return disk.stat_name(folder, name)
    size = compression.plain_size(read_file(disk, folder, packed, compression.HEAD_BYTES))
    # Without a whole head it is damaged, which a reader reports.
    return found if size is None else msgspec.structs.replace(found, size=size)


def remove_generation(disk: Disk, folder: int, generation: int) -> None:
    """Remove a past generation, compressed or not; the folder is not synced."""
    name = paths.generation_file(generation + 1)
    remove(disk, folder, paths.compressed_file(name))
    remove(disk, folder, name)


def link_generation(disk: Disk, folder: int, name: str) -> None:
    """Give a file the next free generation's name, too; another program may take it first."""
    for _ in range(limits.MEND_LOOKS_MAX):
        past = past_generations(disk, folder)
        free = paths.generation_file(past[-1] + 2 if past else 1)
        with contextlib.suppress(FileExistsError):
            disk.link(folder, name, free)
            return
    raise OSError(errno.EBUSY, "another program keeps rotating", name)


def remove(disk: Disk, folder: int, name: str) -> None:
    """Remove a file if it exists."""
    if disk.stat_name(folder, name) is not None:
        disk.unlink(folder, name)


@contextlib.contextmanager
def replacing(disk: Disk, folder: int, name: str) -> Generator[int]:
    """Give a small file new content in one step; it is not synced.

    The `with` block writes the content into the open file that it gets. After an error in the block
    the old file is still there.
    """
    fresh = f"{name}.new"
    remove(disk, folder, fresh)
    with closing(disk, disk.open_new(folder, fresh)) as handle:
        yield handle
    disk.rename(folder, fresh, name)


def remove_all(disk: Disk, folder: int, depth: int = limits.FOLDER_DEPTH_MAX) -> None:
    """Empty an open folder without following links; after an OSError any part may be gone."""
    if depth == 0:
        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), "its folders are nested too deep")
    for name in disk.names(folder):
        try:
            below = disk.open_folder(folder, name)
        except NotADirectoryError:
            disk.unlink(folder, name)
            continue
        with closing(disk, below):
            remove_all(disk, below, depth - 1)
        disk.remove_folder(folder, name)
