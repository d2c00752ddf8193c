"""The counters of `stats` as Prometheus metrics.

prometheus-client writes them, for `/metrics` and for `steno status`.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import accumulate
from typing import Any, Final, Literal

import msgspec

from steno_protocol.replies import HistogramReport, StatsReport

Kind = Literal["counter", "gauge", "histogram"]
"""The type of a metric."""

_COUNTERS: Final = {
    "appended_records": "Lines that were stored.",
    "appended_bytes": "Bytes of the lines that were stored.",
    "slow_syncs": "Syncs that took longer than the configuration expects.",
    "dropped": "Messages that clients did not take in.",
    "lagged": "Subscriptions that ended because their client did not read.",
    "ignored": "Messages that bore no request id.",
    "turned_away": "Connections that were ended at once for want of a file handle.",
}
_GAUGES: Final = {
    "uptime_s": ("uptime_seconds", "How long the daemon has been running."),
    "queued": ("queued_commands", "Commands that wait."),
    "queued_most": ("queued_commands_most", "Commands that wait for the busiest file."),
    "queued_bytes": ("queued_bytes", "Records of all commands that wait."),
    "sessions_open": ("sessions_open", "Sessions with open files."),
    "clients": ("clients", "Connections."),
    "subscribers": ("subscribers", "Subscriptions."),
    "open_files": ("open_files", "File handles of the process."),
    "resident_bytes": ("resident_bytes", "Memory of the process."),
}


class Sample(msgspec.Struct, frozen=True):
    """One value of a metric: the suffix of the metric's name, the labels, and the value."""

    suffix: str
    labels: Mapping[str, str]
    value: float


class Metric(msgspec.Struct, frozen=True):
    """One metric and its samples."""

    name: str
    kind: Kind
    meaning: str
    samples: tuple[Sample, ...]


def metrics(report: StatsReport) -> Iterator[Metric]:
    """Yield all metrics of a report, each once."""
    for field, meaning in _COUNTERS.items():
        yield _counter(field, meaning, [Sample("", {}, getattr(report, field))])
    yield _counter("rewrites", "Rewrites by kind.", _by("kind", report.rewrites))
    yield _counter("errors", "Refusals by code.", _by("code", report.errors))
    for field, (name, meaning) in _GAUGES.items():
        yield Metric(f"steno_{name}", "gauge", meaning, (Sample("", {}, getattr(report, field)),))
    yield _histogram("group_commands", "Commands of each group commit.", report.groups)
    yield _histogram("sync_seconds", "How long each sync took.", report.sync_s)


class Collector:
    """A collector for prometheus-client.

    Args:
        take: returns the daemon's counters.
        kind: prometheus-client's `Metric`, which this module does not import.
    """

    def __init__(self, take: Callable[[], StatsReport], kind: Callable[..., Any]) -> None:
        self._take = take
        self._kind = kind

    def collect(self) -> Iterator[Any]:
        """Yield every metric with its samples."""
        for metric in metrics(self._take()):
            # The library adds `_total` to a counter's name itself.
            made = self._kind(metric.name.removesuffix("_total"), metric.meaning, metric.kind)
            for sample in metric.samples:
                made.add_sample(metric.name + sample.suffix, dict(sample.labels), sample.value)
            yield made


def _counter(name: str, meaning: str, samples: Sequence[Sample]) -> Metric:
    return Metric(f"steno_{name}_total", "counter", meaning, tuple(samples))


def _by(label: str, counts: Mapping[str, int]) -> list[Sample]:
    return [Sample("", {label: value}, count) for value, count in counts.items()]


def _histogram(name: str, meaning: str, report: HistogramReport) -> Metric:
    bounds = [*(f"{bound:g}" for bound in report.bounds), "+Inf"]
    counts = list(accumulate(report.counts))
    samples = [
        Sample("_bucket", {"le": bound}, count) for bound, count in zip(bounds, counts, strict=True)
    ]
    samples += [Sample("_sum", {}, report.total), Sample("_count", {}, counts[-1])]
    return Metric(f"steno_{name}", "histogram", meaning, tuple(samples))
