"""A daemon is there when a client wants one: started if there is none, and never two of them.

1. Take the start lock of the root; whoever waits for it keeps probing, and goes on without it when
   its holder takes longer than a start does: it may be stopped, or have left it to a child.
2. Probe: another client may have started it since.
3. Unless one holds the root, and so is silent and not gone: run `stenod`, which detaches itself and
   returns once it answers; then probe again. One that was killed meanwhile is run again.

The lock only spares needless starts. That there are never two daemons is the work of the lock that
the daemon itself holds for its life: a second one ends with exit code 3, and we connect to the
first.
"""

import fcntl
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Final, assert_never

from steno import _fork
from steno._connecting import StartFailed, not_there, probe_deadline
from steno._folders import make_private
from steno._holder import holder_of
from steno._probe import NeedsRestart, Ready, Unreachable, probe
from steno._target import Target
from steno._transport import Connection
from steno_protocol import limits, places
from steno_protocol.commands import Drain
from steno_protocol.frames import encode_request

_EXIT_HELD: Final = 3
"""`stenod` says so when another daemon holds the root."""


def ensure(target: Target, began: float, deadline: float) -> Ready:
    """Connect to the wanted daemon, which did not answer since `began`; start it if need be.

    Raises:
        StartFailed: there is none, and it could not be started.
        Unreachable: it did not answer before `deadline`.
        Incompatible: what answers is not the daemon that was wanted.
    """
    assert target.root is not None
    lock = _open_start_lock(target.root)
    patient_until = time.monotonic()
    patient_until += min(limits.START_LOCK_S, (deadline - patient_until) / 2)
    starts_left = limits.STARTS_MAX
    try:
        while True:
            may_start = _try_lock(lock) or time.monotonic() >= patient_until
            outcome = probe(target, probe_deadline(deadline))
            match outcome:
                case Ready():
                    return outcome
                case NeedsRestart() if may_start:
                    _drain(outcome, deadline)
                case Unreachable() if may_start and holder_of(Path(target.root)) is None:
                    starts_left -= 1
                    _start(target.root, deadline, is_last=not starts_left)
                    outcome = probe(target, probe_deadline(deadline))
                    if isinstance(outcome, Ready):
                        return outcome
                case NeedsRestart() | Unreachable():
                    pass
                case _:
                    assert_never(outcome)
            if time.monotonic() >= deadline:
                raise not_there(target, outcome, began)
            time.sleep(limits.START_LOCK_POLL_S)
    finally:
        _fork.close(lock)


def _open_start_lock(root: str) -> int:
    try:
        make_private(Path(root))
        path = Path(root, places.START_LOCK)
        return _fork.closed_in_child(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
    except OSError as error:
        raise StartFailed(
            f"the root {root} cannot be used: {error}; choose another with root=, --root or"
            " STENO_HOME"
        ) from error


def _try_lock(lock: int) -> bool:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _start(root: str, deadline: float, *, is_last: bool) -> None:
    """Run `stenod`, which may have been killed before it was ready, unless this is the last try."""
    # -P: the folder that an agent happens to work in must not lend its modules to the daemon.
    command = [sys.executable, "-P", "-m", "stenod", "--root", root]
    timeout_s = max(0.1, min(limits.SPAWN_TIMEOUT_S, deadline - time.monotonic()))
    try:
        with os.fdopen(os.memfd_create("stenod"), "w+b") as talk:
            done = subprocess.run(  # noqa: S603 (our own interpreter and module)
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                # A file and not a pipe: a pipe would be read until the daemon itself ends. In
                # memory, because there may be no folder for temporary files.
                stderr=talk,
                timeout=timeout_s,
                check=False,
            )
            talk.seek(0)
            said = talk.read(4096).decode(errors="replace").strip()
    except OSError as error:
        raise StartFailed(f"stenod cannot be run as {' '.join(command)}: {error}") from error
    except subprocess.TimeoutExpired:
        raise StartFailed(
            f"stenod was not ready within {timeout_s:.1f} s: see {Path(root, places.LOG)}"
        ) from None
    if done.returncode in (0, _EXIT_HELD):
        return
    if said:
        raise StartFailed(f"stenod could not start (exit code {done.returncode}) and said: {said}")
    if is_last:
        raise StartFailed(
            f"stenod was started {limits.STARTS_MAX} times and ended each time without a word (exit"
            f" code {done.returncode}): is it killed, or short of memory? See"
            f" {Path(root, places.LOG)}"
        )


def _drain(old: NeedsRestart, deadline: float) -> None:
    """Ask an old daemon to end, and wait until it hangs up; it is never killed."""
    connection = Connection(old.endpoint)
    try:
        if connection.wait_until_ready(probe_deadline(deadline)):
            connection.send(encode_request(b"drain", Drain(), ()))
        while not connection.is_lost() and time.monotonic() < deadline:
            connection.receive(limits.CLIENT_TURN_MESSAGES)
            connection.wait(deadline)
    finally:
        connection.close()
