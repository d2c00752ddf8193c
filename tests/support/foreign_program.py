"""Another program on the files of a simulated disk."""

from collections.abc import Callable
from typing import TYPE_CHECKING

from support.simulated_faults import Call
from support.simulated_inodes import Cut, File, FileKind, Named, Renamed, Unnamed, Written

if TYPE_CHECKING:
    from support.simulated_disk import SimulatedDisk


class ForeignProgram:
    """Changes of files by their paths, which are not among the disk's counted calls."""

    def __init__(self, disk: "SimulatedDisk") -> None:
        self._disk = disk

    def append(self, path: str, data: bytes) -> None:
        """Append to a file."""
        file = self._disk.file_at(path)
        file.change(Written(len(file.cached), data), self._disk.now_s)

    def overwrite(self, path: str, offset: int, data: bytes) -> None:
        """Put bytes into the middle of a file."""
        self._disk.file_at(path).change(Written(offset, data), self._disk.now_s)

    def truncate(self, path: str, size: int) -> None:
        """Cut a file."""
        self._disk.file_at(path).change(Cut(size), self._disk.now_s)

    def fail_sync(self, path: str) -> None:
        """Sync a file on a failing disk: only handles that are open now report the failure."""
        self._disk.file_at(path).fail_sync()

    def replace(self, path: str, data: bytes) -> None:
        """Put another file, with another inode, at a path; its folders are made."""
        file = self._put(path, "file")
        file.change(Written(0, data), self._disk.now_s)

    def delete(self, path: str) -> None:
        """Remove a name."""
        parent, _, name = path.rpartition("/")
        self._disk.folder_at(parent).change(Unnamed(name))

    def rename(self, path: str, new_name: str) -> None:
        """Rename a file within its folder."""
        parent, _, name = path.rpartition("/")
        node = self._disk.file_at(path)
        self._disk.folder_at(parent).change(Renamed(name, new_name, node))

    def link(self, path: str, new_name: str) -> None:
        """Give a file a second name in its folder."""
        parent, _, _ = path.rpartition("/")
        node = self._disk.file_at(path)
        self._disk.folder_at(parent).change(Named(new_name, node))

    def make_folder(self, path: str) -> None:
        """Make a folder and its parents."""
        self._disk.folder_at(path, create=True)

    def put_symlink(self, path: str) -> None:
        """Put a symbolic link there."""
        self._put(path, "symlink")

    def put_fifo(self, path: str) -> None:
        """Put a FIFO there."""
        self._put(path, "fifo")

    def put_of_another_user(self, path: str) -> None:
        """Put a file there that another user owns."""
        self._put(path, "foreign")

    def _put(self, path: str, kind: FileKind) -> File:
        parent, _, name = path.rpartition("/")
        file = self._disk.new_file(kind)
        self._disk.folder_at(parent, create=True).change(Named(name, file))
        return file


def before_call(
    disk: "SimulatedDisk", number: int, interfere: Callable[[], None]
) -> Callable[[], bool]:
    """Let another program act right before a call that changes the disk, or the one after it.

    Not right before a cut: no look at a file is part of the cut that follows it.

    Args:
        disk: the disk.
        number: how many calls are made before it.
        interfere: what the other program does, once.

    Returns:
        Ends it, and says whether the call came.
    """
    begin, target = disk._begin, len(disk.calls) + number
    has_come = False

    def counted(call: Call) -> int:
        nonlocal has_come
        is_due = len(disk.calls) >= target and call.method != "truncate"
        if is_due and not has_come:
            has_come = True
            interfere()
        return begin(call)

    def end() -> bool:
        vars(disk).pop("_begin")
        return has_come

    vars(disk)["_begin"] = counted
    return end
