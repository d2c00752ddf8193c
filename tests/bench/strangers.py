"""A flood of connections without a key against the TCP address, at several handle limits.

python -m bench.strangers FOLDER [--connections N] [--handles N ...]

Each row: a local client and a client with a key work all the time; the flood is made by two
processes that open connections as fast as they can, send nothing or the first 64 bytes of a
handshake, and hold them.
"""

import argparse
import resource
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import steno
from steno_protocol.commands import Stats
from steno_protocol.replies import StatsReport
from support.foreground import ForegroundDaemon
from support.remote_access import allow, endpoint_of, listen
from support.served_transport import GREETING

HANDLES: Final = (256, 1024, 4096, 20_000)
MESSAGE: Final = {"role": "user", "content": "hi"}
_PROCESSES: Final = 2


def connect_many(port: int, count: int, data: bytes) -> None:
    """Open connections as fast as the system takes them, and hold them until stdin ends."""
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    made: list[socket.socket] = []
    for _ in range(count):
        one = socket.socket()
        one.settimeout(5)
        made.append(one)
        try:
            one.connect(("127.0.0.1", port))
            one.send(data)
        except OSError:
            continue
    print("connected", flush=True)
    sys.stdin.read()


class Worker(threading.Thread):
    """A client that appends until it is stopped."""

    def __init__(self, client: steno.BlockingClient, session: str) -> None:
        super().__init__()
        self._session = client.open(session, follow=False)
        self._is_stopped = False
        self.took_s: list[float] = []

    def run(self) -> None:
        """Append, and note how long each append took."""
        while not self._is_stopped:
            began = time.perf_counter()
            self._session.append_message(MESSAGE)
            self.took_s.append(time.perf_counter() - began)

    def stop(self) -> None:
        """End after the present append."""
        self._is_stopped = True
        self.join()


@contextmanager
def flood(port: int, count: int, data: bytes) -> Iterator[None]:
    """A flood of connections; all have been attempted when the block begins to end."""
    code = f"from bench.strangers import connect_many; connect_many({port}, {count}, {data!r})"
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        for _ in range(_PROCESSES)
    ]
    try:
        yield
        for process in processes:
            assert process.stdout is not None
            assert process.stdout.readline() == "connected\n"
    finally:
        for process in processes:
            process.kill()
            process.communicate()


def measure(root: Path, handles: int, connections: int, data: bytes) -> str:
    """Flood one daemon, and return a row of figures."""
    key = allow(root, "laptop")
    listen(root)
    daemon = ForegroundDaemon(root)
    daemon.handles_max = handles
    with daemon, steno.connect_sync(root, spawn=False) as local:
        endpoint = endpoint_of(daemon)
        port = int(endpoint.rpartition(":")[2])
        with steno.connect_sync(endpoint=endpoint, key_file=key) as keyed:
            alone = _rates(local, keyed, 2.0)
            workers = [Worker(local, "local"), Worker(keyed, "keyed")]
            for worker in workers:
                worker.start()
            began = time.perf_counter()
            connects: list[float] = []
            failures = 0
            with flood(port, connections // _PROCESSES, data):
                while time.perf_counter() - began < 5:
                    start = time.perf_counter()
                    try:
                        with steno.connect_sync(endpoint=endpoint, key_file=key):
                            connects.append(time.perf_counter() - start)
                    except steno.Unreachable:
                        failures += 1
            took = time.perf_counter() - began
            for worker in workers:
                worker.stop()
            rates = [len(worker.took_s) / took for worker in workers]
            slowest = [max(worker.took_s) * 1e3 for worker in workers]
            pid = local.status().pid
            turned_away = local.request(Stats(), StatsReport)[0].turned_away
        assert pid == daemon.pid
        connects.sort()
        return (
            f"{handles:>7} {len(data):>5} {turned_away:>7}"
            f"  local {rates[0]:6.0f}/s of {alone[0]:6.0f}, slowest {slowest[0]:6.1f} ms"
            f"  keyed {rates[1]:6.0f}/s of {alone[1]:6.0f}, slowest {slowest[1]:6.1f} ms"
            f"  new keyed: {len(connects)} connected, {failures} failed,"
            f" p50 {connects[len(connects) // 2] * 1e3:.0f} ms, slowest {connects[-1] * 1e3:.0f} ms"
        )


def _rates(local: steno.BlockingClient, keyed: steno.BlockingClient, seconds: float) -> list[float]:
    workers = [Worker(local, "local"), Worker(keyed, "keyed")]
    for worker in workers:
        worker.start()
    workers[0].join(seconds)
    for worker in workers:
        worker.stop()
    return [len(worker.took_s) / seconds for worker in workers]


def main() -> None:
    """Print a row for each limit and kind of stranger."""
    parser = argparse.ArgumentParser(prog="python -m bench.strangers")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--connections", type=int, default=16_000)
    parser.add_argument("--handles", type=int, nargs="*", default=HANDLES)
    options = parser.parse_args()
    for handles in options.handles:
        for number, data in enumerate((b"", GREETING.replace(b"NULL\0", b"CURVE"))):
            root = options.folder / f"{handles}-{number}"
            root.mkdir(parents=True, mode=0o700)
            print(measure(root, handles, options.connections, data), flush=True)


if __name__ == "__main__":
    main()
