"""The tasks and reports of worker processes: one line of JSON each."""

import os
from typing import Final

import msgspec

SESSION: Final = "bench/appends"
"""The session of all appends."""


class Task(msgspec.Struct, frozen=True, kw_only=True):
    """One round of one lane in one process.

    Attributes:
        lane: a name of `bench.lanes.LANES`.
        appends: lines to append.
        in_flight: how many of them may be unanswered at a time.
        root: the daemon's root.
        endpoint: the daemon's address.
        floor: the floor's address.
        by_hand: the file that is appended to by hand.
        echo: the address of a floor that answers and writes nothing.
        redis: the socket of a Redis, "" when there is none.
        sqlite: the database of SQLite.
        servers: the addresses of NATS servers, with commas between them.
        batch: lines that go together as one atomic append.
        own_session: whether each process appends to a session, or a file, of its own.
    """

    lane: str
    appends: int
    in_flight: int
    root: str
    endpoint: str
    floor: str
    by_hand: str
    echo: str = ""
    redis: str = ""
    sqlite: str = ""
    servers: str = ""
    batch: int = 1
    own_session: bool = False

    @property
    def session(self) -> str:
        """The session that this process appends to."""
        return f"{SESSION}-{os.getpid()}" if self.own_session else SESSION


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """When the appends began and ended on the machine's monotonic clock, and how long each took."""

    began_s: float
    ended_s: float
    latencies_us: list[float]
