"""kimi-cli's file of work directories, read where it lies; everything here blocks."""

from steno_protocol import limits
from steno_protocol.work_dirs import KIMI_FILE, WorkDir, decode_work_dirs
from stenod.store.disk import Disk


def read(disk: Disk, folder: int) -> dict[str, WorkDir]:
    """The work directories that a folder's `kimi.json` names, by the folders of their sessions.

    A file that is not there, damaged or too large says nothing: it is another program's, and a
    list of sessions is whole without it.
    """
    try:
        handle = disk.open_read(folder, KIMI_FILE)
    except OSError:
        return {}
    try:
        return decode_work_dirs(disk.read(handle, limits.STATE_BYTES_MAX, 0))
    except OSError:
        return {}
    finally:
        disk.close(handle)


def read_at(disk: Disk, path: str) -> dict[str, WorkDir]:
    """As `read`, of a folder that is named by its path."""
    try:
        folder = disk.open_root(path)
    except OSError:
        return {}
    try:
        return read(disk, folder)
    finally:
        disk.close(folder)
