"""The simulation earns its trust: with any one guard taken out, some seed fails."""

import pytest

from sim.mutants import MUTANTS, first_failing_seed
from sim.whole_mutants import WHOLE_MUTANTS, first_failing_whole_seed

SEEDS = range(200)


@pytest.mark.parametrize("name", MUTANTS)
@pytest.mark.slow
def test_the_simulation_notices(name: str) -> None:
    assert first_failing_seed(MUTANTS[name], SEEDS) is not None


@pytest.mark.parametrize("name", WHOLE_MUTANTS)
@pytest.mark.slow
def test_the_whole_simulation_notices(name: str) -> None:
    assert first_failing_whole_seed(WHOLE_MUTANTS[name], SEEDS) is not None
