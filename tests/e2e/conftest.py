"""Fixtures of tests with whole processes."""

import pytest

from steno._connect import spawn
from support import warm_daemon


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
    """Daemons that clients start as forks, for the tests with the mark `forked`.

    It is for tests that end daemons, or whose daemon reads a configuration, and are about what
    becomes of a session then. Those about the start or the process of a daemon have no mark.
    """
    mark = request.node.get_closest_marker("forked")
    if mark is not None and mark.args != (False,):
        monkeypatch.setattr(spawn, "subprocess", warm_daemon.Subprocess)
        monkeypatch.setenv(warm_daemon.ADDRESS, warm_daemon.address())
