"""What a writer works with: where blocking work runs, clocks, counters, and whom to tell."""

from collections.abc import Callable
from dataclasses import dataclass, field

from stenod.blocking import Blocking
from stenod.mailbox import Budget


@dataclass(slots=True)
class Statistics:
    """What a writer did, added up for the whole daemon."""

    appended_records: int = 0
    syncs: int = 0
    sync_s: float = 0.0
    slowest_sync_s: float = 0.0

    def count_sync(self, took_s: float) -> None:
        """Take one more sync into account."""
        self.syncs += 1
        self.sync_s += took_s
        self.slowest_sync_s = max(self.slowest_sync_s, took_s)


@dataclass(frozen=True, slots=True)
class Workshop:
    """What a writer works with, given from outside so that a simulator can give its own.

    Attributes:
        commit: runs writes and syncs.
        read: runs lookups, copies and recovery, which may take long.
        monotonic: seconds that only rise.
        wall: Unix time in seconds.
        flush: sends the answers that were queued.
        statistics: where the writer counts.
        tell: tells the operator something, as an event with fields.
        budget: what waits in all mailboxes together.
    """

    commit: Blocking
    read: Blocking
    monotonic: Callable[[], float]
    wall: Callable[[], float]
    flush: Callable[[], None]
    statistics: Statistics
    tell: Callable[..., None]
    budget: Budget = field(default_factory=Budget)
