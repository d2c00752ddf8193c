"""The process that holds a root's lock, and the error for a silent one."""

import fcntl
import os
import resource
from contextlib import suppress
from pathlib import Path

import msgspec

from steno._connect.private_files import open_private, read_private
from steno_protocol import paths
from steno_protocol.errors import Unauthorized
from steno_protocol.paths import LockNote


class Silence(msgspec.Struct, frozen=True):
    """The cause and the remedy for a daemon that does not answer."""

    text: str
    remedy: str


def is_free(root: Path) -> bool:
    """True when no daemon holds the root."""
    return _is_unlocked(root / paths.LOCK)


def is_starting(root: Path) -> bool:
    """True while a client of this root starts a daemon, which may not hold the root yet."""
    return not _is_unlocked(root / paths.START_LOCK)


def _is_unlocked(path: Path) -> bool:
    try:
        with os.fdopen(open_private(path), "rb") as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except FileNotFoundError:
        return True
    except (BlockingIOError, Unauthorized):
        # Another user's lock is no free root of ours.
        return False
    return True


def note_of(root: Path) -> LockNote | None:
    """Return the note of the daemon that holds the root, or held it when it was killed.

    None before the daemon answers for the first time, and after it has ended.
    """
    try:
        return paths.decode_lock_note(read_private(root / paths.LOCK))
    except (OSError, Unauthorized):
        return None


def holder_of(root: Path) -> LockNote | None:
    """Return the note of the daemon that holds the root; None without one, or while it starts."""
    # The lock is tried only if there is a note: holding it for an instant would stop a daemon that
    # starts in that instant.
    note = note_of(root)
    return None if note is None or is_free(root) else note


def silence_of(note: LockNote) -> Silence:
    """Return why the daemon of this note, which holds its root, does not answer."""
    held = f"pid {note.pid} holds {note.root}"
    user = _user_of(note.pid)
    if user not in (None, os.geteuid()):
        return Silence(
            f"{held} and listens to user {user} alone",
            "run steno as that user, or choose another root with --root or STENO_HOME",
        )
    if _is_stopped(note.pid):
        return Silence(f"{held} and is stopped", f"let it go on with `kill -CONT {note.pid}`")
    socket = Path(note.endpoint.removeprefix("ipc://"))
    if not socket.exists():
        return Silence(
            f"{held}, but its socket {socket} is gone",
            f"`kill {note.pid}` drains it, and the next command starts another",
        )
    if _lacks_handles(note.pid):
        return Silence(
            f"{held} and has no file handle left for another client",
            f"end some of its clients, or allow the next one more (ulimit -n) and drain it"
            f" with `kill {note.pid}`",
        )
    log = Path(note.root, paths.LOG)
    return Silence(
        f"{held} and does not answer", f"see {log}; if it hangs, `kill {note.pid}` ends it"
    )


def _user_of(pid: int) -> int | None:
    with suppress(OSError):
        return Path(f"/proc/{pid}").stat().st_uid
    return None


def _is_stopped(pid: int) -> bool:
    with suppress(OSError, IndexError):
        # The name in parentheses may contain any character, so the last one ends it.
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
        return stat.rpartition(")")[2].split()[0] in {"T", "t"}
    return False


def _lacks_handles(pid: int) -> bool:
    """Whether it has opened seven eighths of its files, and so closes new connections at once."""
    with suppress(OSError, ValueError):
        # First, because a system without /proc has no `prlimit` either.
        taken = len(os.listdir(f"/proc/{pid}/fd"))  # noqa: PTH208 (a count, and no Paths are made)
        most, _ = resource.prlimit(pid, resource.RLIMIT_NOFILE)
        return taken + 1 >= most * 7 // 8
    return False
