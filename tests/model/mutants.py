"""`python -m model.mutants NAME`: play the model with one guard taken out; 3 if it was noticed."""

import sys

from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import run_state_machine_as_test

from sim.mutants import MUTANTS

EXAMPLES = 250

NOTICED = 3
"""The exit code when the model noticed that a guard is missing."""


def main(name: str) -> int:
    """Play the same sessions each time; return `NOTICED` if one breaks in any way."""
    # Imported here, because the test itself imports this module.
    from model.test_session_model import STEPS, WholeSession

    how = settings(
        max_examples=EXAMPLES,
        stateful_step_count=STEPS,
        deadline=None,
        database=None,
        derandomize=True,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    with MUTANTS[name].applied():
        try:
            run_state_machine_as_test(WholeSession, settings=how)
        except Exception:
            return NOTICED
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
