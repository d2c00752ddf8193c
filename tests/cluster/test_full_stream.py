"""A full stream refuses records, and nothing else: room is made by what its error advises."""

import os
import signal

import pytest

import steno
from cluster.test_moves import Pair, dead_s, pair, read, write
from steno_protocol import commands, replies
from stenod_cluster.subjects import stream_name
from support.nats_cluster import NatsCluster, wait_until
from support.nats_requests import ask

pytest.importorskip("nats", reason="real NATS servers need the extra: pip install -e '.[cluster]'")

__all__ = ["dead_s", "pair"]

TEXT = "x" * 200_000
"""A record of which some fill the stream of the tests."""


def fill(client: steno.BlockingClient, *sessions: str) -> steno.StorageFailed:
    """Append to sessions in turn until the stream is full; returns the error."""
    while True:
        for session in sessions:
            try:
                write(client, session, TEXT)
            except steno.StorageFailed as error:
                return error


def limit(cluster: NatsCluster, stream: str, bytes_max: int) -> None:
    config = ask(cluster, f"$JS.API.STREAM.INFO.{stream}", {})["config"]
    config["max_bytes"] = bytes_max
    assert "error" not in ask(cluster, f"$JS.API.STREAM.UPDATE.{stream}", config)


def is_appended(client: steno.BlockingClient, session: str, text: str = TEXT) -> bool:
    try:
        write(client, session, text)
    except steno.StorageFailed:
        return False
    return True


@pytest.mark.parametrize("dead_s", [2.5])
def test_a_full_stream_ends_nothing_but_appends(three_nodes: NatsCluster, pair: Pair) -> None:
    stream = stream_name(pair.daemon.root.parent.name)
    (two,) = (host for host in pair.one.cluster().hosts if host.endpoint != pair.daemon.endpoint)
    for session in ("kept", "old", "gone"):
        write(pair.one, session, "small")
    for number in range(10):
        write(pair.one, "old", f"{number}{TEXT}")
        pair.one.session("old").clear()
    for _ in range(3):
        write(pair.one, "gone", TEXT)
    used = ask(three_nodes, f"$JS.API.STREAM.INFO.{stream}", {})["state"]["bytes"]
    limit(three_nodes, stream, used * 8 // 7)
    # Each daemon learns of the limit at its next look; large records would fill the stream before.
    wait_until(lambda: not is_appended(pair.one, "kept", "tiny"), "the daemon sees no limit")

    error = fill(pair.one, "kept", "gone")

    assert f"stream {stream} is full" in error.message
    # Ownership, reads, notes and deletions go on, on each host.
    pair.one.hand_over("kept", two.host)
    assert read(pair.two, "kept")[0] == "small"
    wait_until(lambda: not is_appended(pair.two, "kept", "tiny"), "the second daemon sees no limit")
    pair.one.session("old").describe(title="of old days")

    pair.one.request(commands.Gc(keep_generations=1), replies.GcReport)
    wait_until(lambda: is_appended(pair.two, "kept"), "gc has made no room")
    fill(pair.one, "kept", "gone")
    pair.one.delete("gone")
    assert not is_appended(pair.two, "kept")
    config = pair.daemon.root / "config.toml"
    config.write_text(f"{config.read_text()}[disk]\ntrash_days = 0\n")
    os.kill(pair.daemon.pid, signal.SIGHUP)

    def is_roomy() -> bool:
        pair.one.request(commands.Gc(trash=True), replies.GcReport)
        return is_appended(pair.two, "kept")

    wait_until(is_roomy, "the end of a deleted session has made no room")
    assert read(pair.one, "old") == []
