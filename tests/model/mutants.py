"""`python -m model.mutants NAME`: play the model with one guard taken out; 3 if it was noticed."""

import sys
from unittest.mock import patch

from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import run_state_machine_as_test

from model.guards import MUTANTS, NOTICED
from model.test_session_model import STEPS, WholeSession

EXAMPLES = 250


def main(name: str) -> int:
    """Whether any of the same many sessions breaks, in whatever way, as an exit code."""
    how = settings(
        max_examples=EXAMPLES,
        stateful_step_count=STEPS,
        deadline=None,
        database=None,
        derandomize=True,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    with patch.object(*MUTANTS[name]):
        try:
            run_state_machine_as_test(WholeSession, settings=how)
        except Exception:
            return NOTICED
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
