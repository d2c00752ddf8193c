"""The services of a writer: blocking work, clocks, counters and the log."""

from collections.abc import Callable, Sequence
from typing import Protocol, TypeVar

import msgspec

from steno_protocol.settings import Settings
from stenod.core.key_budget import KeyRoom
from stenod.runtime.executor import Blocking, Spawn
from stenod.runtime.quotas import Quotas
from stenod.runtime.statistics import Statistics
from stenod.writer.mailbox import Budget

T = TypeVar("T")
L = TypeVar("L")


class Commits(Blocking, Protocol):
    """Runs commits, and measures their time."""

    @property
    def is_inline(self) -> bool:
        """True while they are so short that they may run on the event loop."""
        ...

    def here(self, work: Callable[[Sequence[L]], T], logs: Sequence[L]) -> tuple[T, float]:
        """Run `work(logs)`, which commits these logs together, on the event loop.

        Returns:
            Its result, and the seconds that it took.
        """
        ...


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
        key_room: what all writers remember of keys together.
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
    key_room: KeyRoom = msgspec.field(default_factory=KeyRoom)
    settings: Callable[[], Settings] = Settings
    quotas: Quotas | None = None
