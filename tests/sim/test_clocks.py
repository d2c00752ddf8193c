"""Wall clocks that are set back and forth by hours and years: the daemon's and its clients'."""

from dataclasses import replace
from unittest.mock import patch

import pytest

from sim.both_files import BothFiles
from sim.simulation import Simulation, play, world_of
from stenod.core.keys import KeyTable

SEEDS = range(0, 60, 4)


def with_jumps(seed: int, kind: type[Simulation]) -> None:
    play(seed, replace(world_of(seed), clock_jumps=True), kind)


@pytest.mark.parametrize("kind", [Simulation, BothFiles])
@pytest.mark.parametrize("offset", [0, 1, 2])
def test_nothing_is_lost_or_done_twice_whatever_the_clocks_say(
    offset: int, kind: type[Simulation]
) -> None:
    for number in SEEDS:
        with_jumps(number + offset, kind)


def test_a_repeat_that_is_not_looked_up_because_of_its_time_is_noticed() -> None:
    ask = KeyTable.must_be_looked_up

    def believe_the_time(self: KeyTable, key: str, *, repeat: bool) -> bool:
        return ask(self, key, repeat=False)

    def fails(seed: int) -> bool:
        try:
            with_jumps(seed, Simulation)
        except AssertionError:
            return True
        return False

    with patch.object(KeyTable, "must_be_looked_up", believe_the_time):
        assert any(fails(number) for number in range(200))
