"""Files by their names in a session's folder."""

import contextlib
import errno

from steno_protocol import limits, paths
from stenod.store.disk import Disk, FileStat


def read_file(disk: Disk, folder: int, name: str) -> bytes:
    """A whole small file; empty if there is none."""
    try:
        handle = disk.open_read(folder, name)
    except FileNotFoundError:
        return b""
    try:
        return disk.read(handle, disk.stat(handle).size, 0)
    finally:
        disk.close(handle)


def past_generations(disk: Disk, folder: int) -> list[int]:
    """The generations that rewrites left behind, oldest first."""
    numbers = (paths.generation_of(name) for name in disk.names(folder))
    return sorted(number - 1 for number in numbers if number is not None)


def stat_generation(disk: Disk, folder: int, generation: int) -> FileStat:
    """What is known of a generation that was left behind; FileNotFoundError if there is none."""
    name = paths.generation_file(generation + 1)
    found = disk.stat_name(folder, name)
    if found is None:
        raise FileNotFoundError(f"there is no {name}")
    return found


def link_generation(disk: Disk, folder: int, name: str) -> None:
    """Give a file the next free name of a generation, too, which others may take first."""
    for _ in range(limits.MEND_LOOKS_MAX):
        past = past_generations(disk, folder)
        free = paths.generation_file(past[-1] + 2 if past else 1)
        with contextlib.suppress(FileExistsError):
            disk.link(folder, name, free)
            return
    raise OSError(errno.EBUSY, "another program keeps rotating", name)


def remove(disk: Disk, folder: int, name: str) -> None:
    """Remove a name if it is there."""
    if disk.stat_name(folder, name) is not None:
        disk.unlink(folder, name)
