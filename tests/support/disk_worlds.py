"""The surroundings of a disk: a folder and another program."""

import os
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Protocol

from steno_protocol import paths
from stenod.store.disk import Disk
from stenod.store.posix import PosixDisk
from stenod_cluster.disk import ReplicatedDisk
from support.memory_journal import MemoryStream
from support.replicated import Host
from support.simulated_disk import SimulatedDisk


class DiskWorld(Protocol):
    """A disk, the path of an empty folder on it, and a program that knows nothing of us."""

    disk: Disk
    path: str

    def put(self, name: str, data: bytes) -> None:
        """Put a file with a new inode at a name."""
        ...

    def append(self, name: str, data: bytes) -> None:
        """Append to a file."""
        ...

    def content(self, name: str) -> bytes:
        """The contents of a file for any process."""
        ...

    def put_folder(self, name: str) -> None:
        """Make a folder."""
        ...

    def put_symlink(self, name: str) -> None:
        """Make a symbolic link that leads to the file `target`."""
        ...

    def put_fifo(self, name: str) -> None:
        """Make a FIFO."""
        ...


def close_handles_below(folder: Path) -> None:
    """Close the files that a test left open in a temporary folder, and free their handles."""
    for link in list(Path("/proc/self/fd").iterdir()):
        try:
            target = link.readlink()
        except FileNotFoundError:
            continue  # the handle by which this very list was read
        if target.is_relative_to(folder):
            os.close(int(link.name))


class RealWorld:
    """A temporary folder of the machine."""

    def __init__(self, folder: Path) -> None:
        self.disk: Disk = PosixDisk()
        self.path = str(folder)

    def put(self, name: str, data: bytes) -> None:
        """See `DiskWorld`."""
        aside = self._at("aside")
        aside.write_bytes(data)
        aside.rename(self._at(name))

    def append(self, name: str, data: bytes) -> None:
        """See `DiskWorld`."""
        with self._at(name).open("ab") as file:
            file.write(data)

    def content(self, name: str) -> bytes:
        """See `DiskWorld`."""
        return self._at(name).read_bytes()

    def put_folder(self, name: str) -> None:
        """See `DiskWorld`."""
        self._at(name).mkdir()

    def put_symlink(self, name: str) -> None:
        """See `DiskWorld`."""
        self._at(name).symlink_to("target")

    def put_fifo(self, name: str) -> None:
        """See `DiskWorld`."""
        os.mkfifo(self._at(name))

    def _at(self, name: str) -> Path:
        return Path(self.path) / name


class SimulatedWorld:
    """A folder of a simulated disk."""

    def __init__(self, disk: SimulatedDisk) -> None:
        self.disk: Disk = disk
        self.path = "/home/steno"
        self._foreign = disk.foreign
        self._content = disk.content
        self._foreign.make_folder(self.path)

    def put(self, name: str, data: bytes) -> None:
        """See `DiskWorld`."""
        self._foreign.replace(f"{self.path}/{name}", data)

    def append(self, name: str, data: bytes) -> None:
        """See `DiskWorld`."""
        self._foreign.append(f"{self.path}/{name}", data)

    def content(self, name: str) -> bytes:
        """See `DiskWorld`."""
        return self._content(f"{self.path}/{name}")

    def put_folder(self, name: str) -> None:
        """See `DiskWorld`."""
        self._foreign.make_folder(f"{self.path}/{name}")

    def put_symlink(self, name: str) -> None:
        """See `DiskWorld`."""
        self._foreign.put_symlink(f"{self.path}/{name}")

    def put_fifo(self, name: str) -> None:
        """See `DiskWorld`."""
        self._foreign.put_fifo(f"{self.path}/{name}")


class _Reached(ReplicatedDisk):
    """The replicated disk, which reaches a session by its path as the daemon does by its tree."""

    def open_root(self, path: str, *, create: bool = False) -> int:
        """See `Disk`."""
        below = path.removeprefix(self._tree).strip("/")
        handle = super().open_root(self._tree)
        for segment in below.split("/"):
            parent = handle
            try:
                handle = self.open_folder(parent, segment, create=create)
            finally:
                self.close(parent)
        return handle

    def names(self, folder: int) -> list[str]:
        """See `Disk`; without the mark of what the journal has, which sessions pass over."""
        return [name for name in super().names(folder) if name != paths.JOURNAL_MARK]


class ReplicatedWorld:
    """A session's folder on a replicated disk, over another world and a journal in memory.

    The other program is one of the owner's machine. `check_other_host` compares the files with
    those of a host that takes the session over.
    """

    def __init__(self, below: RealWorld | SimulatedWorld) -> None:
        self.path = below.path
        self.put, self.append, self.content = below.put, below.append, below.content
        self.put_folder, self.put_symlink = below.put_folder, below.put_symlink
        self.put_fifo = below.put_fifo
        self._stream = MemoryStream()
        tree, _, self._session = below.path.rpartition("/")
        self._host = Host(self._stream, "one", tree, below.disk)
        self.disk: Disk = _Reached(below.disk, tree, self._host.ownership)

    def check_other_host(self) -> None:
        """Publish everything, and compare the names and files of the journal with another host's.

        Raises:
            AssertionError: they differ.
        """
        owned = self._host.ownership.found(self._session)
        if owned is None:
            return
        self._publish(list(owned.manifest.names))
        ours = {name: self._content(self._host, name) for name in owned.manifest.names}
        other = Host(self._stream, "two", "/other/sessions", SimulatedDisk())
        other.now += 100.0
        taken = other.ownership.acquire(self._session)
        names = taken.manifest.names if taken is not None else ()
        theirs = {name: self._content(other, name) for name in names}
        assert theirs == ours

    def _publish(self, names: Sequence[str]) -> None:
        folder = self.disk.open_root(self.path)
        for name in names:
            # Another program may have put anything at a name.
            with suppress(FileNotFoundError, PermissionError):
                handle = self.disk.open_append(folder, name)
                self.disk.fdatasync(handle)
                self.disk.close(handle)
        self.disk.fsync(folder)
        self.disk.close(folder)

    def _content(self, host: Host, name: str) -> bytes:
        with host.ownership.opened(self._session) as folder:
            handle = host.local.open_read(folder, name)
            try:
                return host.local.read(handle, host.local.stat(handle).size, 0)
            finally:
                host.local.close(handle)
