"""The number of records of a closed session, from its recovery point and the bytes behind it.

Everything here blocks and changes nothing.
"""

from contextlib import suppress

from steno_protocol import limits, paths
from steno_protocol.errors import StenoError
from stenod.core.recovery_point import decode_recovery_point
from stenod.sessions.session_folders import SessionFolders
from stenod.store.handles import closing
from stenod.store.names import read_file


class RecordCounter:
    """Counts the records of sessions for one reply, within the bounds of the bytes to read.

    Args:
        folders: the folders of the sessions.
    """

    def __init__(self, folders: SessionFolders) -> None:
        self._disk = folders.disk
        self._folders = folders
        self._left_bytes = limits.COUNTED_TOGETHER_BYTES_MAX

    def count(self, session: str) -> int | None:
        """Return the number of a session's lines; None if it takes too many bytes, or is gone."""
        disk = self._disk
        with (
            suppress(OSError, StenoError),
            self._folders.opened(self._folders.place(session)) as folder,
            closing(disk, disk.open_read(folder, paths.CONTEXT)) as handle,
        ):
            return self._counted(folder, handle)
        return None

    def _counted(self, folder: int, handle: int) -> int | None:
        found = self._disk.stat(handle)
        mark = decode_recovery_point(read_file(self._disk, folder, paths.MARK))
        lines, start = 0, 0
        if mark is not None and mark.inode == found.inode and mark.bytes <= found.size:
            lines, start = mark.lines, mark.bytes
        if found.size - start > min(limits.COUNTED_BYTES_MAX, self._left_bytes):
            return None
        self._left_bytes -= found.size - start
        return lines + self._disk.read(handle, found.size - start, start).count(b"\n")
