"""Fixtures of tests with whole processes."""

import pytest


@pytest.fixture(autouse=True)
def served(request: pytest.FixtureRequest) -> None:
    """A daemon of the root in a thread, for the tests with the mark `served`.

    The start of a daemon takes 0.2 s of processor time, and most tests only need one to be there.
    Those that start or end one have no mark, or `served(False)` in a module that has it.
    """
    mark = request.node.get_closest_marker("served")
    if mark is not None and mark.args != (False,) and "root" in request.fixturenames:
        request.getfixturevalue("daemon")
