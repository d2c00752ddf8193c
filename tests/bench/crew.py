"""Worker processes that start together and stay for all rounds, their tasks and outcomes."""

import os
import subprocess
import sys
from contextlib import ExitStack
from types import TracebackType
from typing import Final, Self

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


class Crew:
    """A context manager with client processes."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._stack = ExitStack()
        self._workers: list[subprocess.Popen[str]] = []

    def __enter__(self) -> Self:
        for _ in range(self._size):
            worker = subprocess.Popen(
                [sys.executable, "-m", "bench.worker"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
            self._workers.append(self._stack.enter_context(worker))
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if error is not None:
            for worker in self._workers:
                worker.kill()
        self._stack.close()

    def work(self, task: Task) -> list[Outcome]:
        """All do the same task at the same time."""
        self._say(msgspec.json.encode(task).decode())
        for worker in self._workers:
            assert _heard(worker) == "ready"
        self._say("go")
        return [msgspec.json.decode(_heard(worker), type=Outcome) for worker in self._workers]

    def _say(self, line: str) -> None:
        for worker in self._workers:
            assert worker.stdin is not None
            worker.stdin.write(line + "\n")
            worker.stdin.flush()


def _heard(worker: subprocess.Popen[str]) -> str:
    assert worker.stdout is not None
    line = worker.stdout.readline()
    if not line:
        raise RuntimeError("a worker ended: see what it said above")
    return line.rstrip("\n")
