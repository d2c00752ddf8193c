"""`steno status`: the daemon's state and its counters."""

from argparse import Namespace
from contextlib import suppress

from steno import BlockingClient
from steno_cli.arguments import Subcommands, command
from steno_cli.connection import connected
from steno_cli.counters import print_counters
from steno_cli.doctor.cluster import promise
from steno_cli.exits import Exit, WrongUsage
from steno_cli.render.output import Output
from steno_cli.render.tables import beside
from steno_present import contract
from steno_present.wording import count, duration, moment, number
from steno_protocol.errors import BadRequest
from steno_protocol.replies import ClusterReport, StatusReport


def add_parser(commands: Subcommands) -> None:
    """Add the command line."""
    parser = command(
        commands, "status", run,
        "With --counters, what it did since its start, and how long its syncs took; counters start"
        " at zero with each daemon.",
        example="steno status --json\nsteno status --counters",
    )  # fmt: skip
    parser.add_argument(
        "--counters", action="store_true", help="show the counters instead of the state"
    )
    parser.add_argument(
        "--format", choices=("text", "prometheus"),
        help="of the counters: text (default), or prometheus for its textfile collector",
    )  # fmt: skip


def run(options: Namespace, output: Output) -> int:
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
