"""Whole sessions from seeds: clients that repeat themselves, followers, faults, deaths, a verdict.

A failing seed is printed; `python -m sim.run --first SEED --seeds 1` in `tests/` plays it again.
"""

import random
from pathlib import Path

import pytest

from sim import run
from sim.simulation import play

KEPT_SEEDS = [
    int(line.split()[0])
    for line in (Path(__file__).parent / "seeds.txt").read_text().splitlines()
    if not line.startswith("#")
]
BLOCK = 30


@pytest.mark.parametrize("first", range(0, 8 * BLOCK, BLOCK))
def test_every_promise_holds_for_these_seeds(first: int) -> None:
    for number in range(first, first + BLOCK):
        play(number)


@pytest.mark.parametrize("number", KEPT_SEEDS)
def test_every_promise_holds_for_a_seed_that_once_failed(number: int) -> None:
    play(number)


def test_every_promise_holds_for_seeds_that_nobody_chose(seed: int) -> None:
    chance = random.Random(seed)
    for _ in range(BLOCK):
        play(chance.randrange(10**9))


def test_a_seed_is_played_the_same_way_each_time(capsys: pytest.CaptureFixture[str]) -> None:
    assert [run.trace_of(5), run.trace_of(5)] == [run.trace_of(5)] * 2
    assert run.trace_of(5) != run.trace_of(6)


def test_the_command_prints_failing_seeds_and_says_so_in_its_exit_code(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(number: int, **_: object) -> None:
        assert number != 3, "seed 3: broken"

    monkeypatch.setattr(run, "play", fail)

    assert run.main(["--seeds", "5"]) == 1
    told = capsys.readouterr()
    assert "failing seeds: [3]" in told.out
    assert "seed 3: broken" in told.err
    assert run.main(["--first", "4", "--seeds", "5"]) == 0
