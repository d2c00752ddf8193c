"""The surroundings of a disk: a folder and another program."""

import os
from pathlib import Path
from typing import Protocol

from stenod.store.disk import Disk
from stenod.store.posix import PosixDisk
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
