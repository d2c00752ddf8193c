"""The subcommands that look after the daemon: status, start, stop, restart, clients."""

import os
import signal
import time
from argparse import Namespace
from contextlib import suppress
from pathlib import Path
from typing import Any

from steno._connect.lock_holder import holder_of, is_free, note_of
from steno.cli.connection import connected, endpoint_of, root_in_use, root_of
from steno.cli.exits import Exit
from steno.cli.render import contract
from steno.cli.render.folding import beside
from steno.cli.render.output import Output, printable, table
from steno.cli.render.wording import count, duration, moment, number
from steno_protocol import limits, paths
from steno_protocol.errors import Busy, Incompatible, OutcomeUnknown, Unreachable
from steno_protocol.replies import ClientEntry, ClientsReport, StatusReport


def status(options: Namespace, output: Output) -> int:
    """Say how the daemon is."""
    with connected(options, spawn=False) as client:
        report = client.status()
    if output.as_json:
        output.document(contract.reply(report))
        return Exit.DONE
    rows = _status_rows(report)
    margin = max(len(name) for name, _ in rows) + 2
    for name, text in rows:
        for line in beside(name.ljust(margin), text, margin, output.width):
            output.write(line)
    return Exit.DONE


def start(options: Namespace, output: Output) -> int:
    """Start the daemon if it does not run, and print where it listens."""
    _print_start(output, _started(options))
    return Exit.DONE


def stop(options: Namespace, output: Output) -> int:
    """Let the daemon end, and wait until the root is free."""
    found = _stopped(options)
    if output.as_json:
        output.document(found)
    elif found["stopped"] and paths.is_remote(endpoint_of(options) or ""):
        output.say(f"stenod (pid {found['pid']}) of {found['root']} there ended")
    elif found["stopped"]:
        output.say(f"stenod (pid {found['pid']}) ended; {found['root']} is free")
    else:
        output.say(f"no daemon runs on {found['root']}: nothing to stop")
    return Exit.DONE


def restart(options: Namespace, output: Output) -> int:
    """Stop the daemon, if it runs, and start one on the same root."""
    endpoint = endpoint_of(options)
    if endpoint is not None:
        # The daemon that answers there is stopped; the new one needs its root.
        options.root = str(root_in_use(options))
        options.socket, options.endpoint = endpoint.removeprefix("ipc://"), None
    _stopped(options)
    _print_start(output, _started(options))
    return Exit.DONE


def clients(options: Namespace, output: Output) -> int:
    """List the connected clients."""
    with connected(options, spawn=False) as client:
        report = client.clients(options.session)
        if options.session is not None and report == ClientsReport(clients=[]):
            # The daemon knows nothing of it, perhaps because it is not there.
            client.stat(options.session)
    if output.as_json:
        entries = [contract.reply(entry) for entry in report.clients]
        output.document({**contract.reply(report), "clients": entries})
        return Exit.DONE
    rows = [_client_row(entry) for entry in report.clients]
    if rows and output.is_terminal:
        rows.insert(0, ("NAME", "PID", "FOR", "REQUESTS", "DROPPED", "FOLLOWS"))
    for line in table(rows, right=frozenset({1, 3, 4})):
        output.write(printable(line))
    if not rows and options.session is not None:
        output.say(f"{options.session} has no followers")
    return Exit.DONE


def _started(options: Namespace) -> dict[str, Any]:
    if options.socket is not None and options.root is None:
        # A socket alone would mean any daemon that answers there; a new one needs a root.
        options.root = str(root_of(options))
    is_running = True
    try:
        with connected(options, spawn=False) as client:
            report = client.status()
    except Unreachable:
        is_running = False
        with connected(options) as client:
            report = client.status()
    return {
        "started": not is_running,
        "version": report.version,
        "pid": report.pid,
        "root": report.root,
        "endpoint": report.endpoint,
    }


def _print_start(output: Output, found: dict[str, Any]) -> None:
    if output.as_json:
        output.document(found)
        return
    output.write(found["endpoint"])
    did = "started" if found["started"] else "runs already"
    output.say(f"stenod {found['version']} (pid {found['pid']}) {did} on {found['root']}")


def _stopped(options: Namespace) -> dict[str, Any]:
    try:
        with connected(options, spawn=False) as client:
            root, pid = Path(client.welcome.root), client.welcome.pid
            # Its last answer can be lost with its socket; that the lock is free says more.
            with suppress(Unreachable, OutcomeUnknown):
                client.drain()
    except Incompatible:
        # It speaks another protocol version; the signal asks it for the same.
        holder = None if endpoint_of(options) is not None else holder_of(root_of(options))
        if holder is None:
            raise
        root, pid = root_of(options), holder.pid
        os.kill(pid, signal.SIGTERM)
    except Unreachable:
        if endpoint_of(options) is not None:
            # The owner of the address, and so the root, is unknown.
            raise
        root = root_of(options)
        if not is_free(root):
            if note_of(root) is None:
                found = f"a daemon holds {root} that does not answer yet: try again"
                raise Unreachable(found) from None
            raise
        return {"stopped": False, "pid": None, "root": str(root)}
    if paths.is_remote(endpoint_of(options) or ""):
        _wait_until_gone(options, pid)
    else:
        wait_until_free(root)
    return {"stopped": True, "pid": pid, "root": str(root)}


def _wait_until_gone(options: Namespace, pid: int) -> None:
    """Return when that process answers no longer at an address of another machine.

    Raises:
        Busy: it still does after all the time that a drain may take.
    """
    deadline = time.monotonic() + limits.DRAIN_TIMEOUT_S + limits.PROBE_TIMEOUT_S
    with suppress(Unreachable, OutcomeUnknown):
        while time.monotonic() < deadline:
            with connected(options, spawn=False) as client:
                if client.welcome.pid != pid:
                    return
            time.sleep(limits.START_LOCK_POLL_S)
        raise Busy(
            f"the daemon (pid {pid}) at {endpoint_of(options)} still answers: it is writing what"
            " was queued; try again"
        )


def wait_until_free(root: Path) -> None:
    """Return when no daemon holds the root.

    Raises:
        Busy: it is still held after all the time that a drain may take.
    """
    deadline = time.monotonic() + limits.DRAIN_TIMEOUT_S + limits.PROBE_TIMEOUT_S
    while not is_free(root):
        if time.monotonic() >= deadline:
            raise Busy(
                f"the daemon still holds {root}: it is writing what was queued; see"
                f" {root / paths.LOG} and try again"
            )
        time.sleep(limits.START_LOCK_POLL_S)


def _status_rows(report: StatusReport) -> list[tuple[str, str]]:
    average_ms = 1000 * report.sync_s / report.syncs if report.syncs else 0.0
    slowest_ms = 1000 * report.slowest_sync_s
    rows = [
        ("stenod", f"{report.version}, protocol {report.protocol}, pid {report.pid}"),
        ("root", report.root),
        ("listens at", report.endpoint),
        ("up for", duration(report.uptime_s) + (", draining" if report.draining else "")),
        ("sessions", f"{number(report.sessions_open)} open"),
        ("clients", f"{number(report.clients)}, {count(report.dropped, 'message')} dropped"),
        ("queued", count(report.queued, "command")),
        ("last slow sync", _moment(report.slow_sync_at)),
        ("appended", count(report.appended_records, "record")),
        (
            "syncs",
            f"{number(report.syncs)}, {average_ms:.2f} ms each, the slowest {slowest_ms:.2f} ms",
        ),
    ]
    if report.remote_endpoint is not None:
        rows.insert(3, ("and at", report.remote_endpoint))
    return rows + [("mount", f"{name}: {folder}") for name, folder in report.mounts.items()]


def _moment(at: float | None) -> str:
    return "none" if at is None else moment(at)


def _client_row(entry: ClientEntry) -> tuple[str, ...]:
    return (
        entry.name or "?",
        "?" if entry.pid is None else str(entry.pid),
        duration(entry.connected_s),
        number(entry.requests),
        number(entry.dropped),
        " ".join(entry.subscriptions) or "-",
    )
