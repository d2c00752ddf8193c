"""Fixtures with real NATS servers, and with the model of them in memory."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

from stenod.replication.journal import Journal
from support.memory_journal import MemoryStream
from support.nats_cluster import NatsCluster
from support.nats_journals import READY_S, joined, options, skip_without_servers

Join = Callable[[str], Journal]


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
