"""Two daemons whose stream is made again: nothing is acknowledged before they join it again."""

from pathlib import Path

import pytest

import steno
from cluster.test_moves import client_of, read, write
from stenod_cluster.subjects import stream_name
from support.clustered_daemon import clustered_daemon
from support.command import Steno
from support.foreground import ForegroundDaemon
from support.nats_cluster import NatsCluster, wait_until
from support.nats_requests import ask, rebuild

pytest.importorskip("nats", reason="real NATS servers need the extra: pip install -e '.[cluster]'")

SAYS = "made again since this root used it"


def test_a_stream_that_was_made_again_is_named_and_its_sessions_are_shipped_again(
    three_nodes: NatsCluster, folder: Path
) -> None:
    one, two, new = (clustered_daemon(folder / name, folder.name, three_nodes) for name in "abc")
    stream = stream_name(folder.name)
    with one, two, client_of(one) as first, client_of(two) as second:
        write(first, "s", "first")
        write(second, "t", "second")
        assert read(second, "s") == ["first"]
        write(first, "moved", "older")
        (there,) = (host for host in first.cluster().hosts if host.endpoint != one.endpoint)
        first.hand_over("moved", there.host)
        write(second, "moved", "newer")
        rebuild(three_nodes, stream)
        for client, session in ((first, "s"), (second, "t")):
            with pytest.raises(steno.StorageFailed, match="steno cluster join --again"):
                client.open(f"new-{session}", follow=False)
            with pytest.raises(steno.StenoError) as refused:
                client.session(session).append_message({"role": "user", "content": "lost"})
            assert SAYS in refused.value.message or refused.value.outcome == "unknown"
        assert read(first, "s") == ["first"]
        command = Steno(one.root)
        wait_until(lambda: SAYS in command("cluster", "status").out, "the status says nothing")
        assert f"nothing is acknowledged: stream {stream} was {SAYS}" in command("status").out
        assert SAYS in command("doctor").out
        info = ask(three_nodes, f"$JS.API.STREAM.INFO.{stream}", {})
        assert info["state"]["messages"] == 0
    refusal = Steno(one.root)("start")
    assert refusal.code != 0
    assert SAYS in refusal.err
    try:
        _join_again(one, two, new)
    finally:
        for each in (one, two, new):
            Steno(each.root)("stop")


def _join_again(one: ForegroundDaemon, two: ForegroundDaemon, new: ForegroundDaemon) -> None:
    """Let two hosts join the stream again, one after another, beside one that is new to it."""
    joined = Steno(one.root)("cluster", "join", "--again", "--json")
    # Clients would change this copy, which is not the newest one.
    assert "s" in joined.document["joined"]
    left = {each["session"]: each["why"] for each in joined.document["left_out"]}
    assert f"the newest records of the session are on the host of {two.endpoint}" in left["moved"]
    assert set(left) == {"moved"}
    with client_of(one) as first:
        # The other host has it, and did not join yet.
        for session in ("t", "new"):
            with pytest.raises(steno.StorageFailed, match="steno restart"):
                first.open(session, follow=False)
        with pytest.raises(steno.StorageFailed, match="steno restart"):
            first.rename("s", "t")
    # A host that never was in the cluster does not know whether all others are there.
    assert Steno(new.root)("start").code == 0
    with client_of(new) as third, pytest.raises(steno.StorageFailed, match="steno restart"):
        third.open("t", follow=False)
    # The other root knows the stream of before, and has to join, too.
    assert SAYS in Steno(two.root)("start").err
    joined = Steno(two.root)("cluster", "join", "--again", "--json")
    assert joined.code == 0, joined.err
    assert {"t", "moved"} <= set(joined.document["joined"])
    with client_of(one) as first, client_of(two) as second:
        for client in (first, second):
            assert read(client, "s") == ["first"]
            assert read(client, "t") == ["second"]
            assert read(client, "moved") == ["older", "newer"]
        write(first, "s", "third")
        assert read(second, "s") == ["first", "third"]
    assert Steno(one.root)("restart").code == 0
    with client_of(one) as first:
        write(first, "new", "fourth")
    assert Steno(new.root)("restart").code == 0
    with client_of(new) as third:
        write(third, "newer", "fifth")


@pytest.mark.parametrize("is_turned", [False, True])
def test_a_session_that_was_handed_over_right_before_the_loss_comes_back_from_its_new_host(
    three_nodes: NatsCluster, folder: Path, *, is_turned: bool
) -> None:
    one, two = (clustered_daemon(folder / name, folder.name, three_nodes) for name in "ab")
    with one, two, client_of(one) as first:
        write(first, "s", "first")
        first.hand_over("s", two.endpoint)
        # Nobody has opened it at its new host yet.
        rebuild(three_nodes, stream_name(folder.name))
    joined: list[str] = []
    try:
        for daemon in (two, one) if is_turned else (one, two):
            found = Steno(daemon.root)("cluster", "join", "--again", "--json")
            joined += found.document["joined"]
        assert joined == ["s"]
        with client_of(one) as first, client_of(two) as second:
            for client in (first, second):
                assert read(client, "s") == ["first"]
    finally:
        for each in (one, two):
            Steno(each.root)("stop")


def test_the_records_of_a_root_that_joins_are_kept_beside_a_session_that_has_its_id(
    three_nodes: NatsCluster, folder: Path
) -> None:
    one, two = (clustered_daemon(folder / name, folder.name, three_nodes) for name in "ab")
    mine = two.root / "sessions" / "s"
    mine.mkdir(parents=True)
    (mine / "context.jsonl").write_text('{"role":"user","content":"second"}\n')
    with one, two, client_of(one) as first, client_of(two) as second:
        write(first, "s", "first")
        command = Steno(two.root)
        joined = command("cluster", "join", "--json")
        assert joined.code == 1
        (left,) = joined.document["left_out"]
        assert (left["session"], "records of 's'" in left["why"]) == ("s-kept-1", True)
        for client in (first, second):
            assert read(client, "s") == ["first"]
            assert read(client, "s-kept-1") == ["second"]
        assert "the session s-kept-1 is in trouble" in command("doctor").out
        assert "records of 's'" in Steno(one.root)("cluster", "status").out
        assert command("rename", "s-kept-1", "mine").code == 0
        assert command("cluster", "join").code == 0
        assert read(first, "mine") == ["second"]
