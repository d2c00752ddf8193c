"""The end of daemons that a test left behind."""

import errno
import fcntl
import os
import shutil
import signal
import time
from contextlib import suppress
from pathlib import Path

from steno_protocol import limits, paths


def end_daemons_below(folder: Path) -> None:
    """Kill the daemons of all roots in a folder, which may be one itself, and wait for it."""
    for lock in sorted(folder.rglob(paths.LOCK)):
        end_daemon_of(lock.parent)


def end_daemon_of(root: Path) -> None:
    """Kill the daemon that holds the lock of `root`, if one does, and wait until it is gone."""
    wait_for_start(root / paths.START_LOCK)
    lock = root / paths.LOCK
    if not lock.exists():
        return
    with lock.open("rb") as file:
        if _is_free(file.fileno()):
            return
        note = paths.decode_lock_note(file.read())
        assert note is None or note.pid != os.getpid(), "a daemon in a thread is still running"
        # One that is just ending has taken its note away, or is gone by now.
        if note is not None:
            with suppress(ProcessLookupError):
                os.kill(note.pid, signal.SIGKILL)
        # The kernel gives the lock up with the process, so this waits for exactly that.
        fcntl.flock(file.fileno(), fcntl.LOCK_EX)


def remove_root(root: Path) -> None:
    """End the daemon of `root` and remove the folder.

    A daemon that a client started right before it closed may take its lock only now, and creates
    its files again, or removes some itself: it is ended, too.
    """
    until = time.monotonic() + limits.SPAWN_TIMEOUT_S
    while True:
        end_daemon_of(root)
        try:
            shutil.rmtree(root)
        except OSError as error:
            if error.errno not in {errno.ENOTEMPTY, errno.ENOENT} or time.monotonic() > until:
                raise
        else:
            return


def wait_for_start(lock: Path) -> None:
    """Wait until no client starts a daemon: one that was closed meanwhile still ends its attempt.

    A holder that is stopped never ends it, so this waits no longer than an attempt takes.
    """
    if not lock.exists():
        return
    until = time.monotonic() + limits.SPAWN_TIMEOUT_S
    with lock.open("rb") as file:
        while not _is_free(file.fileno()) and time.monotonic() < until:
            time.sleep(limits.START_LOCK_POLL_S)


def _is_free(handle: int) -> bool:
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
