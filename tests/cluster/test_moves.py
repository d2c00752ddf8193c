"""Deletions, renames and forks between two daemons of a cluster."""

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

import pytest

import steno
from cluster.conftest import skip_without_servers
from support.clustered_daemon import clustered_daemon
from support.foreground import ForegroundDaemon
from support.nats_cluster import NatsCluster

pytest.importorskip("nats", reason="real NATS servers need the extra: pip install -e '.[cluster]'")

TIMEOUT_S = 60.0


class Pair(NamedTuple):
    """A client of each of two daemons, and the first daemon."""

    one: steno.BlockingClient
    two: steno.BlockingClient
    daemon: ForegroundDaemon


@pytest.fixture
def pair(three_nodes: NatsCluster) -> Iterator[Pair]:
    skip_without_servers()
    # The path of a socket is bounded.
    folder = Path(tempfile.mkdtemp(prefix="move-")).resolve()
    with ExitStack() as held:
        held.callback(shutil.rmtree, folder, ignore_errors=True)
        one, two = (
            held.enter_context(clustered_daemon(folder / name, folder.name, three_nodes))
            for name in "ab"
        )
        yield Pair(held.enter_context(client_of(one)), held.enter_context(client_of(two)), one)


def client_of(daemon: ForegroundDaemon) -> steno.BlockingClient:
    return steno.connect_sync(daemon.root, spawn=False, timeout=TIMEOUT_S)


def write(client: steno.BlockingClient, session: str, text: str) -> None:
    client.open(session, follow=False)
    client.session(session).append_message({"role": "user", "content": text})


def read(client: steno.BlockingClient, session: str) -> list[object]:
    return [each.record["content"] for each in client.session(session).records()]


def test_a_session_goes_with_those_below_it_once_its_host_owns_them(pair: Pair) -> None:
    write(pair.one, "p", "above")
    write(pair.two, "p/c", "below")
    with pytest.raises(steno.BadRequest, match="owns the session 'p/c'") as refused:
        # The client finds the owner by itself.
        pair.two.rename("p", "q")
    assert refused.value.session == "p/c"
    with pytest.raises(steno.BadRequest, match="steno cluster move p/c"):
        pair.one.delete("p")
    assert read(pair.two, "p") == ["above"]
    assert read(pair.one, "p/c") == ["below"]

    pair.one.hand_over("p/c", pair.daemon.endpoint)
    pair.one.rename("p", "q")

    assert read(pair.two, "q") == ["above"]
    assert read(pair.two, "q/c") == ["below"]
    for gone in ("p", "p/c"):
        with pytest.raises(steno.NotFound):
            read(pair.two, gone)


def test_a_new_id_is_free_or_taken_in_the_whole_cluster(pair: Pair) -> None:
    write(pair.two, "t", "theirs")
    write(pair.one, "x", "ours")
    with pytest.raises(steno.Exists):
        pair.one.rename("x", "t")
    with pytest.raises(steno.Exists):
        pair.one.session("x").fork("t")
    pair.two.delete("t")

    pair.one.rename("x", "t")

    assert read(pair.two, "t") == ["ours"]
