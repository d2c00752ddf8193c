"""pytest fixtures that give a session on a private daemon.

    pytest_plugins = ["steno.testing"]            in the conftest.py at the root of the tests
    from steno.testing import steno_session       or this line in one test module

steno_root            the root of the private daemon, which starts with the first client
steno_client          a blocking client of it
steno_session         a new session, through a blocking client of its own
async_steno_client    the same through an async client, for tests that anyio runs
async_steno_session

All tests of a process share one daemon, and each test gets a new session. While a test uses one of
the fixtures, STENO_HOME is the private root, and STENO_SOCKET, STENO_ENDPOINT, STENO_KEY_FILE
and STENO_TOKEN are unset, so that the tested code cannot reach the user's own daemon.

The daemon ends with the last test. It may be killed by a test: the next client starts another one.
If the test run itself is killed, the daemon ends when it has been idle for half a minute.
"""

import re
from collections.abc import AsyncIterator, Generator, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final

import pytest

from steno import BlockingClient, BlockingSession, Client, Session, connect, connect_sync
from steno.parts import new_key
from steno.testing.temporary_root import private_root

_ROOT: Final = pytest.StashKey[Path]()

_OTHER_DAEMONS: Final = ("STENO_SOCKET", "STENO_ENDPOINT", "STENO_KEY_FILE", "STENO_TOKEN")
"""Variables of the environment that lead to another daemon than that of STENO_HOME."""


@pytest.fixture
def steno_root(request: pytest.FixtureRequest) -> Iterator[Path]:
    """The root of the private daemon."""
    with _private_environment(request) as root:
        yield root


@pytest.fixture
def steno_client(request: pytest.FixtureRequest) -> Iterator[BlockingClient]:
    """A blocking client of the private daemon."""
    with _private_environment(request) as root, connect_sync(root) as client:
        yield client


@pytest.fixture
def steno_session(request: pytest.FixtureRequest) -> Iterator[BlockingSession]:
    """A new session on the private daemon, through a blocking client."""
    with _private_environment(request) as root, connect_sync(root) as client:
        yield client.open(_new_id(request))


@pytest.fixture
async def async_steno_client(
    request: pytest.FixtureRequest, anyio_backend: object
) -> AsyncIterator[Client]:
    """An async client of the private daemon."""
    del anyio_backend  # with it anyio runs this fixture
    with _private_environment(request) as root:
        async with connect(root) as client:
            yield client


@pytest.fixture
async def async_steno_session(
    request: pytest.FixtureRequest, anyio_backend: object
) -> AsyncIterator[Session]:
    """A new session on the private daemon, through an async client."""
    del anyio_backend  # with it anyio runs this fixture
    with _private_environment(request) as root:
        async with connect(root) as client:
            yield await client.open(_new_id(request))


@contextmanager
def _private_environment(request: pytest.FixtureRequest) -> Generator[Path]:
    """The private root of this process's tests, made by the first of them, as STENO_HOME."""
    # Kept here and not by a fixture of a wider scope: a module that imports one fixture by its name
    # has no other.
    tests = request.session
    if _ROOT not in tests.stash:
        resources = ExitStack()
        tests.stash[_ROOT] = resources.enter_context(private_root())
        tests.addfinalizer(resources.close)
    root = tests.stash[_ROOT]
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("STENO_HOME", str(root))
        for name in _OTHER_DAEMONS:
            patch.delenv(name, raising=False)
        yield root


def _new_id(request: pytest.FixtureRequest) -> str:
    """A session id that contains the name of the test."""
    words = re.sub(r"[^A-Za-z0-9_]+", "-", request.node.name).strip("-")
    return f"{words[:60]}-{new_key()[-12:]}"
