"""Names of file types for error messages."""

import stat
from typing import Final

_KINDS: Final = {
    stat.S_IFREG: "a regular file",
    stat.S_IFDIR: "a folder",
    stat.S_IFLNK: "a symbolic link",
    stat.S_IFIFO: "a FIFO",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}


def kind_of(mode: int) -> str:
    """Return the name of a file's type by its mode, with an article.

    >>> kind_of(stat.S_IFIFO | 0o600)
    'a FIFO'
    """
    return _KINDS.get(stat.S_IFMT(mode), "a file of an unknown kind")
