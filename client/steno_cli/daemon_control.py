"""The end of the daemon of a root, and a request for the next one."""

import os
import signal
import time
from argparse import Namespace
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from steno.local import holder_of, is_free, note_of, process_of
from steno_cli.connection import connected, endpoint_of, root_of
from steno_protocol import limits, paths
from steno_protocol.errors import Busy, Incompatible, OutcomeUnknown, Unreachable


class Stopped(NamedTuple):
    """The root of the daemon that was stopped, and its process; None if none ran."""

    root: Path
    pid: int | None


def stop_daemon(options: Namespace) -> Stopped:
    """Stop the daemon after its queued commands; returns when the root is free.

    Raises:
        Unreachable: a daemon holds the root and does not answer.
        Incompatible: a daemon at an address speaks another version of the protocol.
        Busy: the daemon did not end in time.
    """
    longest_s = limits.DRAIN_TIMEOUT_S + limits.PROBE_TIMEOUT_S
    deadline = time.monotonic() + (options.timeout or longest_s)
    try:
        with connected(options, spawn=False) as client:
            root, pid = Path(client.welcome.root), client.welcome.pid
            # The last reply can be lost with the socket; the free lock is the proof.
            with suppress(Unreachable, OutcomeUnknown):
                client.drain()
    except Incompatible:
        # SIGTERM drains the daemon in every version of the protocol.
        if endpoint_of(options) is not None:
            raise
        root = root_of(options)
        holder = holder_of(root)
        found = None if holder is None else process_of(root, holder)
        if found is None:
            raise
        pid = found
        os.kill(pid, signal.SIGTERM)
    except Unreachable:
        if endpoint_of(options) is not None:
            # The root behind an address is unknown.
            raise
        root = root_of(options)
        if not is_free(root):
            if note_of(root) is None:
                message = f"a daemon holds {root} that does not answer yet: try again"
                raise Unreachable(message) from None
            raise
        return Stopped(root, None)
    if paths.is_remote(endpoint_of(options) or ""):
        _wait_until_gone(options, pid, deadline)
    else:
        _wait_until_free(root, deadline)
    return Stopped(root, pid)


def _wait_until_gone(options: Namespace, pid: int, deadline: float) -> None:
    """Return when that process no longer answers at an address of another machine.

    Raises:
        Busy: it still answers at the deadline.
    """
    with suppress(Unreachable, OutcomeUnknown):
        while time.monotonic() < deadline:
            with connected(options, spawn=False) as client:
                if client.welcome.pid != pid:
                    return
            time.sleep(limits.START_LOCK_POLL_S)
        raise Busy(
            f"the daemon (pid {pid}) at {endpoint_of(options)} still answers: it is writing its"
            " queue; try again"
        )


def _wait_until_free(root: Path, deadline: float) -> None:
    """Return when no daemon holds the root.

    Raises:
        Busy: it is still held at the deadline.
    """
    while not is_free(root):
        if time.monotonic() >= deadline:
            raise Busy(
                f"the daemon still holds {root}: it is writing its queue; see"
                f" {root / paths.LOG} and try again"
            )
        time.sleep(limits.START_LOCK_POLL_S)


def write_request(root: Path, word: str) -> None:
    """Leave a request for the daemon that starts next on a root, to join streams it does not know.

    Args:
        root: the root.
        word: `create` or `again`.
    """
    path = root / paths.CLUSTER_REQUEST
    with suppress(FileNotFoundError):
        path.unlink()
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(handle, "w") as file:
        file.write(word)
