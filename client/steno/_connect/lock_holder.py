"""The process that holds a root's lock, and the error for a silent one."""

import os
import time
from contextlib import suppress
from pathlib import Path

import msgspec

import steno_system as system
from steno_protocol import limits, paths
from steno_protocol.errors import Unauthorized
from steno_protocol.paths import LockNote
from steno_system.private_files import open_private, read_lock_note


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
            system.try_lock(file.fileno(), is_shared=True)
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
        return read_lock_note(root)
    except (OSError, Unauthorized):
        return None


def holder_of(root: Path) -> LockNote | None:
    """Return the note of the daemon that holds the root; None without one, or while it starts."""
    # The lock is tried only if there is a note: holding it for an instant would stop a daemon that
    # starts in that instant.
    note = note_of(root)
    return None if note is None or is_free(root) else note


def process_of(root: Path, note: LockNote) -> int | None:
    """Return the pid of the daemon that holds the root; None if this process cannot name it.

    The note of a daemon in a container has a pid of the container, which may be any other process
    here. Only the process that has the lock open is the daemon.
    """
    return system.process_of(note.pid, _lock_of(root))


def silence_of(root: Path, note: LockNote) -> Silence:
    """Return why the daemon that holds the root, and wrote this note, does not answer."""
    pid, lock = process_of(root, note), _lock_of(root)
    held = f"{f'pid {pid}' if pid is not None else 'a daemon'} holds {root}"
    user = system.own_user() if lock is None else lock.st_uid
    if user != system.own_user():
        return Silence(
            f"{held} and listens to user {user} alone",
            "run steno as that user, or choose another root with --root or STENO_HOME",
        )
    if pid is not None and _states(pid)[:1] in (["T"], ["t"]):
        return Silence(f"{held} and is stopped", f"let it go on with `kill -CONT {pid}`")
    end = _end_of(pid, lock)
    socket = Path(note.endpoint.removeprefix("ipc://"))
    if not socket.exists():
        notices = f"it notices that within {limits.ROOT_WATCH_S:g} s and ends, and the next command"
        return Silence(
            f"{held}, but its socket {socket} is gone", f"{notices} starts another; {end}"
        )
    if pid is not None and system.lacks_handles(pid):
        return Silence(
            f"{held} and has no file handle left for another client",
            "end some of its clients, or allow the next daemon more (ulimit -n)",
        )
    return Silence(f"{held} and does not answer", f"see {root / paths.LOG}; {end}")


def _lock_of(root: Path) -> os.stat_result | None:
    with suppress(OSError):
        return (root / paths.LOCK).stat()
    return None


def _end_of(pid: int | None, lock: os.stat_result | None) -> str:
    """Return how a person ends a silent daemon, if it is likely to hang."""
    if lock is not None and time.time() - lock.st_mtime < limits.ANSWERED_LATELY_S:
        return "it answered a client within the last minute: wait, or give a longer timeout"
    if pid is None:
        return "its process is in another container or of another pid namespace: look there"
    if _is_at_work(pid):
        return f"pid {pid} is at work or waits for the disk: wait, or give a longer timeout"
    return f"if it hangs, `kill {pid}` ends it"


def _is_at_work(pid: int) -> bool:
    """Whether a thread runs or waits for the disk, or the process uses processor time."""
    before_s = _processor_s(pid)
    for _ in range(limits.PROCESS_LOOKS_MAX):
        if {"R", "D"} & {*_states(pid)}:
            return True
        time.sleep(limits.PROCESS_LOOK_S)
    return _processor_s(pid) > before_s


def _states(pid: int) -> list[str]:
    """Return the states of a process's threads as letters of proc(5), its main thread first."""
    with suppress(OSError, ValueError):
        threads = sorted(Path(f"/proc/{pid}/task").iterdir(), key=lambda each: int(each.name))
        return [fields[0] for each in threads if (fields := _stat_of(each))]
    return []


def _processor_s(pid: int) -> float:
    """Return the processor time of a process, in units of the system's clock."""
    fields = _stat_of(Path(f"/proc/{pid}"))
    return float(fields[11]) + float(fields[12]) if fields else 0.0


def _stat_of(process: Path) -> list[str]:
    """Return the fields of proc(5)'s `stat` behind the name; none if the process is gone."""
    with suppress(OSError):
        # The name in parentheses may contain any character, so the last one ends it.
        stat = (process / "stat").read_text(encoding="utf-8", errors="replace")
        return stat.rpartition(")")[2].split()
    return []
