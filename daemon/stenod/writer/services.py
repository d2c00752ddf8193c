"""The services of a writer: blocking work, clocks, counters and the log."""

from collections.abc import Callable
from typing import Protocol, TypeVar

import msgspec

from steno_protocol.settings import Settings
from stenod.runtime.executor import Blocking, Spawn
from stenod.runtime.quotas import Quotas
from stenod.runtime.statistics import Statistics
from stenod.runtime.unknown_outcomes import UnknownOutcomes
from stenod.runtime.unreported_repairs import UnreportedRepairs
from stenod.writer.mailbox import Budget

T = TypeVar("T")


class Commits(Protocol):
    """Runs commits, and measures how long they take.

    Attributes:
        groups_max: group commits that are under way at a time. One disk takes one after the other;
            other machines take several as fast as one.
    """

    groups_max: int

    @property
    def is_inline(self) -> bool:
        """True while commits are short enough to run on the event loop."""
        ...

    async def __call__(self, work: Callable[[], T], files: int = 1) -> T:
        """Commit so many files together, inline or in a thread.

        Raises:
            OSError: the system gave no thread; `work` has not begun.
        """
        ...

    def here(self, work: Callable[[], T], files: int = 1) -> T:
        """As a call, but always on the event loop."""
        ...


class Services(msgspec.Struct, frozen=True):
    """What a writer works with; the simulator passes its own.

    Attributes:
        commit: runs writes and syncs.
        read: runs lookups, copies and recovery, which may take long.
        monotonic: seconds on a clock that never goes back.
        wall: Unix time in seconds.
        flush: sends the queued replies.
        statistics: the daemon's counters.
        log: logs an event with fields.
        spawn: starts a task in the background.
        unknown: the keys of commands whose outcome is unknown.
        repairs: the repairs of opened files that no reply has reported yet.
        budget: the bytes in all mailboxes together.
        settings: returns the options in force.
        quotas: disk quotas; None without any.
    """

    commit: Commits
    read: Blocking
    monotonic: Callable[[], float]
    wall: Callable[[], float]
    flush: Callable[[], None]
    statistics: Statistics
    log: Callable[..., None]
    spawn: Spawn
    unknown: UnknownOutcomes
    repairs: UnreportedRepairs = msgspec.field(default_factory=UnreportedRepairs)
    budget: Budget = msgspec.field(default_factory=Budget)
    settings: Callable[[], Settings] = Settings
    quotas: Quotas | None = None
