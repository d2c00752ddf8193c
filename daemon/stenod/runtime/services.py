"""The services of a writer: blocking work, clocks, counters and the log."""

from collections.abc import Callable

import msgspec

from steno_protocol.settings import Settings
from stenod.runtime.executor import Blocking, Commits, Spawn
from stenod.runtime.mailbox import Budget
from stenod.runtime.quotas import Quotas
from stenod.runtime.statistics import Statistics


class Services(msgspec.Struct, frozen=True):
    """What a writer works with, given from outside so that a simulator can give its own.

    Attributes:
        commit: runs writes and syncs.
        read: runs lookups, copies and recovery, which may take long.
        monotonic: seconds that only rise.
        wall: Unix time in seconds.
        flush: sends the answers that were queued.
        statistics: where the writer counts.
        log: logs an event with fields.
        spawn: starts a task that no caller awaits.
        budget: what waits in all mailboxes together.
        settings: the options in force at this moment.
        quotas: how much sessions may take; None is as much as the disk has.
    """

    commit: Commits
    read: Blocking
    monotonic: Callable[[], float]
    wall: Callable[[], float]
    flush: Callable[[], None]
    statistics: Statistics
    log: Callable[..., None]
    spawn: Spawn
    budget: Budget = msgspec.field(default_factory=Budget)
    settings: Callable[[], Settings] = Settings
    quotas: Quotas | None = None

    def count_sync(self, session: str, took_s: float) -> None:
        """Count one sync, and log it when it was slow."""
        self.statistics.count_sync(took_s)
        expected_s = self.settings().number("disk.slow_sync_s")
        if took_s > expected_s:
            self.statistics.slow_syncs += 1
            self.statistics.slow_sync_at = self.wall()
            self.log("slow_sync", session=session, took_s=took_s, expected_s=expected_s)
