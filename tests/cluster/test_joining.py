"""A root of many sessions joins a cluster of real servers, and its daemon dies meanwhile."""

import json
import threading
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import pytest

import steno
from cluster.test_moves import client_of, read
from steno_protocol.commands import Join
from steno_protocol.limits import JOIN_SESSIONS_MAX
from steno_protocol.replies import Joined
from support.clustered_daemon import clustered_daemon
from support.command import Steno
from support.foreground import ForegroundDaemon
from support.nats_cluster import NatsCluster, wait_until

pytest.importorskip("nats", reason="real NATS servers need the extra: pip install -e '.[cluster]'")

SESSIONS = [f"s-{number:03}" for number in range(4 * JOIN_SESSIONS_MAX)]


def record(session: str) -> str:
    return json.dumps({"role": "user", "content": session}, separators=(",", ":")) + "\n"


def used(daemon: ForegroundDaemon, sessions: Sequence[str]) -> ForegroundDaemon:
    """Let a root have sessions from before it joined."""
    for session in sessions:
        made = daemon.root / "sessions" / session
        made.mkdir(parents=True)
        (made / "context.jsonl").write_text(record(session))
    return daemon


def ask_to_join(daemon: ForegroundDaemon, sessions: Sequence[str]) -> None:
    """Ask for sessions until the daemon is gone."""
    with suppress(steno.StenoError), steno.connect_sync(daemon.root, spawn=False) as client:
        for begin in range(0, len(sessions), JOIN_SESSIONS_MAX):
            part = tuple(sessions[begin : begin + JOIN_SESSIONS_MAX])
            client.request(Join(sessions=part), Joined)


def stored(client: steno.BlockingClient) -> int:
    """The sessions with messages in the stream, whether a name leads to them or not."""
    (stream,) = client.cluster().streams
    return stream.sessions


@pytest.mark.parametrize("joined_min", [1, 2 * JOIN_SESSIONS_MAX])
def test_a_daemon_that_is_killed_in_a_join_brings_each_session_once(
    three_nodes: NatsCluster, folder: Path, joined_min: int
) -> None:
    one, two = (clustered_daemon(folder / name, folder.name, three_nodes) for name in "ab")
    used(one, SESSIONS)
    with two, client_of(two) as watching:
        one.start()
        asking = threading.Thread(target=ask_to_join, args=(one, SESSIONS))
        asking.start()
        wait_until(lambda: stored(watching) >= joined_min, "no session joins")
        one.kill()
        with one:
            joined = Steno(one.root)("cluster", "join", "--json")
            assert joined.code == 0, joined.err
            assert joined.document["left_out"] == []
            assert stored(watching) == len(SESSIONS)
            files = [one.root / "sessions" / each / "context.jsonl" for each in SESSIONS]
            assert [file.read_text() for file in files] == [record(each) for each in SESSIONS]
            with client_of(one) as mine:
                assert [read(mine, each) for each in SESSIONS] == [[each] for each in SESSIONS]
        asking.join()
        assert [read(watching, each) for each in SESSIONS] == [[each] for each in SESSIONS]
