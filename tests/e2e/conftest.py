"""Fixtures of tests with whole processes."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from steno import Client, Session, connect
from steno._connect import spawn
from support import warm_daemon
from support.command import Steno


@pytest.fixture(autouse=True)
def served(request: pytest.FixtureRequest) -> None:
    """A daemon of the root in a thread, for the tests with the mark `served`.

    The start of a daemon takes 0.2 s of processor time, and most tests only need one to be there.
    Those that start or end one have no mark, or `served(False)` in a module that has it.
    """
    mark = request.node.get_closest_marker("served")
    if mark is not None and mark.args != (False,) and "root" in request.fixturenames:
        request.getfixturevalue("daemon")


@pytest.fixture(autouse=True)
def forked(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Daemons that clients start as forks, except for tests with the mark `forked(False)`.

    Those are about the start of a daemon and its process. The others are about what becomes of a
    session, and two thirds of the processor time of a start is that of an interpreter.
    """
    if request.node.get_closest_marker("forked") is None:
        monkeypatch.setattr(spawn, "subprocess", warm_daemon.Subprocess)
        monkeypatch.setenv(warm_daemon.ADDRESS, warm_daemon.address())


@pytest.fixture
def steno(root: Path) -> Steno:
    """The command on the root."""
    return Steno(root)


@pytest.fixture
async def client(root: Path) -> AsyncIterator[Client]:
    """An async client of the root."""
    async with connect(root) as client:
        yield client


@pytest.fixture
async def session(client: Client) -> Session:
    """The session `demo`, followed by an async client."""
    return await client.open("demo")
