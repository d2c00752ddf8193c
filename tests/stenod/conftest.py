"""Fixtures of the actor tests."""

import pytest

from support.writing import Desk


@pytest.fixture(params=["in tasks", "in groups"])
def commit_mode(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """A `Desk`'s writers commit in their tasks, as on a slow disk, and in groups, as on a fast one.

    A `DaemonInProcess` always commits in groups and does not need this fixture.
    """
    monkeypatch.setattr(Desk, "serves_at_once", request.param == "in groups")
