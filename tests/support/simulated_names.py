"""Names on a simulated disk, and the errors of a kernel."""

import errno
import os
from collections.abc import Iterator
from typing import Final

from stenod.store.disk import FileStat
from support.simulated_inodes import File, Folder, Node

DEVICE: Final = 1
NAME_BYTES_MAX: Final = 255

_REFUSED: Final = {
    "symlink": "a symbolic link",
    "fifo": "a FIFO",
    "foreign": "a file of another user",
}


def check_name(*names: str) -> None:
    """Refuse an invalid name of a file in a folder."""
    for name in names:
        if name in ("", ".", "..") or "/" in name or "\0" in name:
            raise os_error(errno.EINVAL, name)
        if len(os.fsencode(name)) > NAME_BYTES_MAX:
            raise os_error(errno.ENAMETOOLONG, name)


def check_free(folder: Folder, name: str) -> None:
    """Refuse a name that is taken."""
    if name in folder.cached:
        raise os_error(errno.EEXIST, name)


def at(folder: Folder, name: str) -> Node:
    """A file or folder by its name."""
    if name not in folder.cached:
        raise os_error(errno.ENOENT, name)
    return folder.cached[name]


def as_folder(folder: Folder, name: str) -> Folder:
    """The folder of a name."""
    node = at(folder, name)
    if isinstance(node, File):
        raise os_error(errno.ENOTDIR, name)
    return node


def as_file(folder: Folder, name: str) -> File:
    """The regular file of our own that has a name."""
    node = at(folder, name)
    found = "a folder" if isinstance(node, Folder) else _REFUSED.get(node.kind)
    if isinstance(node, Folder) or found is not None:
        raise PermissionError(errno.EPERM, f"refused to open: it is {found}", name)
    return node


def os_error(number: int, name: str) -> OSError:
    """An error as the kernel words it."""
    return OSError(number, os.strerror(number), name)


def parts(path: str) -> list[str]:
    """The names in a path."""
    return [part for part in path.split("/") if part]


def walk(folder: Folder, path: str) -> Iterator[tuple[str, bytes]]:
    """Every file below a folder by its path."""
    for name, node in sorted(folder.cached.items()):
        if isinstance(node, Folder):
            yield from walk(node, f"{path}/{name}")
        else:
            yield f"{path}/{name}", bytes(node.cached)


def walk_durable(folder: Folder, path: str) -> Iterator[tuple[str, bytes]]:
    """Walk only durable names, otherwise as `walk`."""
    for name, node in sorted(folder.durable.items()):
        if isinstance(node, Folder):
            yield from walk_durable(node, f"{path}/{name}")
        else:
            yield f"{path}/{name}", bytes(node.durable)


def file_stat(node: Node) -> FileStat:
    """The metadata of a file or folder."""
    size, links = (len(node.cached), node.links) if isinstance(node, File) else (0, 1)
    return FileStat(
        size=size,
        inode=node.inode,
        device=DEVICE,
        links=links,
        modified_s=node.modified_s,
        changed_s=node.modified_s,
    )
