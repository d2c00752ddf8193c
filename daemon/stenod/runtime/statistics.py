"""Counters and histograms of a daemon.

A writer counts once a group, not once a record, so that counting costs nothing measurable.
"""

from bisect import bisect_left
from collections import Counter
from collections.abc import Sequence
from math import inf
from typing import Final

import msgspec

from steno_protocol.replies import HistogramReport

SYNC_BOUNDS_S: Final = (
    0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0,
)  # fmt: skip
"""Bounds of sync times, from a fast disk's cache to a hanging disk."""

GROUP_BOUNDS: Final = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512)
"""Bounds of the commands of a group commit, up to `GROUP_COMMANDS_MAX`."""


class Histogram:
    """A histogram with fixed buckets.

    Args:
        bounds: the inclusive upper bound of each bucket; one more bucket has the larger values.
    """

    def __init__(self, bounds: Sequence[float]) -> None:
        self._bounds = bounds
        self._counts = [0] * (len(bounds) + 1)
        self._total = 0.0

    def add(self, value: float) -> None:
        """Count one value."""
        self._counts[bisect_left(self._bounds, value)] += 1
        self._total += value

    def report(self) -> HistogramReport:
        """Return the buckets as a part of a reply."""
        return HistogramReport(
            bounds=[float(bound) for bound in self._bounds],
            counts=self._counts.copy(),
            total=self._total,
        )


class Statistics(msgspec.Struct):
    """Counters of a daemon since its start.

    Attributes:
        slow_sync_s: a sync that takes longer is slow.
        slow_sync_at: Unix time of the last sync that was slower than expected.
        rewrites: rewrites by kind.
        errors: error replies by code.
        failed_at: Unix time of the last error reply by code.
    """

    appended_records: int = 0
    appended_bytes: int = 0
    syncs: int = 0
    sync_s: float = 0.0
    slowest_sync_s: float = 0.0
    slow_sync_s: float = inf
    slow_syncs: int = 0
    slow_sync_at: float | None = None
    dropped: int = 0
    lagged: int = 0
    turned_away: int = 0
    rewrites: Counter[str] = msgspec.field(default_factory=Counter[str])
    errors: Counter[str] = msgspec.field(default_factory=Counter[str])
    failed_at: dict[str, float] = msgspec.field(default_factory=dict[str, float])
    groups: Histogram = msgspec.field(default_factory=lambda: Histogram(GROUP_BOUNDS))
    sync_times: Histogram = msgspec.field(default_factory=lambda: Histogram(SYNC_BOUNDS_S))

    def count_group(self, commands: int, records: int, size: int) -> None:
        """Count a stored and acknowledged group."""
        self.groups.add(commands)
        self.appended_records += records
        self.appended_bytes += size

    def count_sync(self, took_s: float) -> bool:
        """Count one sync; True if it was slow."""
        self.syncs += 1
        self.sync_s += took_s
        self.slowest_sync_s = max(self.slowest_sync_s, took_s)
        self.sync_times.add(took_s)
        return took_s > self.slow_sync_s
