"""The simulation earns its trust: with any one guard taken out, some seed fails."""

import pytest

from sim.mutants import CASES, MUTANTS

PLAYED_S_MAX = 600
"""For all seeds of a world: a minute of work, for a processor that others may want, too."""


@pytest.mark.parametrize(("name", "world"), [case for case in CASES if case[1] != "model"])
@pytest.mark.slow
@pytest.mark.timeout(PLAYED_S_MAX)
def test_the_simulation_notices(name: str, world: str) -> None:
    assert MUTANTS[name].first_failing_seed(world) is not None
