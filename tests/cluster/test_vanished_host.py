"""A host that vanishes, as a machine without power does: its clients go to another one soon."""

import json
import shutil
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

import anyio.to_thread
import pytest

import steno
from cluster.test_moves import client_of, knows_both
from support import remote_access
from support.clustered_daemon import clustered_daemon
from support.foreground import ForegroundDaemon
from support.nats_cluster import NatsCluster, wait_until
from support.proxy import Proxy

pytest.importorskip("nats", reason="real NATS servers need the extra: pip install -e '.[cluster]'")

SOON_S = 8.0
"""Less than an attempt to connect to a machine that is gone, and than the silence of one daemon."""


def listening(root: Path, cluster: NatsCluster) -> ForegroundDaemon:
    """A daemon of a cluster that other machines reach; it is not started."""
    daemon = clustered_daemon(root, root.parent.name, cluster)
    with (root / "config.toml").open("a") as config:
        config.write('[network]\nlisten = "tcp://127.0.0.1:*"\n')
    return daemon


class Remote(NamedTuple):
    """A daemon that other machines reach through a proxy, the address of both, and a local client.

    Attributes:
        daemon: the daemon that vanishes.
        proxy: what its clients are connected to.
        endpoint: the addresses of both daemons.
        key: the clients' key.
        other: a client of the other daemon.
    """

    daemon: ForegroundDaemon
    proxy: Proxy
    endpoint: str
    key: Path
    other: steno.BlockingClient

    def vanish(self) -> None:
        """Let a machine lose its power: nobody closes the connections of its clients."""
        self.proxy.cut()
        self.daemon.kill()


@pytest.fixture
def remote(three_nodes: NatsCluster, folder: Path) -> Iterator[Remote]:
    one, two = (listening(folder / name, three_nodes) for name in "ab")
    key = remote_access.allow(one.root, "laptop")
    shutil.copytree(one.root / "keys", two.root / "keys")
    with ExitStack() as held:
        clients = [held.enter_context(client_of(held.enter_context(each))) for each in (one, two)]
        for client in clients:
            wait_until(lambda at=client: knows_both(at), "a daemon does not hear the other one")
        first, second = (remote_access.endpoint_of(daemon) for daemon in (one, two))
        proxy = held.enter_context(Proxy(int(first.rpartition(":")[2])))
        yield Remote(one, proxy, f"tcp://127.0.0.1:{proxy.port},{second}", key, clients[1])


def record(text: str) -> dict[str, str]:
    return {"role": "user", "content": text}


def test_writers_of_a_vanished_host_go_on_at_another_one(remote: Remote) -> None:
    with steno.connect_sync(
        endpoint=remote.endpoint, key_file=remote.key, timeout=SOON_S
    ) as client:
        client.open("s", follow=False)
        session = client.session("s")
        session.append_message(record("before"))
        remote.vanish()
        session.append_message(record("behind"))
        assert [each.record["content"] for each in session.records()] == ["before", "behind"]


def test_followers_of_a_vanished_host_go_on_at_another_one(remote: Remote) -> None:
    with steno.connect_sync(
        endpoint=remote.endpoint, key_file=remote.key, timeout=SOON_S
    ) as client:
        client.open("s", follow=False)
        client.session("s").append_message(record("before"))
        with client.session("s").subscribe("start") as events:
            assert events.next_event(timeout=SOON_S) is not None
            remote.vanish()
            remote.other.open("s", follow=False)
            remote.other.session("s").append_message(record("behind"))
            found: list[object] = []
            while found != ["behind"]:
                event = events.next_event(timeout=SOON_S)
                assert event is not None
                if isinstance(event, steno.RecordsEvent):
                    found = [json.loads(line)["content"] for line in event.lines()][-1:]


@pytest.mark.anyio
async def test_tasks_of_a_vanished_host_go_on_at_another_one(remote: Remote) -> None:
    async with steno.connect(
        endpoint=remote.endpoint, key_file=remote.key, timeout=SOON_S
    ) as client:
        await client.open("s", follow=False)
        await client.session("s").append_message(record("before"))
        await anyio.to_thread.run_sync(remote.vanish)
        await client.session("s").append_message(record("behind"))
