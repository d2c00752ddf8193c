"""Durable appends of other software: a Redis stream, and SQLite's log."""

import importlib
import importlib.util
import shutil
import sqlite3
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from bench.crew import Task
from bench.lines import message
from bench.measuring import latencies_us

Latencies = list[float]


def why_no_redis() -> str | None:
    """Why Redis cannot be measured here, None when it can."""
    if shutil.which("redis-server") is None:
        return "there is no redis-server on the PATH"
    if importlib.util.find_spec("redis") is None:
        return "the package redis is not installed"
    return None


@contextmanager
def redis_server(folder: Path) -> Iterator[str]:
    """A Redis of our own that syncs each append, at a socket; "" when there is none to be had."""
    if why_no_redis() is not None:
        yield ""
        return
    socket = folder / "redis.sock"
    command = ["redis-server", "--port", "0", "--unixsocket", str(socket), "--dir", str(folder),
               "--appendonly", "yes", "--appendfsync", "always", "--save", "",
               "--auto-aof-rewrite-percentage", "0"]  # fmt: skip
    with subprocess.Popen(command, stdout=subprocess.DEVNULL) as process:
        try:
            wait_until_it_answers(str(socket))
            yield str(socket)
        finally:
            process.kill()


def wait_until_it_answers(socket: str) -> None:
    """Return when the server at this socket takes commands; fails after ten seconds."""
    ends_at = time.monotonic() + 10
    while True:
        try:
            _connected(socket).ping()
        except importlib.import_module("redis").exceptions.ConnectionError:
            assert time.monotonic() < ends_at, "redis-server does not answer"
        else:
            return


def _connected(socket: str) -> Any:
    return importlib.import_module("redis").Redis(unix_socket_path=socket)


class Redis:
    """XADD, `in_flight` or `batch` of them in one pipeline."""

    def __init__(self, task: Task) -> None:
        self._task = task

    def run(self, begin: Callable[[], None]) -> Latencies:
        """See `bench.lanes.Lane`."""
        fields = {b"line": message(1)}
        together = max(self._task.in_flight, self._task.batch)
        latencies: Latencies = []
        with _connected(self._task.redis) as client:
            client.ping()
            begin()
            for _ in range(self._task.appends // max(1, self._task.in_flight)):
                start = time.perf_counter()
                pipeline = client.pipeline(transaction=False)
                for _ in range(together):
                    pipeline.xadd("bench", fields)
                pipeline.execute()
                latencies += [(time.perf_counter() - start) * 1e6] * self._task.in_flight
        return latencies


def prepare_sqlite(path: str) -> None:
    """Make the common database before the workers start: concurrent creations fail."""
    with closing(sqlite3.connect(path)) as database:
        database.execute("PRAGMA journal_mode=WAL")
        database.execute("CREATE TABLE lines (id INTEGER PRIMARY KEY, line TEXT)")


class Sqlite:
    """INSERT in a transaction of its own each, in this process: WAL with synchronous=FULL."""

    def __init__(self, task: Task) -> None:
        self._task = task

    def run(self, begin: Callable[[], None]) -> Latencies:
        """See `bench.lanes.Lane`."""
        line = message(1).decode()
        database = sqlite3.connect(self._task.sqlite, timeout=60, isolation_level=None)
        with closing(database):
            database.execute("PRAGMA synchronous=FULL")
            begin()
            return latencies_us(
                self._task.appends,
                lambda: database.execute("INSERT INTO lines (line) VALUES (?)", (line,)),
            )
