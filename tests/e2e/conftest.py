"""What several files of tests with real sockets begin with."""

from collections.abc import Generator
from contextlib import closing
from pathlib import Path

import pytest

from steno._connect.local_connection import LocalConnection
from support.door import Door


@pytest.fixture
def door(root: Path) -> Generator[Door]:
    """A socket behind which a test plays the daemon."""
    with closing(Door(root / "door.sock")) as there:
        yield there


@pytest.fixture
def connection(door: Door) -> Generator[LocalConnection]:
    """A client's connection to it, hands shaken."""
    with closing(door.let_in()) as one:
        yield one
