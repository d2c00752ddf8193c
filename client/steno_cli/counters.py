"""The daemon's counters as text, as a document and for Prometheus."""

import importlib
from typing import Any

from steno import BlockingClient
from steno_cli.render.output import Output
from steno_cli.render.tables import table
from steno_present import contract
from steno_present.safe_text import printable
from steno_present.wording import count, duration, number, size
from steno_protocol.commands import Stats
from steno_protocol.errors import BadRequest
from steno_protocol.installation import extra_command
from steno_protocol.metrics import Collector
from steno_protocol.replies import HistogramReport, StatsReport

_BAR_CHARS = 30


def print_counters(client: BlockingClient, form: str | None, output: Output) -> None:
    """Print the counters of the daemon, which start at zero with each daemon.

    Args:
        client: the connection to the daemon.
        form: `prometheus` for its textfile collector; None or `text` for people.
        output: of the command; with `--json` it gets the document.

    Raises:
        BadRequest: prometheus-client is not installed.
    """
    report, _ = client.request(Stats(), StatsReport)
    if form == "prometheus":
        output.raw(_prometheus_text(report))
    elif output.as_json:
        output.document(contract.stats(report))
    else:
        _show(report, output)


def _prometheus_text(report: StatsReport) -> bytes:
    try:
        client: Any = importlib.import_module("prometheus_client")
    except ImportError:
        raise BadRequest(
            "--format prometheus needs prometheus-client: install it with"
            f" `{extra_command('metrics')}`"
        ) from None
    collectors = client.CollectorRegistry(auto_describe=False)
    collectors.register(Collector(lambda: report, client.Metric))
    text: bytes = client.generate_latest(collectors)
    return text


def _show(report: StatsReport, output: Output) -> None:
    for line in table(_rows(report)):
        output.write(printable(line))
    output.write()
    _show_histogram("commands a group", report.groups, "", output)
    output.write()
    _show_histogram("sync took, ms", report.sync_s, "ms", output)


def _rows(report: StatsReport) -> list[tuple[str, str]]:
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
    for line in table(rows, right=frozenset({1})):
        output.write(line)


def _bar(many: int, most: int) -> str:
    return "█" * -(-many * _BAR_CHARS // most)
