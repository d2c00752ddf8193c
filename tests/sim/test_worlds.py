"""Worlds from seeds: clients that repeat themselves, followers, faults, deaths, and a verdict.

A failing seed is printed; `python -m sim.run --world WORLD --first SEED --seeds 1` in `tests/`
plays it again.
"""

import random
from collections import Counter
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest

from sim import run
from sim.daemon_simulation import TREE, DaemonSimulation
from sim.files import Folder, folders_of
from sim.foreign_program import IN_PLACE, MANNERS
from sim.hosts_simulation import HostsSimulation
from sim.play import play, trace_of
from sim.worlds import WORLDS
from sim.writers import STREAM
from steno_protocol import paths
from steno_protocol.timeline_entries import TimelineEntry
from support.writing import PATH

QUICK = 10
BLOCK = 30
SEEDS = {
    "context": 120, "files": 60, "streams": 60, "successors": 60, "hosts": 30, "daemon": 150,
    "full": 90, "groups": 60, "moves": 60, "foreign": 60, "rough": 120,
}  # fmt: skip
"""Seeds that every run plays in each world."""

DRAWN = {
    "context": 30, "files": 30, "streams": 30, "successors": 90, "hosts": 15, "daemon": 40,
    "full": 30, "groups": 30, "moves": 30, "foreign": 24, "rough": 60,
}  # fmt: skip
"""Seeds that each run plays anew."""

BLOCKS = [
    pytest.param(world, first, end, marks=[pytest.mark.slow] if first else [])
    for world, count in SEEDS.items()
    for first, end in pairwise([0, *range(QUICK, count, BLOCK), count])
]
"""The first seeds of each world show most faults, and the others are for what is rare."""

KEPT_SEEDS = [
    (line.split()[0], int(line.split()[1]))
    for line in (Path(__file__).parent / "seeds.txt").read_text().splitlines()
    if not line.startswith("#")
]


@pytest.mark.parametrize(("world", "first", "end"), BLOCKS)
def test_every_promise_holds_for_these_seeds(world: str, first: int, end: int) -> None:
    for seed in range(first, end):
        play(world, seed)


@pytest.mark.parametrize(("world", "number"), KEPT_SEEDS)
def test_every_promise_holds_for_a_seed_that_once_failed(world: str, number: int) -> None:
    play(world, number)


@pytest.mark.slow
@pytest.mark.parametrize("world", WORLDS)
def test_every_promise_holds_for_seeds_of_this_run(world: str, seed: int) -> None:
    chance = random.Random(seed)
    for _ in range(DRAWN[world]):
        play(world, _drawn(world, chance))


def _drawn(world: str, chance: random.Random) -> int:
    if world != "rough":
        return chance.randrange(10**9)
    # Edits in place destroy what cannot be counted exactly; those seeds were looked at.
    gentle = len(MANNERS) - len(IN_PLACE)
    return len(MANNERS) * chance.randrange(10**8) + chance.randrange(gentle)


@pytest.mark.parametrize("world", ["context", "files"])
@pytest.mark.parametrize(
    "offset", [0, pytest.param(1, marks=pytest.mark.slow), pytest.param(2, marks=pytest.mark.slow)]
)
def test_every_promise_holds_when_wall_clocks_jump(offset: int, world: str) -> None:
    for seed in range(offset, 60, 4):
        play(world, seed, replace(WORLDS[world](seed), clock_jumps=True, few_keys=True))


@pytest.mark.parametrize("world", WORLDS)
def test_a_seed_is_played_the_same_way_each_time(world: str) -> None:
    first, again, other = (trace_of(play(world, seed)) for seed in (5, 5, 6))
    assert first == again
    assert first != other


@pytest.mark.parametrize("world", ["files", "rough"])
def test_most_seeds_leave_events_and_messages_behind(world: str) -> None:
    both = 0
    for seed in range(10):
        tree = play(world, seed).disk.tree()
        both += all(tree.get(f"{PATH}/{name}") for name in (paths.CONTEXT, paths.WIRE))
    assert both >= 7


def test_most_seeds_leave_records_of_the_stream_behind() -> None:
    trees = [play("streams", seed).disk.tree() for seed in range(10)]
    assert sum(bool(tree.get(f"{PATH}/{STREAM}")) for tree in trees) >= 7


def test_some_seeds_have_takeovers_doubts_fenced_owners_and_snapshots() -> None:
    happened = Counter[str]()
    for seed in range(12):
        simulation = play("hosts", seed)
        assert isinstance(simulation, HostsSimulation)
        happened.update(each for host in simulation.hosts for each in set(host.log))
    wanted = ("taken_over", "in_doubt", "fenced", "shortened")
    assert all(happened[event] >= 2 for event in wanted), happened


@pytest.mark.slow
def test_some_seeds_have_every_kind_of_entry() -> None:
    happened, done = Counter[str](), Counter[str]()
    for seed in range(50):
        simulation = play("full", seed)
        assert isinstance(simulation, DaemonSimulation)
        for folder in folders_of(simulation.disk.tree(), TREE).values():
            happened.update(_kinds_in(folder))
        orders = [order for order in simulation.orders if order.is_acknowledged]
        done.update(type(order.command).__name__ for order in orders)

    wanted = ("event", "compacted", "sent", "delivered", "expired", "restored", "reverted", "fork")
    assert all(happened[kind] for kind in wanted), happened
    assert done["AppendWire"] > 50
    assert done["CompactCommit"] > 5


def _kinds_in(folder: Folder) -> list[str]:
    expired = ["expired" for entry in folder.entries if _has_expired_mail(entry)]
    return [
        *(entry.kind for entry in folder.entries),
        *expired,
        *("event" for _ in folder.wire[1:]),
    ]


def _has_expired_mail(entry: TimelineEntry) -> bool:
    return "expired_mail" in entry.details


def test_the_command_prints_failing_seeds_and_exits_with_one(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(world: str, number: int) -> None:
        assert (world, number) != ("full", 3), "seed 3: broken"

    monkeypatch.setattr(run, "play", fail)

    assert run.main(["--seeds", "5", "--world", "full"]) == 1
    printed = capsys.readouterr()
    assert "failing seeds: [3]" in printed.out
    assert "seed 3: broken" in printed.err
    assert run.main(["--seeds", "5"]) == 0
    assert run.main(["--first", "4", "--seeds", "5", "--world", "full"]) == 0
