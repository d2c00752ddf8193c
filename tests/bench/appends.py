"""Durable appends of many processes: steno, the floor, and file locks."""

import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from bench.crew import Crew, Outcome, Task
from bench.measuring import Comparison, percentile
from bench.peers import prepare_sqlite, redis_server, why_no_redis
from support.foreground import ForegroundDaemon

MEASURES = ("p50_us", "p99_us", "acks_per_s")


@dataclass(frozen=True, slots=True)
class Load:
    """The number of clients, of appends in flight for each, and of all appends."""

    title: str
    clients: int
    in_flight: int
    appends: int
    lanes: Sequence[str]
    ratio_of: str
    batch: int = 1
    own_session: bool = False


_STENO = ("raw", "blocking", "async")
_ALL = ("floor", "by hand", "redis", "sqlite", *_STENO)
_BESIDE = ("floor", "by hand", "echo", "redis")

LOADS = (
    Load("1 client, one append after the other", 1, 1, 800, _ALL, "p50_us"),
    Load("1 client, written and not synced", 1, 1, 1600, ("echo", "raw, written"), "p50_us"),
    Load("16 clients, one append after the other", 16, 1, 4800, _ALL, "acks_per_s"),
    # A lock of one file locks sixteen as well, so they have the files to themselves, as we do.
    Load("16 clients on 16 sessions, one append after the other", 16, 1, 3200,
         ("floor", "by hand", *_STENO), "acks_per_s", own_session=True),
    # Nothing can be in flight by hand, and a blocking call is one at a time: they go as before.
    Load("16 clients, 64 appends in flight each", 16, 64, 16_384,
         ("floor", "redis", "raw", "async"), "acks_per_s"),
    Load("16 clients, one atomic batch of 64 after the other", 16, 1, 640,
         ("redis", "raw", "blocking"), "acks_per_s", batch=64),
)  # fmt: skip


def measure(folder: Path, rounds: int, report: Callable[[str], None]) -> list[Comparison]:
    """All loads, the lanes in turn within each round; the first round warms up and is dropped."""
    found: list[Comparison] = []
    with _services(folder) as places:
        for load in LOADS:
            _skip_redis(load, report)
            beside = [lane for lane in _BESIDE if lane in load.lanes]
            comparison = Comparison(load.title, MEASURES, load.ratio_of, beside)
            with Crew(load.clients) as crew:
                for number in range(rounds + 1):
                    _round(crew, load, places, comparison if number else None, report)
            found.append(comparison)
    return found


def _round(
    crew: Crew,
    load: Load,
    places: dict[str, str],
    comparison: Comparison | None,
    report: Callable[[str], None],
) -> None:
    for lane in load.lanes:
        if lane == "redis" and not places["redis"]:
            continue
        total = load.appends if comparison is not None else load.appends // 10
        task = Task(lane=lane, appends=total // load.clients, in_flight=load.in_flight,
                    batch=load.batch, own_session=load.own_session, **places)  # fmt: skip
        figures = figures_of(crew.work(task))
        report(f"{load.title}: {lane}: {figures['acks_per_s']:,.0f} acks/s")
        if comparison is not None:
            comparison.add(lane, figures)


def _skip_redis(load: Load, report: Callable[[str], None]) -> None:
    reason = why_no_redis()
    if reason is not None and "redis" in load.lanes:
        report(f"{load.title}: redis is left out: {reason}")


def figures_of(outcomes: list[Outcome]) -> dict[str, float]:
    """The figures of one round of one lane."""
    latencies = sorted(latency for outcome in outcomes for latency in outcome.latencies_us)
    began = min(outcome.began_s for outcome in outcomes)
    ended = max(outcome.ended_s for outcome in outcomes)
    return {
        "p50_us": percentile(latencies, 0.5),
        "p99_us": percentile(latencies, 0.99),
        "acks_per_s": len(latencies) / (ended - began),
    }


@contextmanager
def _services(folder: Path) -> Iterator[dict[str, str]]:
    """The daemon and the floor, side by side on one disk, and the fields of a task for them."""
    root = folder / "root"
    floor = f"ipc://{folder}/floor.sock"
    echo = f"ipc://{folder}/echo.sock"
    database = str(folder / "lines.sqlite")
    prepare_sqlite(database)
    with (
        ForegroundDaemon(root) as daemon,
        _floor(floor, str(folder / "floor.jsonl")),
        _floor(echo),
        redis_server(folder) as redis,
    ):
        yield {
            "root": str(root),
            "endpoint": daemon.endpoint,
            "floor": floor,
            "echo": echo,
            "by_hand": str(folder / "by-hand.jsonl"),
            "redis": redis,
            "sqlite": database,
        }


@contextmanager
def _floor(*arguments: str) -> Iterator[None]:
    command = [sys.executable, "-m", "bench.floor", *arguments]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
            yield
        finally:
            process.kill()
