"""Verification of a session's files, which changes nothing."""

from collections.abc import Mapping, Sequence
from contextlib import suppress

from steno_protocol import paths
from steno_protocol.checks import Check, Facts, check_session
from steno_protocol.replies import Verification
from stenod.recovery import stream_opening
from stenod.store.disk import Disk
from stenod.store.failed_syncs import FailedSyncs
from stenod.store.handles import closing, open_file
from stenod.store.log import View
from stenod.store.names import stat_file, streams_among


class DiskFolder:
    """A session's open folder for a check.

    Only one of its files is open at a time, because all sessions share the daemon's handles.

    Args:
        disk: the disk it lies on.
        folder: its open folder.
        names: the names in it.
        views: the readable bytes of files that may be written meanwhile.
        is_live: those files are being written, so that bytes behind the views are incomplete.
    """

    def __init__(
        self,
        disk: Disk,
        folder: int,
        names: Sequence[str],
        views: Mapping[str, View],
        is_live: bool,
    ) -> None:
        self._disk = disk
        self._folder = folder
        self._names = names
        self._views = views
        self._is_live = is_live
        self._opened: tuple[str, int] | None = None

    def names(self, below: str = "") -> Sequence[str]:
        """List the names in it, or in its folder `below`; empty if that does not exist."""
        if not below:
            return self._names
        try:
            inner = self._disk.open_folder(self._folder, below)
        except FileNotFoundError:
            return []
        with closing(self._disk, inner):
            return self._disk.names(inner)

    def facts(self, name: str) -> Facts | None:
        """Return size and inode of a file, None if it does not exist."""
        found = stat_file(self._disk, self._folder, name)
        if found is None:
            return None
        view = self._views.get(name)
        size = view.size if view is not None and self._is_live else found.size
        return Facts(size, found.inode)

    def read(self, name: str, size: int, offset: int) -> bytes:
        """Read up to `size` bytes of a file from `offset`."""
        view = self._views.get(name)
        # Bytes behind the view are checked, but never sent to a client.
        if view is not None and (offset < view.size or not size):
            return view.read(size, offset)
        if self._opened is None or self._opened[0] != name:
            self.close()
            self._opened = (name, open_file(self._disk, self._folder, name))
        return self._disk.read(self._opened[1], size, offset)

    def close(self) -> None:
        """Close the open file in it."""
        opened, self._opened = self._opened, None
        if opened is not None:
            self._disk.close(opened[1])


def verify(
    disk: Disk,
    folder: int,
    session: str,
    views: Mapping[str, View],
    *,
    live: int | None,
    failed_syncs: FailedSyncs,
    names: Sequence[str] | None = None,
) -> Verification:
    """Check all files of a session.

    Args:
        disk: the disk it lies on.
        folder: its open folder.
        session: its id.
        views: the readable bytes of the present generation, of the wire file and of the open
            streams, by the name of the file.
        live: the present generation of a session that is open for writing.
        failed_syncs: the files with a failed sync.
        names: the names in the folder, if the caller listed them.

    Raises:
        OSError: the folder cannot be read, or the process has no handle or memory left. An
            unreadable file is a finding.
    """
    listed = disk.names(folder) if names is None else names
    names = list(dict.fromkeys(map(paths.plain_file, listed)))
    files = DiskFolder(disk, folder, names, views, live is not None)
    try:
        check = Check()
        sizes = {name: view.size for name, view in views.items()}
        for stream in streams_among(names):
            name = paths.stream_file(stream)
            if name not in sizes:
                _measure(disk, folder, name, failed_syncs, sizes)
        # Past generations never change, and only the context is rewritten.
        repairable = frozenset({paths.CONTEXT, paths.STATE})
        generation = check_session(check, files, sizes=sizes, live=live, repairable=repairable)
    finally:
        files.close()
    return check.report(session, generation)


def _measure(
    disk: Disk, folder: int, name: str, failed_syncs: FailedSyncs, sizes: dict[str, int]
) -> None:
    """Add the whole bytes of a closed stream; an unreadable one is checked as a whole."""
    with suppress(OSError), closing(disk, disk.open_read(folder, name)) as handle:
        found = stream_opening.measure_stream(disk, folder, handle, name, failed_syncs)
        sizes[name] = found.bytes
