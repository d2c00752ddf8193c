"""Deletions, renames and forks between two daemons of a cluster."""

import fcntl
import json
import os
import shutil
import signal
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

import pytest
from msgspec import structs

import steno
from cluster.conftest import skip_without_servers
from steno_protocol import commands, replies
from support.clustered_daemon import clustered_daemon
from support.daemon_that_dies_moving import PUBLISHED
from support.foreground import ForegroundDaemon, daemon_of_tests
from support.nats_cluster import NatsCluster, wait_until

pytest.importorskip("nats", reason="real NATS servers need the extra: pip install -e '.[cluster]'")

TIMEOUT_S = 60.0

KEY = "0199f1c2-5b3a-784b-8000-2a3b4c5d6e7f"

DEAD_S = 30.0
"""A daemon that waits for its turn on a busy machine is not succeeded."""


class Pair(NamedTuple):
    """A client of each of two daemons, and the first daemon."""

    one: steno.BlockingClient
    two: steno.BlockingClient
    daemon: ForegroundDaemon


@pytest.fixture
def dead_s() -> float:
    """Seconds of silence after which a daemon is succeeded."""
    return DEAD_S


@pytest.fixture
def pair(three_nodes: NatsCluster, dead_s: float) -> Iterator[Pair]:
    skip_without_servers()
    # The path of a socket is bounded.
    folder = Path(tempfile.mkdtemp(prefix="move-")).resolve()
    with ExitStack() as held:
        held.callback(shutil.rmtree, folder, ignore_errors=True)
        one, two = (
            held.enter_context(clustered_daemon(folder / name, folder.name, three_nodes, dead_s))
            for name in "ab"
        )
        clients = [held.enter_context(client_of(each)) for each in (one, two)]
        # A word of theirs may be lost while the servers learn of a new listener.
        for client in clients:
            wait_until(lambda at=client: knows_both(at), "a daemon does not hear the other one")
        yield Pair(clients[0], clients[1], one)


def knows_both(client: steno.BlockingClient) -> bool:
    return [each.alive for each in client.cluster().hosts] == [True, True]


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


def forked(client: steno.BlockingClient) -> replies.SessionStat:
    asked = commands.Fork(session="s", new_session="f", key=KEY)
    # The path of the folder is that of the daemon that answers.
    return structs.replace(client.request(asked, replies.SessionStat)[0], folder="")


def test_a_keyed_fork_is_answered_by_another_owner_of_its_source(pair: Pair) -> None:
    write(pair.one, "s", "shared")
    first = forked(pair.one)
    write(pair.one, "f", "more")
    (two,) = (host for host in pair.one.cluster().hosts if host.endpoint != pair.daemon.endpoint)
    pair.one.hand_over("s", two.host)

    assert forked(pair.two) == first

    with pytest.raises(steno.Exists):
        pair.two.session("s").fork("f", key="another")
    assert read(pair.two, "f") == ["shared", "more"]
    pair.one.hand_over("f", two.host)
    assert forked(pair.two) == first
    write(pair.two, "f", "last")
    assert read(pair.one, "f") == ["shared", "more", "last"]


SHARED = "shared " * 60_000
"""More than what a fork may publish itself."""


def stream_bytes(client: steno.BlockingClient) -> int:
    (stream,) = client.cluster().streams
    return stream.bytes


def test_forks_refer_to_what_another_daemon_shortened_and_deleted(pair: Pair) -> None:
    write(pair.one, "s", SHARED)
    write(pair.one, "s", "removed")
    before = stream_bytes(pair.one)
    for number in range(5):
        pair.one.session("s").fork(f"f{number}")
    pair.one.session("f0").fork("g")
    assert stream_bytes(pair.one) - before < len(SHARED) / 2

    (two,) = (host for host in pair.one.cluster().hosts if host.endpoint != pair.daemon.endpoint)
    for session in ("s", "g"):
        pair.one.hand_over(session, two.host)
    for _ in range(3):
        checkpoint = pair.two.session("s").checkpoint().checkpoint_id
        write(pair.two, "s", "later")
        assert checkpoint is not None
        pair.two.session("s").revert_to(checkpoint)
    gone = pair.two.request(commands.Gc(keep_generations=1), replies.GcReport)[0]
    assert not gone.failed
    assert read(pair.two, "g") == [SHARED, "removed"]
    pair.two.delete("s")
    pair.one.hand_over("f1", two.host)
    assert read(pair.two, "f1") == [SHARED, "removed"]
    assert read(pair.two, pair.two.undelete("s").session) == [SHARED, "removed"]


DYING_S = 3.0
"""Time after which the client of a daemon that died gives up."""


def dies_at(
    daemon: ForegroundDaemon, published: str, act: Callable[[steno.BlockingClient], object]
) -> None:
    """Let a daemon die while it serves a command, after it published a part of it; it is dead."""
    daemon.stop()
    dying = daemon_of_tests(daemon.root, "support.daemon_that_dies_moving")
    dying.environment[PUBLISHED] = published
    with dying:
        with client_of(dying) as client:
            # The command alone has little time, and is sent at once.
            client.status()
            client._link.timeout = DYING_S
            with pytest.raises(steno.StenoError):
                act(client)
        assert dying.wait() == -signal.SIGKILL


def wait_until_listed(client: steno.BlockingClient, *sessions: str) -> None:
    """Wait for a list: a server that lags may answer it without the last messages."""

    def is_listed() -> bool:
        return sorted(each.session for each in client.sessions()) == [*sessions]

    wait_until(is_listed, f"the list is never {sessions}")


@pytest.mark.parametrize("published", ["none", "all"])
def test_a_rename_whose_daemon_was_killed_is_completed_by_its_repeat(
    pair: Pair, published: str
) -> None:
    write(pair.one, "p", "above")
    write(pair.one, "p/c", "below")

    dies_at(pair.daemon, published, lambda client: client.rename("p", "q", key=KEY))
    pair.daemon.start()
    there = "p" if published == "none" else "q"
    wait_until_listed(pair.one, there, f"{there}/c")

    pair.one.rename("p", "q", key=KEY)

    wait_until_listed(pair.one, "q", "q/c")
    assert read(pair.two, "q") == ["above"]
    assert read(pair.two, "q/c") == ["below"]


def test_a_restoration_whose_daemon_was_killed_is_completed_by_its_repeat(pair: Pair) -> None:
    write(pair.one, "p", "above")
    pair.one.delete("p")

    dies_at(pair.daemon, "all", lambda client: client.undelete("p", key=KEY))
    pair.daemon.start()
    wait_until_listed(pair.one, "p")

    pair.one.undelete("p", key=KEY)

    assert read(pair.two, "p") == ["above"]


def prepare(root: Path, key: str, text: str) -> int:
    """Prepare a session with one below it as a client does; returns the lock of its folder."""
    nest = root / "sessions" / ".imports" / key
    for folder in (nest / "session" / "c", nest / "session"):
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        context = folder / "context.jsonl"
        context.write_text(json.dumps({"role": "user", "content": text}) + "\n")
        context.chmod(0o600)
    for folder in (nest.parent, nest, nest / "session"):
        folder.chmod(0o700)
    handle = os.open(nest, os.O_RDONLY | os.O_DIRECTORY)
    fcntl.flock(handle, fcntl.LOCK_EX)
    return handle


def take_in(client: steno.BlockingClient) -> replies.SessionStat:
    return client.request(commands.TakeIn(session="p", key=KEY), replies.SessionStat)[0]


def test_a_session_that_is_taken_in_is_published(pair: Pair) -> None:
    os.close(prepare(pair.daemon.root, KEY, "above"))

    assert take_in(pair.one).created
    assert read(pair.two, "p") == read(pair.two, "p/c") == ["above"]

    assert not take_in(pair.one).created

    os.close(prepare(pair.daemon.root, "another", "other"))
    asked = commands.TakeIn(session="p", key="another")
    with pytest.raises(steno.Exists):
        pair.one.request(asked, replies.SessionStat)


def test_a_take_in_whose_daemon_was_killed_is_completed_by_its_repeat(pair: Pair) -> None:
    handle = prepare(pair.daemon.root, KEY, "above")
    try:
        dies_at(pair.daemon, "all", take_in)
        pair.daemon.start()
        wait_until_listed(pair.one, "p", "p/c")

        assert not take_in(pair.one).created
    finally:
        os.close(handle)

    assert read(pair.two, "p") == read(pair.two, "p/c") == ["above"]


def test_a_session_is_restored_by_another_host_than_the_one_that_deleted_it(pair: Pair) -> None:
    write(pair.one, "p", "above")
    write(pair.one, "p/c", "below")
    pair.one.delete("p")
    pair.daemon.stop()

    assert pair.two.undelete("p", key=KEY).session == "p"

    pair.daemon.start()
    for client in (pair.two, pair.one):
        assert (read(client, "p"), read(client, "p/c")) == (["above"], ["below"])
        assert client.undelete("p", key=KEY).session == "p"
    with pytest.raises(steno.NotFound):
        pair.one.undelete("p", key="another")


@pytest.mark.parametrize("is_there", [True, False])
def test_a_copy_follows_the_name_of_its_session_before_it_is_asked_for(
    pair: Pair, *, is_there: bool
) -> None:
    for session in ("p", "gone"):
        write(pair.one, session, "above")
        (two,) = (
            host for host in pair.one.cluster().hosts if host.endpoint != pair.daemon.endpoint
        )
        pair.one.hand_over(session, two.host)
    if not is_there:
        pair.daemon.stop()
    pair.two.rename("p", "q")
    pair.two.delete("gone")
    if not is_there:
        pair.daemon.start()
    tree = pair.daemon.root / "sessions"

    def has_followed() -> bool:
        names = {each.name for each in tree.iterdir()}
        trash = tree / ".trash"
        return {"q"} == {each for each in names if not each.startswith(".")} and trash.exists()

    wait_until(has_followed, "the copies stay where they were")
    assert [each.name.rpartition(".")[2] for each in (tree / ".trash").iterdir()] == ["gone"]


@pytest.mark.parametrize("dead_s", [2.5])
@pytest.mark.parametrize("end", [signal.SIGSTOP, signal.SIGKILL])
def test_a_hand_over_to_a_host_that_answers_no_more_is_refused_soon(
    pair: Pair, end: signal.Signals
) -> None:
    write(pair.two, "s", "before")
    two = next(each for each in pair.two.cluster().hosts if each.endpoint == pair.daemon.endpoint)
    os.kill(pair.daemon.pid, end)
    with pytest.raises(steno.NotFound, match="no living daemon"):
        pair.two.hand_over("s", two.host)
    write(pair.two, "s", "behind")
    assert read(pair.two, "s") == ["before", "behind"]


@pytest.mark.parametrize("dead_s", [2.5])
@pytest.mark.parametrize("published", ["none", "all"])
def test_a_rename_whose_daemon_was_killed_is_completed_by_another_one(
    pair: Pair, published: str
) -> None:
    write(pair.one, "p", "above")
    write(pair.one, "p/c", "below")
    dies_at(pair.daemon, published, lambda client: client.rename("p", "q", key=KEY))

    assert pair.two.rename("p", "q", key=KEY).session == "q"

    pair.daemon.start()
    for client in (pair.one, pair.two):
        assert client.rename("p", "q", key=KEY).session == "q"
        assert sorted(each.session for each in client.sessions()) == ["q", "q/c"]
        assert (read(client, "q"), read(client, "q/c")) == (["above"], ["below"])
        (renamed,) = [each for each in client.timeline("q") if each.kind == "renamed"]
        assert renamed.key == KEY


@pytest.mark.parametrize("dead_s", [2.5])
def test_a_deletion_whose_daemon_was_killed_is_answered_by_another_one(pair: Pair) -> None:
    write(pair.one, "p", "above")
    dies_at(pair.daemon, "all", lambda client: client.delete("p", key=KEY))

    deleted = pair.two.delete("p", key=KEY)

    assert deleted.trash.name.endswith(f".{KEY}.p")
    pair.daemon.start()
    for client in (pair.one, pair.two):
        # Each names the folder under its own root.
        assert client.delete("p", key=KEY).trash.name == deleted.trash.name
        assert client.sessions() == []
        with pytest.raises(steno.NotFound):
            read(client, "p")
