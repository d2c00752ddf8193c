"""A greeted connection to the daemon, which is found or started."""

import time
from pathlib import Path

from steno._connect.probe import Outcome, Ready, Unreachable, not_there, probe, probe_deadline
from steno._connect.target import Target
from steno_protocol import errors, limits, paths


def connect(target: Target, deadline: float) -> Ready:
    """Connect to the wanted daemon; start it when there is none and `target.spawn` is set.

    Blocks until `deadline` at the most: a daemon that is there and silent is waited for, one that
    is not there is not. The returned connection has been greeted. Of several addresses of a
    cluster, the first one that answers is taken, and only the last one is waited for so long.

    Raises:
        Unreachable: there is no daemon, and none was started.
        Incompatible: the answer is not from the wanted daemon.
    """
    for _ in target.others:
        try:
            return _connect(target, deadline, probe_deadline(target, deadline))
        except errors.Unreachable:
            target = target.rotated()
    # `ensure` goes on waiting where a daemon may have to be started.
    return _connect(
        target, deadline, probe_deadline(target, deadline) if target.spawn else deadline
    )


def _connect(target: Target, deadline: float, probe_until: float) -> Ready:
    began = time.monotonic()
    outcome = probe(target, probe_until)
    while _may_answer(outcome, began) and time.monotonic() < probe_until:
        # The daemon has no room for another connection at this moment, or is ending.
        time.sleep(limits.RECONNECT_S)
        again = probe(target, probe_until)
        if isinstance(again, Unreachable) and time.monotonic() >= probe_until:
            # The deadline cut it short, and the one before has the reason.
            break
        outcome = again
    if isinstance(outcome, Ready):
        return outcome
    if not target.spawn:
        raise not_there(target, outcome, began)
    # Imported only now: a one-shot command that finds its daemon does not pay for subprocess.
    from steno._connect.spawn import ensure  # noqa: PLC0415

    return ensure(target, began, deadline)


def _may_answer(outcome: Outcome, began: float) -> bool:
    """Whether a daemon is there, and another attempt may reach it."""
    if not isinstance(outcome, Unreachable) or not outcome.is_turned_away:
        return isinstance(outcome, Unreachable) and outcome.is_silent
    # A daemon on another machine also closes a connection that expects another key of it.
    is_remote = paths.is_remote(outcome.endpoint)
    return not is_remote or time.monotonic() < began + limits.REMOTE_TURNED_AWAY_S


def is_killed(target: Target) -> bool:
    """True when the wanted daemon ran on this machine and was killed.

    A daemon that was stopped, or ended when idle, removed its note first.
    """
    if target.root is None or target.endpoint is not None:
        return False
    # Imported late: a client that finds its daemon does not need it.
    from steno._connect.lock_holder import is_free, note_of  # noqa: PLC0415

    root = Path(target.root)
    try:
        return note_of(root) is not None and is_free(root)
    except OSError:
        return False


def log_restart(ready: Ready) -> None:
    """Log that the daemon of a connection was killed and that a follower started it again.

    A program without a logging configuration shows the message on stderr.
    """
    # Imported only now: a one-shot command has nothing to log.
    import logging  # noqa: PLC0415

    logging.getLogger("steno").warning(
        "the daemon of %s was killed and runs again, as pid %d; no acknowledged change is lost",
        ready.welcome.root,
        ready.welcome.pid,
    )
