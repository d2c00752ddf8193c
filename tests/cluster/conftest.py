"""Fixtures with real NATS servers, and with the model of them in memory."""

import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from stenod_cluster.journal import Journal
from support.memory_journal import MemoryStream
from support.nats_cluster import NatsCluster
from support.nats_journals import READY_S, joined, options, skip_without_servers

Join = Callable[[str], Journal]

TEST_S = 300
"""Time for a test: longer than some waits for servers that other tests leave no processor."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Give the tests of this folder their time."""
    for item in items:
        if item.path.parent == Path(__file__).parent:
            item.add_marker(pytest.mark.timeout(TEST_S))


@pytest.fixture
def folder() -> Iterator[Path]:
    """A short folder for temporary files: the path of a socket is bounded."""
    skip_without_servers()
    made = Path(tempfile.mkdtemp(prefix="steno-")).resolve()
    yield made
    shutil.rmtree(made, ignore_errors=True)


@pytest.fixture(scope="session")
def three_nodes() -> Iterator[NatsCluster]:
    """Three servers that no test harms."""
    skip_without_servers()
    with NatsCluster() as cluster:
        yield cluster


@pytest.fixture
def one_node() -> Iterator[NatsCluster]:
    """One server, which the test may harm."""
    skip_without_servers()
    with NatsCluster(1) as cluster:
        yield cluster


@pytest.fixture
def frail_nodes() -> Iterator[NatsCluster]:
    """Three servers, which the test may harm."""
    skip_without_servers()
    with NatsCluster() as cluster:
        yield cluster


@pytest.fixture(params=["memory", "nats"])
def join(request: pytest.FixtureRequest) -> Iterator[Join]:
    """Returns the journal of a host, in one world for the whole test."""
    with ExitStack() as stack:
        if request.param == "memory":
            yield MemoryStream().join
            return
        cluster: NatsCluster = request.getfixturevalue("three_nodes")

        chosen = options(cluster)

        def join_servers(host: str) -> Journal:
            journal = stack.enter_context(joined(chosen, host))
            journal.wait_ready(READY_S)
            return journal

        yield join_servers
