"""Each adapter of a framework beside the framework's own default store."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import anyio

from bench.adapter_stores import FRAMEWORKS, Framework, Opened
from bench.appends import MEASURES, figures_of
from bench.crew import Crew, Task
from bench.measuring import Comparison
from support.foreground import ForegroundDaemon

LOADED: Final = 10_000


@dataclass(frozen=True, slots=True)
class _Load:
    title: str
    clients: int
    appends: int
    ratio_of: str


_LOADS: Final = (
    _Load("append, 1 client, one after the other", 1, 300, "p50_us"),
    _Load("append, 16 processes on one session", 16, 160, "acks_per_s"),
)


def measure(folder: Path, rounds: int, report: Callable[[str], None]) -> list[Comparison]:
    """Appends and loads of all frameworks that are installed; the first round is dropped."""
    found: list[Comparison] = []
    for number, (name, framework) in enumerate(FRAMEWORKS.items()):
        reason = framework.why_not()
        if reason is not None:
            report(f"{name}: left out: {reason}")
            continue
        place = folder / f"framework-{number}"
        place.mkdir()
        found += [
            _appends(place / str(load.clients), name, load, rounds, report) for load in _LOADS
        ]
        found.append(_loads(place / "load", name, rounds, report))
    return found


def _appends(
    place: Path, name: str, load: _Load, rounds: int, report: Callable[[str], None]
) -> Comparison:
    framework = FRAMEWORKS[name]
    comparison = Comparison(f"{name}: {load.title}", MEASURES, load.ratio_of, [framework.own])
    is_measured = {"own": load.clients == 1 or framework.is_shared, "steno": True}
    if not is_measured["own"]:
        report(f"{comparison.title}: {framework.own} is left out: it is for one process")
    with ForegroundDaemon(place) as daemon, Crew(load.clients) as crew:
        for number in range(rounds + 1):
            for which in (each for each in is_measured if is_measured[each]):
                appends = (load.appends if number else load.appends // 5) // load.clients
                task = _task(place, daemon.endpoint, f"{name}: {which}", appends)
                if not number:
                    # One process creates the files, as concurrent creations may fail.
                    anyio.run(_fill, _opened(framework, which), task, 1)
                figures = figures_of(crew.work(task))
                report(f"{comparison.title}: {which}: {figures['acks_per_s']:,.0f} acks/s")
                if number:
                    comparison.add(_row(framework, which), figures)
    return comparison


def _loads(place: Path, name: str, rounds: int, report: Callable[[str], None]) -> Comparison:
    framework = FRAMEWORKS[name]
    title = f"{name}: load of {LOADED:,} entries"
    comparison = Comparison(title, ("load_ms",), "load_ms", [framework.own])
    report(f"{title}: stores them, then loads them in turn")
    with ForegroundDaemon(place) as daemon:
        task = _task(place, daemon.endpoint, f"{name}: load", LOADED)
        for which, load_ms in anyio.run(_load, framework, task, rounds):
            comparison.add(_row(framework, which), {"load_ms": load_ms})
    return comparison


async def _fill(opened: Callable[[Task], Opened], task: Task, count: int) -> None:
    async with opened(task) as conversation:
        await conversation.fill(count)


async def _load(framework: Framework, task: Task, rounds: int) -> list[tuple[str, float]]:
    found: list[tuple[str, float]] = []
    async with framework.open_own(task) as own, framework.open_steno(task) as ours:
        both = {"own": own, "steno": ours}
        for conversation in both.values():
            await conversation.fill(task.appends)
        for _ in range(rounds + 1):
            for which, conversation in both.items():
                start = time.perf_counter()
                count = await conversation.load()
                found.append((which, (time.perf_counter() - start) * 1e3))
                assert count == task.appends
    return found[len(both) :]


def _opened(framework: Framework, which: str) -> Callable[[Task], Opened]:
    return framework.open_steno if which == "steno" else framework.open_own


def _row(framework: Framework, which: str) -> str:
    return "steno" if which == "steno" else framework.own


def _task(place: Path, endpoint: str, lane: str, appends: int) -> Task:
    return Task(
        lane=lane, appends=appends, in_flight=1, root=str(place), endpoint=endpoint, floor="",
        by_hand="", sqlite=str(place / "own.sqlite"),
    )  # fmt: skip
