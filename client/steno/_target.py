"""Which daemon a client wants: its root, where it listens, and who is asking."""

import os
import re
import sys
from dataclasses import dataclass, replace
from pathlib import Path

import msgspec

from steno_protocol import limits, places

_lock_note = msgspec.json.Decoder(places.LockNote)


@dataclass(frozen=True, slots=True)
class Target:
    """The daemon that a client wants.

    Attributes:
        root: the folder whose daemon it is; in a resolved target without symbolic links, or None:
            whoever answers at `endpoint`.
        endpoint: where to connect; None: where the daemon of `root` says that it listens.
        spawn: start a daemon when none runs.
        name: the client's name, the `_by` of the lines that it writes.
    """

    root: str | None
    endpoint: str | None
    spawn: bool
    name: str

    def resolved(self) -> "Target":
        """The same daemon, whatever the working folder becomes; looks at the file system."""
        if self.root is None and self.endpoint is not None:
            return self
        return replace(self, root=_real_root(self.root))

    def without_spawn(self) -> "Target":
        """The same daemon, if it runs."""
        return replace(self, spawn=False)

    def address(self) -> str:
        """Where to connect now; a daemon that was restarted may listen elsewhere."""
        if self.endpoint is not None:
            return self.endpoint
        assert self.root is not None
        return _noted_endpoint(self.root) or _derived_endpoint(self.root)


def make_target(
    root: str | os.PathLike[str] | None, endpoint: str | None, name: str | None, *, spawn: bool
) -> Target:
    """What the arguments of `connect` mean, not yet resolved.

    Raises:
        BadRequest: the name cannot be one.
    """
    return Target(
        root=None if root is None else os.fspath(root),
        endpoint=endpoint,
        spawn=spawn and endpoint is None,
        name=_default_name() if name is None else places.check_name(name),
    )


def _real_root(root: str | None) -> str:
    given = None if root is None else os.path.expanduser(root)  # noqa: PTH111 (as text)
    home = os.path.expanduser("~")  # noqa: PTH111 (as text)
    return os.path.realpath(places.root_folder(given, os.environ, home))


def _noted_endpoint(root: str) -> str | None:
    try:
        return _lock_note.decode(Path(root, places.LOCK).read_bytes()).endpoint
    except (OSError, msgspec.DecodeError):
        return None


def _derived_endpoint(root: str) -> str:
    return f"ipc://{places.socket_path(root, None, os.environ, os.getuid())}"


def _default_name() -> str:
    program = Path(sys.argv[0]).name if sys.argv and sys.argv[0] else "python"
    if program in {"-c", "-m", ""}:
        program = "python"
    suffix = f"-{os.getpid()}"
    stem = re.sub(r"[^A-Za-z0-9_.@+-]", "_", program)
    return stem[: limits.NAME_CHARS_MAX - len(suffix)] + suffix
