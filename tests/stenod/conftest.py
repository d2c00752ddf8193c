"""Fixtures of the actor tests."""

import pytest

from support.writing import Desk


@pytest.fixture
def commit_mode(anyio_backend: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A `Desk`'s writers commit in groups on asyncio, as on a fast disk, and in tasks on trio.

    No event loop has an influence on what a group does, so the other two pairs would show nothing
    more. A `DaemonInProcess` always commits in groups and does not need this fixture.
    """
    monkeypatch.setattr(Desk, "serves_at_once", anyio_backend == "asyncio")
