"""The commands about the daemon as a whole: its state and clients, its start and its end."""

from argparse import Namespace
from contextlib import suppress
from typing import Final

from steno import BlockingClient
from steno.local import holder_of
from steno_cli.arguments import argument, command, default, flag, optional_argument
from steno_cli.connection import connected, endpoint_of, root_in_use, root_of
from steno_cli.counters import print_counters
from steno_cli.daemon_control import stop_daemon
from steno_cli.doctor.cluster import promise
from steno_cli.exits import Exit, WrongUsage
from steno_cli.render.output import Output
from steno_cli.render.tables import Column, beside, lines_of
from steno_present import contract
from steno_present.safe_text import printable
from steno_present.wording import count, duration, moment, number
from steno_protocol import paths
from steno_protocol.errors import BadRequest
from steno_protocol.replies import ClientEntry, ClientsReport, ClusterReport, StatusReport

_CLIENT_COLUMNS: Final = (
    Column("NAME", ("cyan",)),
    Column("PID", is_right=True),
    Column("FOR", ("dim",)),
    Column("REQUESTS", is_right=True),
    Column("DROPPED", is_right=True),
    Column("FOLLOWS"),
    Column("KEY", ("green",)),
)
"""The columns of the clients; the last one is only shown beside clients of other machines."""


@command(
    "status",
    "With --counters, what it did since its start, and how long its syncs took; counters start"
    " at zero with each daemon.",
    flag("--counters", help="show the counters instead of the state"),
    argument(
        "--format", choices=("text", "prometheus"),
        help="of the counters: text (default), or prometheus for its textfile collector",
    ),
    example="steno status --json\nsteno status --counters",
)  # fmt: skip
def status(options: Namespace, output: Output) -> int:
    """Print the state of the daemon, or its counters."""
    if options.format == "prometheus" and output.as_json:
        raise WrongUsage("--json and --format prometheus are two formats: give one of them")
    with connected(options, spawn=False) as client:
        if options.counters or options.format:
            print_counters(client, options.format, output)
            return Exit.DONE
        report, shared = client.status(), _cluster(client)
    if output.as_json:
        found = None if shared is None else contract.document(shared)
        output.document({**contract.document(report), "cluster": found})
        return Exit.DONE
    rows = _status_rows(report)
    if shared is not None:
        rows.append(("cluster", f"{shared.cluster}; {promise(shared)}"))
    margin = max(len(name) for name, _ in rows) + 2
    for name, text in rows:
        for line in beside(name.ljust(margin), text, margin, output.width):
            output.write(line)
    return Exit.DONE


def _cluster(client: BlockingClient) -> ClusterReport | None:
    """The cluster of the daemon; None if it is in none."""
    # An older daemon lacks this command.
    with suppress(BadRequest):
        report = client.cluster()
        return report if report.cluster else None
    return None


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


@command(
    "start", "A daemon that already runs is left as it is.",
    default(changes=True, makes_root=True),
    example="steno start --root ~/work",
)  # fmt: skip
def start(options: Namespace, output: Output) -> int:
    """Start the daemon unless it runs, and print its address."""
    if options.socket is not None and options.root is None:
        # A socket alone means any daemon that answers there; a new one needs a root.
        options.root = str(root_of(options))
    is_address = endpoint_of(options) is not None
    before = None if is_address else holder_of(root_of(options))
    with connected(options, spawn=not is_address) as client:
        report = client.status()
    is_running = is_address or (before is not None and before.pid == report.pid)
    state = "already runs" if is_running else "started"
    listens = f", for other machines at {report.remote_endpoint}" if report.remote_endpoint else ""
    return output.answer(
        {
            "started": not is_running,
            "version": report.version,
            "pid": report.pid,
            "root": report.root,
            "endpoint": report.endpoint,
        },
        report.endpoint,
        f"stenod {report.version} (pid {report.pid}) {state} on {report.root}{listens}",
    )


@command(
    "stop", "Returns once all queued commands are on the disk and the root is unlocked.",
    example="steno stop",
)  # fmt: skip
def stop(options: Namespace, output: Output) -> int:
    """Stop the daemon and wait until the root is free."""
    root, pid = stop_daemon(options)
    if pid is None:
        message = f"no daemon runs on {root}: nothing to stop"
    elif paths.is_remote(endpoint_of(options) or ""):
        message = f"stenod (pid {pid}) of {root} there ended"
    else:
        message = f"stenod (pid {pid}) ended; {root} is free"
    document = {"stopped": pid is not None, "pid": pid, "root": str(root)}
    return output.answer(document, None, message)


@command("restart", "", default(changes=True, makes_root=True), example="steno restart")
def restart(options: Namespace, output: Output) -> int:
    """Stop the daemon, if it runs, and start one on the same root."""
    endpoint = endpoint_of(options)
    if endpoint is not None:
        # The new daemon needs the root of the one that answers at the address.
        options.root = str(root_in_use(options))
        options.socket, options.endpoint = endpoint.removeprefix("ipc://"), None
    stop_daemon(options)
    return start(options, output)


@command(
    "clients",
    "NAME is the name that a client gives itself; KEY is that of its key, if it is on another"
    " machine.",
    optional_argument(
        "session", str, "only clients that follow this session (an id or a unique prefix)",
    ),
    default(by_prefix=True),
    example="steno clients demo",
)  # fmt: skip
def clients(options: Namespace, output: Output) -> int:
    """List the connected clients."""
    with connected(options, spawn=False) as client:
        report = client.clients(options.session)
        if options.session is not None and report == ClientsReport(clients=[]):
            # No client follows it, perhaps because there is no such session.
            client.stat(options.session)
    if output.as_json:
        output.document(contract.document(report))
        return Exit.DONE
    has_keys = any(entry.key is not None for entry in report.clients)
    columns = _CLIENT_COLUMNS if has_keys else _CLIENT_COLUMNS[:-1]
    rows = [_client_row(entry)[: len(columns)] for entry in report.clients]
    for line in lines_of(output, columns, rows):
        output.write(line)
    if not rows and options.session is not None:
        output.say(f"{options.session} has no followers")
    return Exit.DONE


def _client_row(entry: ClientEntry) -> tuple[str, ...]:
    return (
        printable(entry.name or "?", one_line=True),
        "?" if entry.pid is None else str(entry.pid),
        duration(entry.connected_s),
        number(entry.requests),
        number(entry.dropped),
        printable(" ".join(entry.subscriptions) or "-", one_line=True),
        entry.key or "-",
    )
