"""Starting and stopping the daemon of a root."""

import os
import signal
import time
from argparse import Namespace
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from steno._connect.lock_holder import holder_of, is_free, note_of
from steno.cli.connection import connected, endpoint_of, root_of
from steno.cli.render.output import Output
from steno_protocol import limits, paths
from steno_protocol.errors import Busy, Incompatible, OutcomeUnknown, Unreachable


def start_daemon(options: Namespace, output: Output) -> None:
    """Start the daemon unless it runs, and print its address."""
    if options.socket is not None and options.root is None:
        # A socket alone means any daemon that answers there; a new one needs a root.
        options.root = str(root_of(options))
    is_running = True
    try:
        with connected(options, spawn=False) as client:
            report = client.status()
    except Unreachable:
        is_running = False
        with connected(options) as client:
            report = client.status()
    if output.as_json:
        output.document(
            {
                "started": not is_running,
                "version": report.version,
                "pid": report.pid,
                "root": report.root,
                "endpoint": report.endpoint,
            }
        )
        return
    output.write(report.endpoint)
    state = "already runs" if is_running else "started"
    listens = f", for other machines at {report.remote_endpoint}" if report.remote_endpoint else ""
    output.say(f"stenod {report.version} (pid {report.pid}) {state} on {report.root}{listens}")


@dataclass(frozen=True, slots=True)
class Stopped:
    """The daemon that was stopped.

    Attributes:
        root: its root.
        pid: its process; None if none ran.
    """

    root: Path
    pid: int | None


def stop_daemon(options: Namespace) -> Stopped:
    """Stop the daemon after its queued commands; returns when the root is free.

    Raises:
        Unreachable: a daemon holds the root and does not answer.
        Incompatible: a daemon at an address speaks another version of the protocol.
        Busy: the daemon did not end in time.
    """
    try:
        with connected(options, spawn=False) as client:
            root, pid = Path(client.welcome.root), client.welcome.pid
            # The last reply can be lost with the socket; the free lock is the proof.
            with suppress(Unreachable, OutcomeUnknown):
                client.drain()
    except Incompatible:
        # SIGTERM drains the daemon in every version of the protocol.
        holder = None if endpoint_of(options) is not None else holder_of(root_of(options))
        if holder is None:
            raise
        root, pid = root_of(options), holder.pid
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
        _wait_until_gone(options, pid)
    else:
        _wait_until_free(root)
    return Stopped(root, pid)


def _wait_until_gone(options: Namespace, pid: int) -> None:
    """Return when that process no longer answers at an address of another machine.

    Raises:
        Busy: it still answers after the longest time of a drain.
    """
    deadline = time.monotonic() + limits.DRAIN_TIMEOUT_S + limits.PROBE_TIMEOUT_S
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


def _wait_until_free(root: Path) -> None:
    """Return when no daemon holds the root.

    Raises:
        Busy: it is still held after the longest time of a drain.
    """
    deadline = time.monotonic() + limits.DRAIN_TIMEOUT_S + limits.PROBE_TIMEOUT_S
    while not is_free(root):
        if time.monotonic() >= deadline:
            raise Busy(
                f"the daemon still holds {root}: it is writing its queue; see"
                f" {root / paths.LOG} and try again"
            )
        time.sleep(limits.START_LOCK_POLL_S)
