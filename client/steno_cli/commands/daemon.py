"""The commands about the daemon as a whole: its state and clients, its start and its end."""

from argparse import Namespace
from contextlib import suppress
from importlib import import_module
from typing import Any, Final

from steno import BlockingClient
from steno.local import holder_of
from steno_cli.arguments import argument, command, default, flag, optional_argument
from steno_cli.connection import connected, endpoint_of, root_in_use, root_of
from steno_cli.daemon_control import stop_daemon
from steno_cli.doctor.cluster import promise
from steno_cli.exits import Exit, WrongUsage
from steno_cli.render.output import Output
from steno_cli.render.tables import Column, beside, lines_of, table
from steno_present import contract
from steno_present.safe_text import printable
from steno_present.wording import count, duration, moment, number, size
from steno_protocol import paths
from steno_protocol.commands import Stats
from steno_protocol.errors import BadRequest
from steno_protocol.installation import extra_command
from steno_protocol.metrics import Collector
from steno_protocol.replies import (
    ClientEntry,
    ClientsReport,
    ClusterReport,
    HistogramReport,
    StatsReport,
    StatusReport,
)

_BAR_CHARS: Final = 30

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
            return _print_counters(client, options.format, output)
        report, shared = client.status(), _cluster(client)
    found = None if shared is None else contract.document(shared)
    rows = _status_rows(report)
    if shared is not None:
        rows.append(("cluster", f"{shared.cluster}; {promise(shared)}"))
    margin = max(len(name) for name, _ in rows) + 2
    return output.answer(
        {**contract.document(report), "cluster": found},
        *(
            line
            for name, text in rows
            for line in beside(name.ljust(margin), text, margin, output.width)
        ),
    )


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
        ("last slow sync", "none" if report.slow_sync_at is None else moment(report.slow_sync_at)),
        ("appended", count(report.appended_records, "record")),
        (
            "syncs",
            f"{number(report.syncs)}, {average_ms:.2f} ms each, the slowest {slowest_ms:.2f} ms",
        ),
    ]
    if report.remote_endpoint is not None:
        rows.insert(3, ("and at", report.remote_endpoint))
    return rows + [("mount", f"{name}: {folder}") for name, folder in report.mounts.items()]


def _print_counters(client: BlockingClient, form: str | None, output: Output) -> int:
    """Print the counters of the daemon, which start at zero with each daemon.

    Raises:
        BadRequest: prometheus-client is not installed.
    """
    report, _ = client.request(Stats(), StatsReport)
    if form == "prometheus":
        output.raw(_prometheus_text(report))
    elif output.as_json:
        output.document(contract.stats(report))
    else:
        _show_counters(report, output)
    return Exit.DONE


def _prometheus_text(report: StatsReport) -> bytes:
    try:
        client: Any = import_module("prometheus_client")
    except ImportError:
        raise BadRequest(
            "--format prometheus needs prometheus-client: install it with"
            f" `{extra_command('metrics')}`"
        ) from None
    collectors = client.CollectorRegistry(auto_describe=False)
    collectors.register(Collector(lambda: report, client.Metric))
    text: bytes = client.generate_latest(collectors)
    return text


def _show_counters(report: StatsReport, output: Output) -> None:
    output.lines(map(printable, table(_counter_rows(report))))
    output.write()
    _show_histogram("commands a group", report.groups, "", output)
    output.write()
    _show_histogram("sync took, ms", report.sync_s, "ms", output)


def _counter_rows(report: StatsReport) -> list[tuple[str, str]]:
    appended = f"{count(report.appended_records, 'record')}, {size(report.appended_bytes)}"
    waiting = f"{count(report.queued, 'command')}, {size(report.queued_bytes)}"
    clients = f"{number(report.clients)}, {count(report.subscribers, 'subscription')}"
    if report.turned_away:
        clients += f", {number(report.turned_away)} turned away"
    return [
        ("up for", duration(report.uptime_s)),
        ("appended", appended),
        ("syncs", f"{number(sum(report.sync_s.counts))}, {number(report.slow_syncs)} slow"),
        ("rewrites", _by_name(report.rewrites)),
        ("errors", _by_name(report.errors)),
        ("queued", f"{waiting}, {number(report.queued_most)} for the busiest file"),
        ("sessions", f"{number(report.sessions_open)} open"),
        ("clients", clients),
        ("not read", f"{count(report.dropped, 'message')}, {number(report.lagged)} lagged"),
        ("ignored", count(report.ignored, "message")),
        ("process", f"{count(report.open_files, 'open file')}, {size(report.resident_bytes)}"),
    ]


def _by_name(counts: dict[str, int]) -> str:
    return ", ".join(f"{number(counts[name])} {name}" for name in sorted(counts)) or "none"


def _show_histogram(title: str, report: HistogramReport, unit: str, output: Output) -> None:
    """Print the buckets from the first to the last that is not empty."""
    output.write(output.style(title, "bold"))
    filled = [index for index, many in enumerate(report.counts) if many]
    if not filled:
        output.write("  none yet")
        return
    factor = 1000 if unit == "ms" else 1
    names = [f"<= {bound * factor:g}" for bound in report.bounds]
    names.append(f"> {report.bounds[-1] * factor:g}")
    most = max(report.counts)
    rows = [
        (f"  {names[index]}", number(report.counts[index]), _bar(report.counts[index], most))
        for index in range(filled[0], filled[-1] + 1)
    ]
    output.lines(table(rows, right=frozenset({1})))


def _bar(many: int, most: int) -> str:
    return "█" * -(-many * _BAR_CHARS // most)


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
        message=f"stenod {report.version} (pid {report.pid}) {state} on {report.root}{listens}",
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
    return output.answer(document, message=message)


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
    has_keys = any(entry.key is not None for entry in report.clients)
    columns = _CLIENT_COLUMNS if has_keys else _CLIENT_COLUMNS[:-1]
    rows = [_client_row(entry)[: len(columns)] for entry in report.clients]
    message = "" if rows or options.session is None else f"{options.session} has no followers"
    return output.answer(
        contract.document(report), *lines_of(output, columns, rows), message=message
    )


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
