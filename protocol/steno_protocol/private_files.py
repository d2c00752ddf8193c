"""The rule for private files and folders: whose they are, and who else may write or read them.

Client and daemon open the same files of a root, by `steno_system.private_files`, which asks here.
"""

import stat
from shlex import quote
from typing import Final

from steno_protocol.errors import Unauthorized


def check_file(path: str, *, mode: int, owner: int, own: int, is_secret: bool) -> None:
    """Refuse an open file that another user could have made or may change, or read if it is secret.

    Args:
        path: its path, for the message.
        mode: its type and permissions.
        owner: the user id of its owner. The superuser's files are accepted unless they are secret:
            whoever provides a configuration may be root.
        own: the user id of the caller.
        is_secret: only the owner may read it.

    Raises:
        Unauthorized: the message says what to do next.
    """
    if not stat.S_ISREG(mode):
        raise Unauthorized(f"{path} is {kind_of(mode)}, and has to be a regular file: move it away")
    if owner != own and (is_secret or owner != 0):
        raise Unauthorized(
            f"{path} belongs to user {owner}, and this program runs as user {own}: run it as user"
            f" {owner}, or choose a file or root of your own"
        )
    if is_secret and mode & (stat.S_IRWXG | stat.S_IRWXO):
        raise Unauthorized(
            f"other users may read {path}: run `chmod 600 {quote(path)}`, or make a new one"
        )
    if mode & stat.S_IWOTH:
        raise Unauthorized(f"every user may write to {path}: run `chmod o-w {quote(path)}`")


def check_root(root: str, *, mode: int, owner: int, own: int) -> None:
    """Refuse a root in which another user could replace the files of the daemon, or the daemon.

    Raises:
        Unauthorized: it belongs to another user, or every user may write to it.
    """
    if owner != own:
        raise Unauthorized(
            f"{root} belongs to user {owner}, and this program runs as user {own}: run it as user"
            f" {owner}, or choose another root with --root or STENO_HOME"
        )
    if mode & stat.S_IWOTH:
        raise Unauthorized(
            f"every user may write to {root}: run `chmod o-w {quote(root)}`; if its file system"
            " keeps no permissions, mount it for its user alone (umask=077), or choose another"
            " --root"
        )


def check_listener(endpoint: str, *, owner: int, own: int) -> None:
    """Refuse a daemon that another user runs; the superuser's service manager may listen for ours.

    Raises:
        Unauthorized: another user's process listens.
    """
    if owner not in (own, 0):
        raise Unauthorized(
            f"a process of user {owner} listens at {endpoint}, and this program runs as user {own}:"
            " nothing was sent; run it as that user, or choose another root or --socket"
            " (STENO_HOME, STENO_SOCKET)"
        )


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
