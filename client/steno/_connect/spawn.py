"""The start of a daemon by a client that needs one.

1. Get a turn by the start lock of the root; a waiting client keeps probing for a daemon.
2. Probe: another client may have started it since.
3. Unless a silent daemon holds the root: run `stenod`, which detaches itself and returns once it
   answers; then probe again. A daemon that was killed meanwhile, or takes too long, is started
   again.

The start lock only avoids needless starts. The lock that a daemon holds for its life guarantees
that there are never two: a second daemon ends with exit code 3, and the client connects to the
first.
"""

import os
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path
from typing import Final, assert_never

import steno_system as system
from steno._connect.connection import Connection
from steno._connect.folders import make_private
from steno._connect.last_words import LastWords
from steno._connect.lock_holder import holder_of
from steno._connect.probe import (
    NeedsRestart,
    Ready,
    StartFailed,
    Unreachable,
    not_there,
    probe,
    probe_deadline,
)
from steno._connect.start_lock import StartLock
from steno._connect.target import Target
from steno_protocol import limits, paths
from steno_protocol.commands import Drain
from steno_protocol.messages import encode_request

_EXIT_HELD: Final = 3
"""The exit code of `stenod` when another daemon holds the root."""


def ensure(target: Target, began: float, deadline: float) -> Ready:
    """Connect to the wanted daemon, which did not answer since `began`; start it if need be.

    Raises:
        StartFailed: there is no daemon, and it could not be started.
        Unreachable: the daemon did not answer before `deadline`.
        Incompatible: the answer is not from the wanted daemon.
    """
    assert target.root is not None
    patience_s = min(limits.START_LOCK_S, (deadline - time.monotonic()) / 2)
    starts_left = limits.STARTS_MAX
    words = LastWords(target.root)
    with closing(_start_lock(target.root, patience_s)) as lock:
        while True:
            may_start = lock.try_turn()
            outcome = probe(target, probe_deadline(target, deadline))
            match outcome:
                case Ready():
                    return outcome
                case NeedsRestart() if may_start:
                    _drain(outcome, deadline)
                case Unreachable() if (
                    may_start
                    and holder_of(Path(target.root)) is None
                    # A daemon that held the root until now leaves no time for another one.
                    and time.monotonic() < deadline
                ):
                    if starts_left < limits.STARTS_MAX and (reason := words.reason):
                        # The daemon of a start that took too long has ended since.
                        raise StartFailed(f"stenod could not start and said: {reason}")
                    starts_left -= 1
                    _start(target.root, began, deadline, words, is_last=not starts_left)
                    outcome = probe(target, probe_deadline(target, deadline))
                    if isinstance(outcome, Ready):
                        return outcome
                case NeedsRestart() | Unreachable():
                    pass
                case _:
                    assert_never(outcome)
            if time.monotonic() >= deadline:
                if starts_left < limits.STARTS_MAX and holder_of(Path(target.root)) is None:
                    raise _not_ready(began, words)
                raise not_there(target, outcome, began)
            time.sleep(_pause_s(lock.waited_s))


def _pause_s(waited_s: float) -> float:
    """The pause before the next probe: the longer the wait, the more clients may be waiting."""
    pause_s = waited_s / limits.START_LOCK_POLLS_MAX
    return max(limits.START_LOCK_POLL_S, min(pause_s, limits.RECONNECT_S_MAX))


def _start_lock(root: str, patience_s: float) -> StartLock:
    try:
        make_private(Path(root))
        return StartLock(root, patience_s)
    except OSError as error:
        # The kernel reports a file in the way as "exists".
        is_taken = isinstance(error, FileExistsError | NotADirectoryError)
        what = f"{error.filename} is no folder" if is_taken else error
        raise StartFailed(
            f"the root {root} cannot be used: {what}; choose another with root=, --root or"
            " STENO_HOME, or set HOME to a folder that you can write to"
        ) from error


def _not_ready(began: float, words: LastWords) -> StartFailed:
    return StartFailed(f"stenod was not ready within {time.monotonic() - began:.1f} s; {words}")


def _start(root: str, began: float, deadline: float, words: LastWords, *, is_last: bool) -> None:
    """Run `stenod`, and return when there may be a daemon.

    A daemon that was killed, or is not ready in time, does not rule out another attempt: the
    machine may be busy with a hundred other clients, one of which has started it meanwhile.
    """
    # -P: the folder that an agent happens to work in must not lend its modules to the daemon.
    command = [sys.executable, "-P", "-m", "stenod", "--root", root]
    timeout_s = max(0.0, min(limits.SPAWN_TIMEOUT_S, deadline - time.monotonic()))
    try:
        with os.fdopen(system.anonymous_file(), "w+b") as talk:
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
        if not is_last and time.monotonic() < deadline:
            return
        raise _not_ready(began, words) from None
    if done.returncode in (0, _EXIT_HELD):
        return
    if said:
        raise StartFailed(f"stenod could not start (exit code {done.returncode}) and said: {said}")
    if is_last:
        raise StartFailed(
            f"stenod was started {limits.STARTS_MAX} times and ended each time without a word (exit"
            f" code {done.returncode}): is it killed, or short of memory? See"
            f" {Path(root, paths.LOG)}"
        )


def _drain(old: NeedsRestart, deadline: float) -> None:
    """Ask an old daemon to end, and wait until it hangs up; it is never killed."""
    connection = Connection(old.endpoint)
    try:
        if connection.wait_until_ready(min(deadline, time.monotonic() + limits.PROBE_TIMEOUT_S)):
            connection.send(encode_request(b"drain", Drain(), ()))
        while not connection.is_lost() and time.monotonic() < deadline:
            connection.receive(limits.CLIENT_TURN_MESSAGES)
            connection.wait(deadline)
    finally:
        connection.close()
