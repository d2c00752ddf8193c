"""The simulation earns its trust: with any one guard taken out, some seed fails."""

import pytest

from sim.mutants import MUTANTS, first_failing_seed

SEEDS = range(200)


@pytest.mark.parametrize("name", MUTANTS)
def test_the_simulation_notices(name: str) -> None:
    assert first_failing_seed(MUTANTS[name], SEEDS) is not None
