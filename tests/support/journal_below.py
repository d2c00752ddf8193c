"""A plugin of pytest that puts every daemon of a test run over a replicated journal.

`STENO_TEST_NODES=3 pytest tests/e2e` starts three NATS servers once, and each root joins a cluster
name of its own. The daemons read that from the environment, as any option.
"""

import itertools
import os
import socket
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from steno_protocol.settings import read_settings
from stenod_cluster.options import replication_options
from support.nats_cluster import NatsCluster
from support.nats_journals import joined

NODES = "STENO_TEST_NODES"
"""The variable with the number of servers: 1 or 3."""

EXCEPTIONS = Path(__file__).parent.parent / "e2e" / "not_over_a_journal.txt"
"""Tests that cannot hold over a journal, each with its reason."""

CLUSTER = "STENO_REPLICATION_CLUSTER"
SHARED_ROOTS = {"shared_root", "home", "rooted", "shell"}
"""Fixtures with one root; in some modules for all tests, in others for one."""

ANSWER_S = 60.0

_numbers = itertools.count(1)


def is_wanted() -> bool:
    """Whether this run is to have a journal below its daemons."""
    return NODES in os.environ


def start() -> NatsCluster:
    """Start the servers, and name them to all processes that this one starts."""
    count = int(os.environ[NODES])
    cluster = NatsCluster(count).__enter__()
    os.environ.update(
        {
            CLUSTER: "none",
            "STENO_REPLICATION_SERVERS": ",".join(cluster.servers),
            "STENO_REPLICATION_MONITORS": ",".join(cluster.monitors),
            "STENO_REPLICATION_REPLICAS": str(count),
            "STENO_REPLICATION_LAZY_SYNC": str(count < 3).lower(),
            "STENO_REPLICATION_PUBLISH_S": "25",
        }
    )
    return cluster


def exceptions() -> Mapping[str, str]:
    """The reason of each test, or file of tests, that cannot hold over a journal."""
    found: dict[str, str] = {}
    for line in EXCEPTIONS.read_text().splitlines():
        if line.strip() and not line.startswith("#"):
            name, _, reason = line.partition(" ")
            found[name] = reason.strip()
    return found


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip what cannot hold, with its reason."""
    reasons = exceptions()
    for item in items:
        file, _, test = item.nodeid.partition("::")
        name = file.rpartition("/")[2]
        for each in (name, f"{name}::{test.partition('[')[0]}", f"{name}::{test}"):
            if each in reasons:
                item.add_marker(pytest.mark.skip(reason=f"over a journal: {reasons[each]}"))


@pytest.fixture(scope="module", autouse=True)
def _cluster_of_the_module() -> Iterator[None]:
    """A cluster for the root that the tests of a module share."""
    yield from _named_cluster()


@pytest.fixture(autouse=True)
def _cluster_of_the_test(request: pytest.FixtureRequest) -> Iterator[None]:
    """A cluster for the root of one test."""
    known = request.node._fixtureinfo.name2fixturedefs
    if any(known[each][-1].scope == "module" for each in SHARED_ROOTS & known.keys()):
        yield
    else:
        yield from _named_cluster()


def _named_cluster() -> Iterator[None]:
    name, before = f"t{os.getpid()}-{next(_numbers)}", os.environ[CLUSTER]
    os.environ[CLUSTER] = name
    _create_stream()
    try:
        yield
    finally:
        os.environ[CLUSTER] = before
        _remove_stream(f"STENO_{name}_0")


def _create_stream() -> None:
    """Create the stream of the cluster, as `steno cluster join --create` does."""
    options = replication_options(read_settings("", "", os.environ))
    with joined(options, "test") as journal:
        journal.wait_ready(ANSWER_S)


def _remove_stream(stream: str) -> None:
    """Remove a stream: each costs the servers memory and beats."""
    host, _, port = (
        os.environ["STENO_REPLICATION_SERVERS"].split(",")[0].partition("//")[2].partition(":")
    )
    with socket.create_connection((host, int(port)), ANSWER_S) as server:
        server.sendall(
            b'CONNECT {"verbose":false,"lang":"test","version":"0"}\r\nSUB answer 1\r\n'
            + f"PUB $JS.API.STREAM.DELETE.{stream} answer 0\r\n\r\n".encode()
        )
        said = b""
        while b"MSG answer" not in said:
            data = server.recv(65536)
            assert data, "the server ended the connection"
            said += data
