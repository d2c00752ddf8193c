"""The daemon that a client wants: root, address, and the client's name."""

import os
import re
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

import steno_system as system
from steno._sansio.argument_checks import briefly, given_text
from steno_protocol import limits, paths
from steno_protocol.errors import BadRequest
from steno_protocol.installation import check_system
from steno_system.private_files import check_folder, read_lock_note

if TYPE_CHECKING:
    from steno_protocol.credentials import ClientKey


class Target(msgspec.Struct, frozen=True):
    """The daemon that a client wants.

    Attributes:
        root: the folder whose daemon it is; in a resolved target without symbolic links, or None:
            any daemon that answers at `endpoint`.
        endpoint: where to connect; None: where the daemon of `root` says that it listens.
        spawn: start a daemon when none runs.
        name: the client's name, the `_by` of the lines that it writes.
        key: the client's key for a daemon on another machine.
        others: addresses of further daemons of the same cluster, tried in turn after `endpoint`.
        lender: the root whose daemon's key is used if there is no `key`: of the home daemon on this
            machine, for the owners in its cluster.
    """

    root: str | None
    endpoint: str | None
    spawn: bool
    name: str
    key: "ClientKey | None" = None
    others: tuple[str, ...] = ()
    lender: str | None = None

    def resolved(self) -> "Target":
        """Return the same target with an absolute root; reads the file system.

        Raises:
            BadRequest: the path of the root is no UTF-8.
        """
        if self.root is None and self.endpoint is not None:
            return self
        return msgspec.structs.replace(self, root=_real_root(self.root))

    def owner_at(self, endpoint: str, home_root: str | None) -> "Target":
        """The owner at this address, whose daemon is never started, for the same client.

        Args:
            endpoint: its address.
            home_root: the root of the home daemon, if that is known.
        """
        is_far = self.endpoint is not None and paths.is_remote(self.endpoint)
        return msgspec.structs.replace(
            self, root=None, endpoint=endpoint, spawn=False, others=(),
            lender=None if is_far else home_root,
        )  # fmt: skip

    def key_for(self, endpoint: str) -> "ClientKey | None":
        """Return the key for the daemon at an address; reads a lent one.

        Raises:
            Unauthorized: the lent key is not private, or no key.
        """
        if not paths.is_remote(endpoint):
            return None
        if self.key is not None or self.lender is None:
            return self.key
        # Imported only now: as in `_client_key`.
        from steno._connect.key_files import lent_key  # noqa: PLC0415

        return lent_key(self.lender)

    def rotated(self) -> "Target":
        """The same cluster, with the next address first; itself if there is one address."""
        if not self.others or self.endpoint is None:
            return self
        first, *others = self.others
        return msgspec.structs.replace(self, endpoint=first, others=(*others, self.endpoint))

    def without_spawn(self) -> "Target":
        """The same daemon, if it runs."""
        return msgspec.structs.replace(self, spawn=False)

    def address(self) -> str:
        """Return the present address; a restarted daemon may have another one.

        Raises:
            Unauthorized: another user could listen there instead.
        """
        if self.endpoint is not None:
            return self.endpoint
        assert self.root is not None
        return _noted_endpoint(self.root) or _derived_endpoint(self.root)


def make_target(
    root: str | os.PathLike[str] | None,
    endpoint: str | Sequence[str] | None,
    name: str | None,
    *,
    spawn: bool,
    key_file: str | os.PathLike[str] | None = None,
) -> Target:
    """Make the target of `connect`'s arguments, not yet resolved.

    Raises:
        BadRequest: the name, the root or the endpoint is invalid, the file has no key, or this
            system is not Linux.
        NotFound, Unauthorized: the key file is missing, or other users can read it.

    Without a key file the environment's `STENO_TOKEN` is the key for an address of TCP.
    """
    first, *others = [None] if endpoint is None else _endpoints(endpoint)
    check_system(is_remote=first is not None and paths.is_remote(first))
    return Target(
        root=None if root is None else _path(root, "root"),
        endpoint=first,
        spawn=spawn and endpoint is None,
        name=_default_name() if name is None else paths.check_name(name),
        key=_token_key(first) if key_file is None else _client_key(key_file),
        others=tuple(each for each in others if each is not None),
    )


def start_command(root: str) -> str:
    """The shell command that starts the daemon of a root."""
    if root == _real_root(None):
        return "steno start"
    # Imported only now: this is for errors.
    import shlex  # noqa: PLC0415

    return f"steno start --root {shlex.quote(root)}"


def _client_key(path: str | os.PathLike[str]) -> "ClientKey":
    # Imported only now: most clients are on the daemon's own machine and have no key.
    from steno._connect.key_files import client_key  # noqa: PLC0415

    return client_key(_path(path, "key_file"))


def _token_key(endpoint: str | None) -> "ClientKey | None":
    """Return the keys of the environment's token for an address of TCP; None without one.

    Raises:
        BadRequest: the variable has no token.
    """
    if endpoint is None or not paths.is_remote(endpoint):
        return None
    # Imported only now: as in `_client_key`.
    from steno_protocol import credentials  # noqa: PLC0415

    token = os.environ.get(credentials.TOKEN_VARIABLE)
    return credentials.decode_token(token) if token else None


def _path(path: Any, what: str) -> str:
    """Return the text of a path, of any type that `open` accepts.

    An empty text would be the present folder: it is that of a variable that is not set.
    """
    try:
        text = os.fsdecode(path)
    except TypeError:
        text = "\0"
    if not text or "\0" in text:
        raise BadRequest(f"the {what} is {briefly(path)}: give a path, as text or a pathlib.Path")
    return text


def _endpoints(endpoint: str | Sequence[str]) -> list[str]:
    if isinstance(endpoint, list | tuple):
        found = [paths.check_endpoint(given_text(each, "the endpoint")) for each in endpoint]
    else:
        found = paths.endpoints_of(given_text(endpoint, "the endpoint"))
    if not 0 < len(found) <= limits.ENDPOINTS_MAX:
        raise BadRequest(
            f"there are {len(found)} endpoints: give one to {limits.ENDPOINTS_MAX} of one cluster"
        )
    return found


def _real_root(root: str | None) -> str:
    given = None if root is None else os.path.expanduser(root)  # noqa: PTH111 (as text)
    home = os.path.expanduser("~")  # noqa: PTH111 (as text)
    path = os.path.realpath(paths.root_folder(given, os.environ, home))
    return paths.check_path(path, "root")


def _noted_endpoint(root: str) -> str | None:
    """Return the address in the note of a root's lock; the root and the lock are this user's."""
    check_folder(Path(root))
    try:
        note = read_lock_note(Path(root))
    except OSError:
        return None
    # A daemon listens at its socket, whatever else; an address of a network proves no user.
    return None if note is None or paths.is_remote(note.endpoint) else note.endpoint


def _derived_endpoint(root: str) -> str:
    path = paths.socket_path(root, None, os.environ, system.real_user())
    folder = os.path.dirname(path)  # noqa: PTH120 (as text)
    if folder != root:
        _check_socket_folder(folder)
    return f"ipc://{path}"


def _check_socket_folder(folder: str) -> None:
    """Raise Unauthorized if another user could listen in the folder; a missing one is fine."""
    with suppress(FileNotFoundError, NotADirectoryError):
        for found in (os.lstat(folder), os.stat(folder)):  # noqa: PTH116 (as text)
            paths.check_socket_folder(
                folder, owner=found.st_uid, mode=found.st_mode, own=system.real_user()
            )


def _default_name() -> str:
    program = Path(sys.argv[0]).name if sys.argv and sys.argv[0] else "python"
    if program.startswith("-") or not program:
        # A program without a file has `-` or `-c` in place of its name.
        program = "python"
    suffix = f"-{os.getpid()}"
    stem = re.sub(r"[^A-Za-z0-9_.@+-]", "_", program)
    return stem[: limits.NAME_CHARS_MAX - len(suffix)] + suffix
