"""A stream that is missing, made again, or restored is not used before the operator says so."""

import asyncio
import contextlib
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

from stenod_cluster.journal import (
    ForeignStream,
    InDoubt,
    JournalLost,
    Kind,
    Owner,
    Publication,
)
from stenod_cluster.options import ReplicationOptions
from stenod_cluster.subjects import stream_name
from stenod_cluster.trust import Request, Trust
from support.nats_cluster import NatsCluster, wait_until
from support.nats_journals import READY_S, joined, options
from support.nats_requests import REQUEST_S, ask, rebuild, stream_info

pytest.importorskip("nats", reason="NATS needs the extra: pip install -e '.[cluster]'")

from stenod_cluster.nats_journal import NatsJournal

ANN = Owner("ann", "a1", "tcp://10.0.0.1:7117")


def put(journal: NatsJournal, folder: str, after: int) -> int | OSError:
    [found] = journal.publish([Publication(folder, after, ANN, Kind.CHANGE, b"x")])
    return found


def stored(journal: NatsJournal, folder: str, after: int) -> int:
    found = put(journal, folder, after)
    assert isinstance(found, int), found
    return found


@contextmanager
def ready(chosen: ReplicationOptions, trust: Trust) -> Iterator[NatsJournal]:
    with joined(chosen, "ann", trust) as journal:
        journal.wait_ready(READY_S)
        yield journal


def refused(journal: NatsJournal, says: str) -> None:
    """Wait until the journal refuses its stream, and check that it uses nothing of it."""

    def is_said() -> bool:
        return says in journal.state().trouble

    wait_until(is_said, f"the journal does not say {says!r}")
    for act in (lambda: raised(put(journal, "new", 0)), lambda: journal.last("s")):
        with pytest.raises(ForeignStream, match="steno cluster join --again"):
            act()


def look(journal: NatsJournal) -> None:
    """Look at the stream, as every ten seconds, and at each connection."""
    journal._connection.call(journal._identity.check())


def unacknowledged(found: int | OSError) -> None:
    """Check an outcome: an attempt may get no answer while the servers choose a leader.

    See `test_a_message_without_an_answer_is_in_doubt_where_another_stream_is_found`.
    """
    assert isinstance(found, JournalLost | InDoubt)


def raised(found: int | OSError) -> int:
    if isinstance(found, OSError):
        raise found
    return found


def test_a_missing_stream_is_created_by_an_explicit_act_only(three_nodes: NatsCluster) -> None:
    chosen = options(three_nodes)
    with joined(chosen, "ann", Trust(None)) as journal:
        with pytest.raises(OSError, match="steno cluster join --create"):
            journal.wait_ready(READY_S)
        assert "steno cluster join --create" in journal.state().trouble
    with ready(chosen, Trust(None, Request.CREATE)) as journal:
        stored(journal, "s", 0)
    with ready(chosen, Trust(None)) as journal:
        assert journal.counts() == {"s": 1}


def test_a_stream_that_was_made_again_is_refused_until_it_is_joined_again(
    three_nodes: NatsCluster, tmp_path: Path
) -> None:
    chosen, root = options(three_nodes), tmp_path
    (root / "stenod.join").write_text("create")
    (root / "stenod.join").chmod(0o600)
    with ready(chosen, Trust(root)) as journal:
        before = journal.stream()
        first = stored(journal, "s", 0)
        rebuild(three_nodes, stream_name(chosen.cluster))

        # No look at the stream was due: what is published finds it.
        assert isinstance(put(journal, "never", 0), ForeignStream)
        assert isinstance(put(journal, "s", first), JournalLost)
        refused(journal, "was made again since this root used it")
    assert not (root / "stenod.join").exists()
    with joined(chosen, "ann", Trust(root)) as journal, pytest.raises(ForeignStream):
        journal.wait_ready(READY_S)
    (root / "stenod.join").write_text("again")
    (root / "stenod.join").chmod(0o600)
    with ready(chosen, Trust(root)) as journal:
        assert journal.stream() != before
        stored(journal, "s", 0)
    with ready(chosen, Trust(root)) as journal:
        assert "s" in journal.counts()


def test_a_stream_that_is_gone_is_not_made_again(three_nodes: NatsCluster) -> None:
    chosen, trust = options(three_nodes), Trust(None, Request.CREATE)
    stream = stream_name(chosen.cluster)
    with ready(chosen, trust) as journal:
        stored(journal, "s", 0)
        ask(three_nodes, f"$JS.API.STREAM.DELETE.{stream}", {})
        unacknowledged(put(journal, "t", 0))
        refused(journal, f"the servers have lost stream {stream}")
        before = journal.stream()
    assert "error" in ask(three_nodes, f"$JS.API.STREAM.INFO.{stream}", {})
    again = Trust(None, Request.AGAIN)
    again._known = trust._known
    with ready(chosen, again) as journal:
        assert journal.stream() != before
        assert journal.counts() == {}


@pytest.mark.parametrize("count", [1, 3])
def test_a_stream_that_was_restored_from_an_old_copy_is_refused(count: int) -> None:
    with NatsCluster(count) as cluster:
        chosen, trust = options(cluster), Trust(None, Request.CREATE)
        stream = stream_name(chosen.cluster)
        with ready(chosen, trust) as journal:
            first = stored(journal, "s", 0)
            asyncio.run(restore_old_copy(cluster, stream, lambda: stored(journal, "s", first)))
            unacknowledged(put(journal, "s", first + 1))
            refused(journal, "steno cluster join --again")
        with joined(chosen, "bob", trust) as other, pytest.raises(ForeignStream):
            other.wait_ready(READY_S)
        again = Trust(None, Request.AGAIN)
        again._known = trust._known
        other_host = Trust(None)
        other_host._known = dict(trust._known)
        with ready(chosen, again) as journal:
            assert journal.counts() == {"s": 1}
            # What is there is from an old copy, and the newest files are on the hosts.
            assert journal.began() > first
            stored(journal, "s", first)
            identity = journal.stream()
        second = Trust(None, Request.AGAIN)
        second._known = dict(other_host._known)
        with ready(chosen, second) as journal:
            assert journal.stream() == identity
        # What this one knows of the stream is of before the loss.
        with joined(chosen, "bob", other_host) as other, pytest.raises(ForeignStream):
            other.wait_ready(READY_S)


def test_a_message_that_only_an_old_copy_takes_is_neither_acknowledged_nor_kept() -> None:
    with NatsCluster(1) as cluster:
        chosen = options(cluster)
        stream = stream_name(chosen.cluster)
        with ready(chosen, Trust(None, Request.CREATE)) as journal:
            first, other = stored(journal, "s", 0), stored(journal, "t", 0)
            asyncio.run(restore_old_copy(cluster, stream, lambda: stored(journal, "s", first)))
            # The old copy has the last message of `t`, so that its fence lets this one in.
            with pytest.raises(ForeignStream, match="made again since this root used it"):
                raised(put(journal, "t", other))
            refused(journal, "steno cluster join --again")
        asked = {"subjects_filter": ">"}
        state = ask(cluster, f"$JS.API.STREAM.INFO.{stream}", asked)["state"]
        assert [count for name, count in state["subjects"].items() if name.endswith(".t")] == [1]


def test_an_old_copy_that_catches_up_with_what_it_lacks_stays_one(tmp_path: Path) -> None:
    with NatsCluster(1) as cluster:
        chosen, (node,) = options(cluster), cluster.nodes
        (tmp_path / "stenod.join").write_text("create")
        (tmp_path / "stenod.join").chmod(0o600)
        with ready(chosen, Trust(tmp_path)) as journal:
            before = journal.stream()
            first, other = stored(journal, "s", 0), stored(journal, "t", 0)
            node.kill()
            node.copy_data()
            node.start()
            stored(journal, "s", first)
            node.kill()
            node.restore_data()
            node.start()
            # It has the last message of `t`, and may take the next one before it is looked at.
            for session, after in (("t", other), ("t", other), ("u", 0)):
                unacknowledged(put(journal, session, after))
            refused(journal, "steno cluster join --again")
        with joined(chosen, "ann", Trust(tmp_path)) as journal, pytest.raises(ForeignStream):
            journal.wait_ready(READY_S)
        (tmp_path / "stenod.join").write_text("again")
        (tmp_path / "stenod.join").chmod(0o600)
        with ready(chosen, Trust(tmp_path)) as journal:
            assert journal.stream() != before
            assert journal.counts() == {"s": 1, "t": 1}
            stored(journal, "u", 0)


def test_an_old_copy_that_other_hosts_fill_up_is_refused() -> None:
    with NatsCluster(1) as cluster:
        chosen, (node,), trust = options(cluster), cluster.nodes, Trust(None, Request.CREATE)
        with ready(chosen, trust) as journal:
            first = stored(journal, "s", 0)
            # This root has used the stream, and knows nothing of what follows.
            other = Trust(None)
            other._known = dict(trust._known)
            node.kill()
            node.copy_data()
            node.start()
            last = stored(journal, "s", first)
            look(journal)
        node.kill()
        node.restore_data()
        node.start()
        with ready(chosen, other) as journal:
            for name in "tuv":
                assert stored(journal, name, 0) >= last
        again = Trust(None, Request.AGAIN)
        again._known = dict(trust._known)
        with joined(chosen, "ann", trust) as journal:
            with pytest.raises(ForeignStream, match="is an old copy"):
                journal.wait_ready(READY_S)
            refused(journal, "steno cluster join --again")
        with ready(chosen, again) as journal:
            assert journal.began() > last
        with joined(chosen, "bob", other) as journal, pytest.raises(ForeignStream):
            journal.wait_ready(READY_S)


def test_what_went_to_another_stream_is_removed_although_that_is_refused_meanwhile(
    three_nodes: NatsCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    chosen = options(three_nodes)
    stream = stream_name(chosen.cluster)
    with ready(chosen, Trust(None, Request.CREATE)) as journal:
        stored(journal, "s", 0)
        rebuild(three_nodes, stream)
        check_same = journal._identity.check_same

        async def check_late(sequence: int, count: int) -> None:
            journal._refuse(ForeignStream(None, "another message went there, too"))
            await check_same(sequence, count)

        monkeypatch.setattr(journal._identity, "check_same", check_late)
        assert isinstance(put(journal, "t", 0), ForeignStream)
    assert stream_info(three_nodes, stream)["state"]["messages"] == 0


def test_a_note_that_went_to_another_stream_is_none_of_this_one(three_nodes: NatsCluster) -> None:
    chosen = options(three_nodes)
    stream = stream_name(chosen.cluster)
    with ready(chosen, Trust(None, Request.CREATE)) as journal:
        at = stored(journal, "s", 0)
        rebuild(three_nodes, stream)
        with ready(chosen, Trust(None, Request.CREATE)) as other:
            for number in range(at):
                stored(other, f"s{number}", 0)
        with pytest.raises(ForeignStream):
            journal.note_taken("s", "bob", ANN, Kind.CHANGE)
        assert journal._identity.own.sequence == at


def test_a_last_batch_or_a_purged_message_says_nothing_against_the_stream(
    three_nodes: NatsCluster,
) -> None:
    chosen, trust = options(three_nodes), Trust(None, Request.CREATE)
    with ready(chosen, trust) as journal:
        name = Publication("@t", 0, ANN, Kind.NAME, b"t ")
        batch = Publication("t", 0, ANN, Kind.OWN, b"", also=(name,))
        assert isinstance(journal.publish([batch])[0], int)
        look(journal)
        stored(journal, "s", 0)
        look(journal)
        journal.purge("s", 100)
        look(journal)
    with ready(chosen, trust) as journal:
        stored(journal, "s", 0)


def test_a_new_host_begins_no_session_while_others_join_the_stream_again(
    three_nodes: NatsCluster,
) -> None:
    chosen, trust = options(three_nodes), Trust(None, Request.CREATE)
    with ready(chosen, trust) as journal:
        assert not journal.is_joining
        rebuild(three_nodes, stream_name(chosen.cluster))
    new = Trust(None)
    again = Trust(None, Request.AGAIN)
    again._known = trust._known
    for known, is_joining in ((again, True), (new, True), (again, False), (new, False)):
        with ready(chosen, known) as journal:
            assert journal.is_joining is is_joining
            journal.note_serving()
            look(journal)
            assert journal.is_joining is is_joining


def test_a_daemon_that_never_served_joins_the_stream_again_at_its_next_start(
    three_nodes: NatsCluster, tmp_path: Path
) -> None:
    chosen, again, new = options(three_nodes), tmp_path / "again", tmp_path / "new"
    for root, asked in ((again, "create"), (new, "")):
        root.mkdir()
        (root / "stenod.join").write_text(asked)
        (root / "stenod.join").chmod(0o600)
    with ready(chosen, Trust(again)) as journal:
        journal.note_serving()
        rebuild(three_nodes, stream_name(chosen.cluster))
    (again / "stenod.join").write_text("again")
    (again / "stenod.join").chmod(0o600)
    # A daemon may end between its look at the stream and its first command.
    for _ in range(2):
        for root in (again, new):
            with ready(chosen, Trust(root)) as journal:
                assert journal.is_joining
    for root in (again, new):
        with ready(chosen, Trust(root)) as journal:
            journal.note_serving()
        with ready(chosen, Trust(root)) as journal:
            assert not journal.is_joining


def test_a_daemon_that_waits_for_its_leader_does_not_doubt_the_stream(
    frail_nodes: NatsCluster,
) -> None:
    chosen = options(frail_nodes)
    with ready(chosen, Trust(None, Request.CREATE)) as journal:
        at = stored(journal, "s", 0)
        for _ in range(3):
            frail_nodes.wait_for_leader(stream_name(chosen.cluster)).restart()
            for _ in range(20):
                at = stored(journal, "s", at)
        frail_nodes.wait_ready()


async def restore_old_copy(cluster: NatsCluster, stream: str, act: Any) -> None:
    """Copy a stream, act, and put the copy in the place of the stream."""
    import nats

    client = await nats.connect(cluster.servers, allow_reconnect=False, connect_timeout=REQUEST_S)
    chunks: list[bytes] = []
    is_whole = asyncio.Event()

    async def take(message: Any) -> None:
        if message.data:
            chunks.append(message.data)
        else:
            is_whole.set()
        if message.reply:
            await message.respond(b"")

    async def request(subject: str, body: bytes) -> dict[str, Any]:
        # The other servers hear a moment later than the caller that a subject has a subscriber.
        async with asyncio.timeout(REQUEST_S):
            while True:
                with contextlib.suppress(nats.errors.NoRespondersError):
                    reply = await client.request(subject, body, timeout=REQUEST_S)
                    break
        return msgspec.json.decode(reply.data, type=dict[str, Any]) if reply.data else {}

    try:
        await client.subscribe("copy.of.stream", cb=take)
        wanted = {"deliver_subject": "copy.of.stream", "no_consumers": True}
        copy = await request(f"$JS.API.STREAM.SNAPSHOT.{stream}", json.dumps(wanted).encode())
        await asyncio.wait_for(is_whole.wait(), REQUEST_S)
        await asyncio.to_thread(act)
        assert (await request(f"$JS.API.STREAM.DELETE.{stream}", b""))["success"]
        body = json.dumps({"config": copy["config"], "state": copy["state"]}).encode()
        into = (await request(f"$JS.API.STREAM.RESTORE.{stream}", body))["deliver_subject"]
        for chunk in chunks:
            await request(into, chunk)
        assert "error" not in await request(into, b"")
    finally:
        await client.close()
