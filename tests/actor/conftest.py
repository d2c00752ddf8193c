"""What the tests of tasks share."""

import pytest

from support.writing import Desk


@pytest.fixture(params=["in tasks", "in rounds"], autouse=True)
def serving(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Writers serve in their tasks, as on a slow disk, and in rounds, as on a fast one."""
    monkeypatch.setattr(Desk, "serves_at_once", request.param == "in rounds")
