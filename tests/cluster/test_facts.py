"""What is known of the servers, and whether their acks survive the loss of one."""

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

import pytest

from steno_protocol.replies import ClusterReplica, ClusterStream
from stenod_cluster.facts import (
    ClusterFacts,
    ServerFacts,
    Syncing,
    broken_promises,
)
from stenod_cluster.forks import Holds
from stenod_cluster.journal import Kind, Owner, Publication, subject_of_name
from stenod_cluster.monitors import ask_monitors
from stenod_cluster.options import ReplicationOptions
from support.nats_cluster import NatsCluster, wait_until
from support.nats_journals import READY_S, joined, options, skip_without_servers

ANN = Owner("ann", "a1", "tcp://10.0.0.1:7117")


def facts_of(chosen: ReplicationOptions) -> ClusterFacts:
    """What a daemon that has published one message knows."""
    skip_without_servers()

    with joined(chosen, "ann") as journal:
        journal.wait_ready(READY_S)
        assert isinstance(journal.publish([Publication("s", 0, ANN, Kind.OWN, b"")])[0], int)
        known: list[ClusterFacts] = []

        def are_all_heard() -> bool:
            found = journal.state()
            known.append(found)
            troubles = [found.trouble, *(each.trouble for each in (*found.servers, *found.streams))]
            replicas = [replica for stream in found.streams for replica in stream.replicas]
            return not any(troubles) and all(
                replica.current and not replica.offline for replica in replicas
            )

        # The leader of a new stream does not hear all others at once, and on a busy machine a
        # server may not answer in time.
        wait_until(are_all_heard, "the leader does not hear a server that runs")
        return known[-1]


def test_a_session_that_ended_and_is_held_by_a_fork_is_not_counted(
    three_nodes: NatsCluster,
) -> None:
    chosen = options(three_nodes)
    facts_of(chosen)
    with joined(chosen, "ann") as journal:
        journal.wait_ready(READY_S)
        for subject in ("f", subject_of_name(".held/s/1/f")):
            journal.publish([Publication(subject, 0, ANN, Kind.OWN, b"")])
        assert journal.state().streams[0].sessions == 2
        journal.publish([Holds(journal, ANN).of_end("s")])
        assert journal.state().streams[0].sessions == 1


def test_sessions_beyond_one_answer_of_the_servers_are_counted(
    three_nodes: NatsCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    # It needs the extra, without which the others of this module run.
    from stenod_cluster import jetstream

    chosen, decoded = options(three_nodes), jetstream.decoded_answer

    def shortened(body: bytes) -> dict[str, Any]:
        answer = decoded(body)
        if subjects := answer.get("state", {}).get("subjects"):
            answer["state"]["subjects"] = dict(sorted(subjects.items())[:2])
        return answer

    with joined(chosen, "ann") as journal:
        journal.wait_ready(READY_S)
        for number in range(5):
            journal.publish([Publication(f"s{number}", 0, ANN, Kind.OWN, b"")])
        monkeypatch.setattr(jetstream, "decoded_answer", shortened)
        stream = journal.state().streams[0]
        assert (stream.sessions, stream.messages) == (5, 5)
        assert len(journal.counts()) == 5


def test_three_servers_that_sync_keep_the_promise(three_nodes: NatsCluster) -> None:
    found = facts_of(options(three_nodes))

    assert broken_promises(found) == []
    [stream] = found.streams
    assert (stream.sessions, stream.messages, found.wanted) == (1, 1, 3)
    assert {(each.name, each.syncing) for each in stream.replicas} == {
        (name, "always") for name in ("n1", "n2", "n3")
    }
    leader = three_nodes.wait_for_leader(stream.name).name
    assert [each.name for each in stream.replicas if each.leader] == [leader]
    assert found.connected in {url.removeprefix("nats://") for url in three_nodes.servers}
    assert found.trouble == ""


def test_without_monitors_the_promise_is_not_proven(three_nodes: NatsCluster) -> None:
    found = facts_of(options(three_nodes, monitors=()))

    [reason] = broken_promises(found)
    assert "nothing shows when n1, n2, n3 sync: set replication.monitors" in reason


def test_one_lazy_server_with_one_replica_breaks_both_promises() -> None:
    skip_without_servers()
    with NatsCluster(1, sync="2m") as cluster:
        found = facts_of(options(cluster))

    few, lazy = broken_promises(found)
    assert "has 1 replicas, and needs 3" in few
    assert "n1 acknowledge before they sync" in lazy
    assert [each.syncing for each in found.streams[0].replicas] == ["lazy"]


def test_without_a_server_the_facts_say_why() -> None:
    skip_without_servers()

    nowhere = ReplicationOptions("t", ("nats://127.0.0.1:9",), ("http://127.0.0.1:9",))
    with joined(nowhere, "ann") as journal:
        found = journal.state()

    assert found.connected == ""
    assert "no NATS server listens at 127.0.0.1:9" in found.trouble
    assert "http://127.0.0.1:9 does not answer" in found.servers[0].trouble
    assert found.streams[0].trouble


class _Answers(BaseHTTPRequestHandler):
    bodies: dict[str, bytes]

    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()
        self.wfile.write(self.bodies[self.path])

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        pass


@pytest.fixture
def web_server() -> Iterator[str]:
    with HTTPServer(("127.0.0.1", 0), _Answers) as server:
        thread = threading.Thread(target=server.serve_forever, args=[0.01])
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


NAMED = b'{"server_name":"n1"}'


@pytest.mark.parametrize(
    ("varz", "jsz"),
    [
        *((varz, b"{}") for varz in (b"", b"<html>", b"[]", b"{}")),
        *((NAMED, jsz) for jsz in (b"", b"<html>", b"[]", b'{"config":3}', b'{"config":[1]}')),
    ],
)
def test_an_address_of_another_program_is_named(
    web_server: str, monkeypatch: pytest.MonkeyPatch, varz: bytes, jsz: bytes
) -> None:
    monkeypatch.setattr(_Answers, "bodies", {"/varz": varz, "/jsz": jsz}, raising=False)

    [found] = ask_monitors([web_server])

    assert found == ServerFacts(trouble=f"{web_server} is not the monitoring of a NATS server")


@pytest.mark.parametrize("jsz", [b"{}", b'{"disabled":true,"config":{"max_memory":0}}'])
def test_a_server_without_jetstream_is_named(
    web_server: str, monkeypatch: pytest.MonkeyPatch, jsz: bytes
) -> None:
    monkeypatch.setattr(_Answers, "bodies", {"/varz": NAMED, "/jsz": jsz}, raising=False)

    [found] = ask_monitors([web_server])

    assert found == ServerFacts("n1", trouble=f"{web_server} has no JetStream")


@pytest.mark.parametrize(
    ("config", "syncing"),
    [(b'{"sync_always":true}', Syncing.ALWAYS), (b'{"sync_interval":1}', Syncing.LAZY)],
)
def test_a_server_that_was_asked_before_its_jetstream_began_says_when_it_syncs(
    web_server: str, monkeypatch: pytest.MonkeyPatch, config: bytes, syncing: Syncing
) -> None:
    # What NATS 2.15 answers from then on.
    varz, jsz = b'{"server_name":"n1","jetstream":{}}', b'{"config":%b}' % config
    monkeypatch.setattr(_Answers, "bodies", {"/varz": varz, "/jsz": jsz}, raising=False)

    [found] = ask_monitors([web_server])

    assert found == ServerFacts("n1", syncing)


def test_lazy_and_unknown_servers_break_a_promise_each() -> None:
    replicas = tuple(
        ClusterReplica(name=f"n{number}", syncing=each) for number, each in enumerate(Syncing)
    )
    facts = ClusterFacts(streams=(ClusterStream(name="S", replicas=replicas),), wanted=3)
    lazy, unknown = broken_promises(facts)
    assert "n1 acknowledge before they sync" in lazy
    assert "nothing shows when n2 sync" in unknown
