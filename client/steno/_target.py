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
        root: the folder whose daemon it is, symbolic links resolved; None: whoever answers.
        endpoint: where to connect; None: where the daemon of `root` says that it listens.
        spawn: start a daemon when none runs.
        name: the client's name, the `_by` of the lines that it writes.
    """

    root: str | None
    endpoint: str | None
    spawn: bool
    name: str

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
    """What the arguments of `connect` mean.

    Raises:
        BadRequest: the name or the socket path cannot be one.
    """
    return Target(
        root=None if root is None and endpoint is not None else _real_root(root),
        endpoint=endpoint,
        spawn=spawn and endpoint is None,
        name=_default_name() if name is None else places.check_name(name),
    )


def _real_root(root: str | os.PathLike[str] | None) -> str:
    given = None if root is None else os.path.expanduser(root)  # noqa: PTH111 (of a str or a path)
    home = os.path.expanduser("~")  # noqa: PTH111 (home as text, also when it does not exist)
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
