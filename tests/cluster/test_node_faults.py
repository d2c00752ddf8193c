"""What the journal keeps while its servers are killed, stopped and started again."""

import asyncio
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import pytest

from stenod_cluster.journal import InDoubt, JournalLost, Kind, Owner, Publication
from stenod_cluster.options import ReplicationOptions
from stenod_cluster.subjects import stream_name
from support.nats_cluster import NatsCluster, Node, wait_until
from support.nats_journals import READY_S, given_up_after, joined, options

pytest.importorskip("nats", reason="real NATS servers need the extra: pip install -e '.[cluster]'")

from stenod_cluster import limits, nats_connection
from stenod_cluster.jetstream import api
from stenod_cluster.nats_journal import NatsJournal
from stenod_cluster.stream_identity import Suspicion
from stenod_cluster.wire import Reply

STORED_S = 90.0
"""Time in which writers store some messages: longer than that of one publication, which fails."""

SOON_S = 1.5
"""Deadline of a publication that a test lets fail."""

LATER_S = 10.0
"""Deadline of a question that a test lets go on over another connection."""

ANN = Owner("ann", "a1", "tcp://10.0.0.1:7117")


class Writers:
    """Threads that publish numbered messages, each to a folder of its own, until they are ended.

    Attributes:
        journal: where they publish.
        stored: the number of each acknowledged message by its sequence, for each folder.
        failed: what was answered instead.
    """

    def __init__(self, journal: NatsJournal, count: int = 4) -> None:
        self.stored: list[dict[int, int]] = [{} for _ in range(count)]
        self.failed: list[OSError] = []
        self.journal = journal
        self._is_ending = threading.Event()
        self._grew = threading.Condition()
        self._threads = [
            threading.Thread(target=self._write, args=[number]) for number in range(count)
        ]
        for thread in self._threads:
            thread.start()

    def wait_for(self, more: int) -> None:
        """Wait until each writer has stored more messages."""
        wanted = [len(stored) + more for stored in self.stored]
        with self._grew:
            assert self._grew.wait_for(
                lambda: all(map(int.__ge__, map(len, self.stored), wanted)) or self.failed, STORED_S
            )
        assert not self.failed, self.failed

    def end(self) -> None:
        """End all writers."""
        self._is_ending.set()
        for thread in self._threads:
            thread.join()

    def _write(self, number: int) -> None:
        after, count = 0, 0
        while not self._is_ending.is_set():
            body = str(count).encode()
            [found] = self.journal.publish(
                [Publication(f"s{number}", after, ANN, Kind.CHANGE, body)]
            )
            with self._grew:
                if isinstance(found, OSError):
                    self.failed.append(found)
                    self._is_ending.set()
                else:
                    self.stored[number][found] = count
                    after, count = found, count + 1
                self._grew.notify_all()


@contextmanager
def writers(cluster: NatsCluster) -> Iterator[tuple[Writers, str]]:
    """Writers, and the name of their stream; at the end the journal has what they stored."""
    chosen = options(cluster)
    with joined(chosen, "ann") as journal:
        journal.wait_ready(READY_S)
        found = Writers(journal)
        try:
            found.wait_for(10)
            yield found, stream_name(chosen.cluster)
        finally:
            found.end()
        assert not found.failed, found.failed
        for number, stored in enumerate(found.stored):
            read = list(journal.read(f"s{number}", 0, max(stored)))
            assert {each.sequence: int(each.body) for each in read} == stored
            assert [int(each.body) for each in read] == list(range(len(read)))


def test_messages_are_stored_once_while_a_leader_is_killed(frail_nodes: NatsCluster) -> None:
    with writers(frail_nodes) as (found, stream):
        leader = frail_nodes.wait_for_leader(stream)
        leader.kill()
        found.wait_for(20)
        leader.start()
        found.wait_for(20)


def test_messages_are_stored_once_while_nodes_are_stopped(frail_nodes: NatsCluster) -> None:
    with writers(frail_nodes) as (found, stream):
        leader = frail_nodes.wait_for_leader(stream)
        follower = next(node for node in frail_nodes.nodes if node is not leader)
        for node in (leader, follower):
            node.stop()
            found.wait_for(20)
            node.resume()
            found.wait_for(5)


def test_messages_are_stored_once_when_all_nodes_are_killed(frail_nodes: NatsCluster) -> None:
    with writers(frail_nodes) as (found, _):
        for node in frail_nodes.nodes:
            node.kill()
        for node in frail_nodes.nodes:
            node.start()
        frail_nodes.wait_ready()
        found.wait_for(20)


@contextmanager
def with_message(chosen: ReplicationOptions) -> Iterator[tuple[NatsJournal, int]]:
    """A journal, and its only message."""
    with joined(chosen, "ann") as journal:
        journal.wait_ready(READY_S)
        [first] = journal.publish([Publication("s", 0, ANN, Kind.OWN, b"")])
        assert isinstance(first, int)
        yield journal, first


def _without_majority(cluster: NatsCluster, act: Callable[[NatsJournal], OSError]) -> OSError:
    chosen = options(cluster)
    with with_message(chosen) as (journal, first):
        cluster.wait_for_messages(stream_name(chosen.cluster), 2, first)
        return act(journal)


@pytest.mark.parametrize("is_connected", [True, False])
def test_without_a_majority_nothing_is_acknowledged(
    frail_nodes: NatsCluster, *, is_connected: bool
) -> None:
    def act(journal: NatsJournal) -> OSError:
        def here() -> list[Node]:
            at = journal._connection.server or "nowhere"
            return [node for node in frail_nodes.nodes if node.url.endswith(at)]

        leader = frail_nodes.wait_for_leader(journal._stream)
        wait_until(lambda: here() == [leader], "it does not go to the leader")
        others = [node for node in frail_nodes.nodes if node is not leader]
        for node in others if is_connected else [leader, others[0]]:
            node.kill()
        with given_up_after(journal, SOON_S):
            [found] = journal.publish([Publication("s", 2, ANN, Kind.CHANGE, b"")])
            assert isinstance(found, OSError)
            if not is_connected:
                # Behind a new connection nobody says which stream it is.
                with pytest.raises(JournalLost):
                    journal.last("s")
                return found
        last = journal.last("s")
        assert last is not None
        assert last.kind is Kind.OWN
        return found

    assert isinstance(_without_majority(frail_nodes, act), InDoubt | JournalLost)


@pytest.mark.parametrize("is_leader_among", [True, False])
def test_a_cut_off_server_confirms_nothing(
    frail_nodes: NatsCluster, *, is_leader_among: bool
) -> None:
    chosen = options(frail_nodes)
    with joined(chosen, "ann") as journal:
        journal.wait_ready(READY_S)
        # The leader of a new stream does not hear all others at once.
        wait_until(lambda: is_confirmed(journal), "all servers run, and nobody says so")
        leader = frail_nodes.wait_for_leader(stream_name(chosen.cluster))
        follower, other = (node for node in frail_nodes.nodes if node is not leader)
        stopped = [leader if is_leader_among else other, follower]
        for node in stopped:
            node.stop()
        wait_until(lambda: not is_confirmed(journal), "a majority is gone, and nobody says so")
        for node in stopped:
            node.resume()
        wait_until(lambda: is_confirmed(journal), "the majority is back, and nobody says so")


def is_confirmed(journal: NatsJournal) -> bool:
    try:
        journal.confirm()
    except JournalLost:
        return False
    return True


def test_without_a_server_the_loss_is_certain_and_named(frail_nodes: NatsCluster) -> None:
    def act(journal: NatsJournal) -> OSError:
        for node in frail_nodes.nodes:
            node.kill()
        with given_up_after(journal, SOON_S):
            # The first one may have been sent on a connection whose end was not known yet.
            journal.publish([Publication("s", 2, ANN, Kind.CHANGE, b"")])
            [found] = journal.publish([Publication("s", 2, ANN, Kind.CHANGE, b"")])
            assert isinstance(found, OSError)
            with pytest.raises(JournalLost):
                journal.last("s")
        return found

    found = _without_majority(frail_nodes, act)
    assert isinstance(found, JournalLost)
    assert "no NATS server listens at 127.0.0.1" in str(found.strerror)


def test_nobody_reads_over_a_new_connection_before_its_stream_is_known(
    one_node: NatsCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    with with_message(options(one_node)) as (journal, first):
        is_looking, may_look, check = threading.Event(), asyncio.Event(), journal._identity.check

        async def check_late() -> dict[str, Any]:
            is_looking.set()
            await may_look.wait()
            return await check()

        monkeypatch.setattr(journal._identity, "check", check_late)
        one_node.nodes[0].kill()
        one_node.nodes[0].start()
        assert is_looking.wait(READY_S)
        with given_up_after(journal, SOON_S):
            for ask in (
                lambda: journal.last("s"),
                lambda: journal.last("s", at_leader=True),
                lambda: journal.last_of(["s"]),
                lambda: list(journal.read("s", 0, first)),
                journal.names,
                journal.confirm,
                lambda: journal.purge("s", first),
            ):
                with pytest.raises(JournalLost):
                    ask()
            [found] = journal.publish([Publication("s", first, ANN, Kind.CHANGE, b"")])
            assert isinstance(found, JournalLost)

        async def look() -> None:
            may_look.set()

        journal._connection.post(look)
        wait_until(lambda: is_confirmed(journal), "the stream is known, and nobody reads it")
        last = journal.last("s")
        assert last is not None
        assert last.sequence == first


def test_a_daemon_says_that_it_lives_or_ends_although_its_stream_is_not_known(
    one_node: NatsCluster,
) -> None:
    chosen, heard = options(one_node), list[str]()
    with joined(chosen, "bob") as other:
        other.wait_ready(READY_S)
        other.listen(lambda topic, _: heard.append(topic))
        with joined(chosen, "ann") as journal:
            journal.wait_ready(READY_S)

            def is_heard() -> bool:
                journal.announce(ANN, "who", b"")
                return "who" in heard

            wait_until(is_heard, "nobody hears")

            async def distrust() -> None:
                journal._connection.distrust()

            journal._connection.post(distrust)
            journal.announce(ANN, "alive", b"")
            wait_until(lambda: "alive" in heard, "it seems dead")
            journal._connection.post(distrust)
            journal.announce(ANN, "ended", b"")
        wait_until(lambda: "ended" in heard, "others wait for it")


def test_what_began_before_a_connection_ended_does_not_go_on_over_an_unknown_stream(
    one_node: NatsCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    with with_message(options(one_node)) as (journal, _):
        monkeypatch.setattr(journal._identity, "check", _refuse)
        one_node.nodes[0].stop()
        with ThreadPoolExecutor(1) as threads, given_up_after(journal, LATER_S):
            asking = threads.submit(journal.last, "s")
            wait_until(lambda: bool(journal._connection._waiting), "nothing was asked")
            one_node.nodes[0].kill()
            one_node.nodes[0].start()
            with pytest.raises(JournalLost):
                asking.result(READY_S)


def test_nothing_is_sent_again_over_a_connection_whose_stream_is_not_known(
    three_nodes: NatsCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    chosen = options(three_nodes)
    with with_message(chosen) as (journal, first):
        connection = journal._connection
        monkeypatch.setattr(journal._identity, "check", _refuse)
        request = connection.request

        async def lose_first(*_: object) -> Reply:
            monkeypatch.setattr(connection, "request", request)
            connection.distrust()
            raise nats_connection.UnansweredError("lost on the way")

        monkeypatch.setattr(connection, "request", lose_first)
        with given_up_after(journal, SOON_S):
            [found] = journal.publish([Publication("s", first, ANN, Kind.CHANGE, b"")])
        assert isinstance(found, InDoubt)
        with joined(chosen, "bob") as other:
            last = other.last("s", at_leader=True)
        assert last is not None
        assert last.sequence == first


async def _refuse() -> dict[str, Any]:
    raise Suspicion("it is an old copy")


def test_a_connection_that_ends_while_it_is_set_up_is_replaced(
    three_nodes: NatsCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    subscribe, ending = nats_connection._subscribe, iter([True])

    async def subscribe_and_end(client: Any, *arguments: Any) -> None:
        await subscribe(client, *arguments)
        if next(ending, False):
            await client.close()

    monkeypatch.setattr(nats_connection, "_subscribe", subscribe_and_end)
    with joined(options(three_nodes), "ann") as journal:
        journal.wait_ready(READY_S)
        [found] = journal.publish([Publication("s", 0, ANN, Kind.OWN, b"")])
        assert isinstance(found, int)


def test_a_connection_whose_end_was_not_told_yet_is_replaced(
    three_nodes: NatsCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    with joined(options(three_nodes, publish_s=15.0), "ann") as journal:
        journal.wait_ready(READY_S)
        connection = journal._connection
        with monkeypatch.context() as patch:
            patch.setattr(connection, "_lose", lambda *_: None)
            assert connection._client is not None
            connection.call(connection._client.close())
        [found] = journal.publish([Publication("s", 0, ANN, Kind.OWN, b"")])
        assert isinstance(found, int), found


def test_a_journal_that_is_closed_while_it_connects_ends(
    three_nodes: NatsCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    connect, is_connecting = nats_connection.Connection._connect, threading.Event()

    async def connect_until_closed(connection: nats_connection.Connection, *given: Any) -> None:
        await connect(connection, *given)
        is_connecting.set()
        await connection._ended.wait()

    monkeypatch.setattr(nats_connection.Connection, "_connect", connect_until_closed)
    with joined(options(three_nodes), "ann") as journal:
        assert is_connecting.wait(READY_S)
    # The loop has ended here, and nothing is left of the connection that came too late.
    assert journal._connection.server is None


def test_messages_go_straight_to_the_leader_whoever_it_is(
    frail_nodes: NatsCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "LEADER_CHECK_S", 0.1)
    with writers(frail_nodes) as (found, stream):
        connection = found.journal._connection

        def is_at_leader() -> bool:
            leader = frail_nodes.wait_for_leader(stream)
            server = frail_nodes.servers[frail_nodes.nodes.index(leader)]
            return server.endswith(f"//{connection.server}")

        wait_until(is_at_leader, "the journal is not at the leader")
        found.wait_for(20)
        first = frail_nodes.wait_for_leader(stream)
        connection.call(api(connection, "STREAM.LEADER.STEPDOWN", stream, {}, READY_S))
        wait_until(
            lambda: frail_nodes.wait_for_leader(stream) is not first, "the leader does not go"
        )
        wait_until(is_at_leader, "the journal is not at the second leader")
        found.wait_for(20)
        frail_nodes.wait_for_leader(stream).kill()
        found.wait_for(20)
        wait_until(is_at_leader, "the journal is not at the third leader")
        found.wait_for(20)


def test_a_server_that_nobody_knows_is_not_looked_for_for_long(three_nodes: NatsCluster) -> None:
    with joined(options(three_nodes), "ann") as journal:
        journal.wait_ready(READY_S)
        connection = journal._connection
        connection.call(connection.move_to("nobody"))
        [found] = journal.publish([Publication("s", 0, ANN, Kind.OWN, b"")])
        assert isinstance(found, int)


def test_closing_ends_what_waits_for_an_answer(frail_nodes: NatsCluster) -> None:
    found: list[int | OSError] = []
    with joined(options(frail_nodes), "ann") as journal:
        journal.wait_ready(READY_S)
        for node in frail_nodes.nodes:
            node.stop()
        thread = threading.Thread(
            target=lambda: found.extend(journal.publish([Publication("s", 0, ANN, Kind.OWN, b"")]))
        )
        thread.start()

        journal.close()
        thread.join()

    assert isinstance(found[0], InDoubt | JournalLost)
