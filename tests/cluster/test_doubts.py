"""What becomes of messages whose answers are lost."""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import suppress
from threading import Thread
from typing import Any

import pytest
from msgspec import structs

from stenod_cluster.journal import (
    Fenced,
    ForeignStream,
    InDoubt,
    JournalLost,
    Kind,
    Owner,
    Publication,
)
from stenod_cluster.subjects import stream_name
from support.nats_cluster import NatsCluster
from support.nats_journals import READY_S, given_up_after, joined, options
from support.nats_requests import rebuild

pytest.importorskip("nats", reason="NATS needs the extra: pip install -e '.[cluster]'")

from stenod_cluster import nats_journal
from stenod_cluster.nats_connection import (
    Connection,
    NoRespondersError,
    NotConnectedError,
    UnansweredError,
)
from stenod_cluster.nats_journal import NatsJournal
from stenod_cluster.wire import Reply

ANN = Owner("ann", "a1", "tcp://10.0.0.1:7117")
BOB = Owner("bob", "b1", "tcp://10.0.0.2:7117")

SOON_S = 2.0
"""Deadline of a publication that a test lets fail."""


class Losses:
    """Losses of the publications of one journal, the next first.

    Attributes:
        script: `answer` loses an answer, `message` a message; a function is called before that
            message is sent, as another daemon comes between, and may return the loss.
        always: what comes behind the script.
    """

    def __init__(self, connection: Connection, monkeypatch: pytest.MonkeyPatch) -> None:
        self.script: list[str | Callable[[], object]] = []
        self.always = ""
        self._connection = connection
        self._request = connection.request
        monkeypatch.setattr(connection, "request", self._lossy)

    async def _lossy(
        self, subject: str, body: bytes, wait_s: float, headers: dict[str, str] | None = None
    ) -> Reply:
        if not subject.startswith("steno."):
            return await self._request(subject, body, wait_s, headers)
        step = self.script.pop(0) if self.script else self.always
        if callable(step):
            step = step() or ""
        if step == "answer":
            await self._store(subject, body, wait_s, headers)
        if step == "message":
            raise UnansweredError("lost on the way")
        if step == "answer":
            raise UnansweredError("lost on the way back")
        reply = await self._request(subject, body, wait_s, headers)
        if step == "10164":
            return Reply({}, b'{"error":{"code":400,"err_code":10164,"description":"wrong"}}')
        if step == "stale":
            return Reply({}, b'{"error":{"code":400,"err_code":10071,"description":"x: 0"}}')
        return reply

    async def _store(
        self, subject: str, body: bytes, wait_s: float, headers: dict[str, str] | None
    ) -> None:
        """Send a message until it is stored: the leader may still apply the one before."""
        is_stored = False
        while not is_stored:
            with suppress(NotConnectedError, NoRespondersError, UnansweredError):
                reply = await self._request(subject, body, wait_s, headers)
                # The fence refuses a second copy.
                is_stored = b'"error"' not in reply.body or b":10071," in reply.body
            await self._connection.wait_connected(READY_S)


@pytest.fixture
def ann(three_nodes: NatsCluster) -> Iterator[NatsJournal]:
    with joined(options(three_nodes), "ann") as journal:
        journal.wait_ready(READY_S)
        yield journal


@pytest.fixture
def bob(ann: NatsJournal) -> Iterator[NatsJournal]:
    with joined(ann._options, "bob") as journal:
        journal.wait_ready(READY_S)
        yield journal


@pytest.fixture
def losses(ann: NatsJournal, monkeypatch: pytest.MonkeyPatch) -> Losses:
    return Losses(ann._connection, monkeypatch)


def put(journal: NatsJournal, after: int, owner: Owner = ANN, kind: Kind = Kind.CHANGE) -> object:
    [found] = journal.publish([Publication("s", after, owner, kind, b"x")])
    return found


def stored(journal: NatsJournal, after: int, owner: Owner = ANN, kind: Kind = Kind.CHANGE) -> int:
    found = put(journal, after, owner, kind)
    assert isinstance(found, int), found
    return found


def test_a_lost_answer_gives_one_message(ann: NatsJournal, losses: Losses) -> None:
    first = stored(ann, 0)
    losses.script = ["answer", "answer", "message"]

    second = stored(ann, first)

    assert losses.script == []
    assert ann.counts() == {"s": 2}
    assert isinstance(put(ann, second), int)


def test_a_verdict_that_is_none_is_asked_for_again(ann: NatsJournal, losses: Losses) -> None:
    first = stored(ann, 0)
    losses.script = ["10164", "10164"]
    second = stored(ann, first)
    losses.script = ["stale", "stale"]
    third = stored(ann, second)

    assert [each.sequence for each in ann.read("s", 0, third)] == [first, second, third]


def test_a_lost_answer_is_found_behind_another_owner(
    ann: NatsJournal, bob: NatsJournal, losses: Losses
) -> None:
    first = stored(ann, 0)
    taken: list[int] = []

    def take_over() -> None:
        # Bob continues behind the message whose answer was lost. His journal has another thread.
        last = bob.last("s")
        assert last is not None
        taken.append(stored(bob, max(last.sequence, first + 1), BOB, Kind.OWN))

    losses.script = ["answer", take_over]

    second = stored(ann, first)

    assert second < taken[0]
    assert [each.owner for each in bob.read("s", 0, taken[0])] == [ANN, ANN, BOB]


def test_a_lost_message_behind_which_another_owner_comes_is_fenced(
    ann: NatsJournal, bob: NatsJournal, losses: Losses
) -> None:
    first = stored(ann, 0)
    losses.script = ["message", lambda: stored(bob, first, BOB, Kind.OWN) and ""]

    found = put(ann, first)

    assert isinstance(found, Fenced)
    assert found.newer.owner == BOB
    assert ann.counts() == {"s": 2}


def test_a_doubt_about_a_purged_message_is_no_refusal(
    three_nodes: NatsCluster, ann: NatsJournal, bob: NatsJournal, losses: Losses
) -> None:
    first = stored(ann, 0)
    stream = stream_name(ann._options.cluster)

    def replace_all() -> None:
        taken = stored(bob, first + 1, BOB, Kind.OWN)
        copy = stored(bob, taken, BOB, Kind.SNAPSHOT)
        bob.purge("s", copy)
        # A replica that lags would still show the purged message.
        three_nodes.wait_for_messages(stream, 2, copy)

    losses.script = ["answer", replace_all]

    found = put(ann, first)

    assert isinstance(found, InDoubt)


def test_a_removal_without_an_answer_is_repeated(
    ann: NatsJournal, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = stored(ann, 0)
    second = stored(ann, first)
    last = stored(ann, second)
    request, lost = ann._connection.request, iter(range(1))

    async def lose_first(subject: str, *sent: Any) -> Reply:
        reply = await request(subject, *sent)
        if "MSG.DELETE" in subject and next(lost, None) is not None:
            raise UnansweredError("lost on the way back")
        return reply

    monkeypatch.setattr(ann._connection, "request", lose_first)
    ann.purge("s", last, first)

    assert next(lost, None) is None
    assert [each.sequence for each in ann.read("s", 0, last)] == [first, last]


def test_a_list_of_a_leader_that_lags_does_not_count(
    ann: NatsJournal, monkeypatch: pytest.MonkeyPatch
) -> None:
    sequence = stored(ann, 0)
    assert ann.counts() == {"s": 1}
    monkeypatch.setattr(ann._identity, "stored", sequence + 1000)

    with pytest.raises(JournalLost, match="lacks what was stored"):
        ann.names()


def test_a_list_counts_although_more_is_stored_while_the_leader_answers(
    ann: NatsJournal, monkeypatch: pytest.MonkeyPatch
) -> None:
    stored(ann, 0)
    ask = ann._ask

    async def ask_slowly(name: str, request: object) -> dict[str, Any]:
        answer = await ask(name, request)
        ann._identity.stored += 1
        return answer

    monkeypatch.setattr(ann, "_ask", ask_slowly)
    known = ann._identity.stored
    assert ann.counts() == {"s": 1}
    assert ann._identity.stored == known + 1


def test_without_any_answer_the_outcome_is_in_doubt(ann: NatsJournal, losses: Losses) -> None:
    losses.always = "message"

    with given_up_after(ann, SOON_S):
        found = put(ann, 0)

    assert isinstance(found, InDoubt)
    assert "what was sent may be stored" in str(found.strerror)


def test_a_message_that_came_late_fences_its_own_owner(ann: NatsJournal, losses: Losses) -> None:
    first = stored(ann, 0)
    losses.script, losses.always = ["answer"], "message"
    with given_up_after(ann, SOON_S):
        assert isinstance(put(ann, first), InDoubt)
    losses.always = ""

    found = put(ann, first, kind=Kind.OWN)

    assert isinstance(found, Fenced)
    assert found.newer.owner == ANN
    assert isinstance(put(ann, found.newer.sequence, kind=Kind.OWN), int)


def rename(name_sequence: int, session_sequence: int) -> Publication:
    """The batch that renames p to q."""
    own = Publication("i", session_sequence, ANN, Kind.OWN, b"")
    gone = Publication("@p", name_sequence, ANN, Kind.GONE, b"i q", "key")
    name = Publication("@q", 0, ANN, Kind.NAME, b"i p", "key")
    return structs.replace(own, also=(gone, name))


@pytest.fixture
def named(ann: NatsJournal) -> tuple[int, int]:
    """The last messages of the name p and of its session."""
    created = Publication("i", 0, ANN, Kind.CHANGE, b"x")
    name = Publication("@p", 0, ANN, Kind.NAME, b"i ")
    [found] = ann.publish([structs.replace(created, also=(name,))])
    assert isinstance(found, int)
    return found - 1, found


@pytest.mark.parametrize("loss", ["answer", "message", "10164"])
def test_a_batch_without_an_answer_is_stored_once(
    ann: NatsJournal, losses: Losses, named: tuple[int, int], loss: str
) -> None:
    losses.script = [loss]

    [found] = ann.publish([rename(*named)])

    assert isinstance(found, int)
    left, come = ann.last("@p"), ann.last("@q")
    assert [each.sequence for each in (left, come) if each] == [found - 2, found - 1]
    assert [each.kind for each in ann.read("i", 0, found)] == [Kind.CHANGE, Kind.OWN]


def test_a_batch_without_an_answer_is_found_behind_what_came_since(
    ann: NatsJournal, bob: NatsJournal, losses: Losses, named: tuple[int, int]
) -> None:
    def take_over() -> None:
        last = bob.last("@q")
        assert last is not None
        own = Publication("i", last.sequence + 1, BOB, Kind.OWN, b"")
        assert isinstance(bob.publish([own])[0], int)

    losses.script = ["answer", take_over]

    [found] = ann.publish([rename(*named)])

    assert isinstance(found, int)
    moved = ann.last("@q")
    assert moved is not None
    assert (moved.sequence, moved.owner) == (found - 1, ANN)


def test_a_batch_that_was_lost_is_fenced_by_what_came_instead(
    ann: NatsJournal, bob: NatsJournal, losses: Losses, named: tuple[int, int]
) -> None:
    def take_over() -> None:
        own = Publication("i", named[1], BOB, Kind.OWN, b"")
        assert isinstance(bob.publish([own])[0], int)

    losses.script = ["message", take_over]

    [found] = ann.publish([rename(*named)])

    assert isinstance(found, Fenced)
    assert (found.subject, found.newer.owner) == ("i", BOB)
    assert ann.last("@q") is None


def test_messages_that_the_servers_lost_are_no_success(ann: NatsJournal) -> None:
    first = stored(ann, 0)

    found: object = InDoubt(None, "")
    with given_up_after(ann, SOON_S):
        # The deadline may leave the last attempt no time for its answer, which is a doubt.
        while isinstance(found, InDoubt):
            found = put(ann, first + 1000)

    assert isinstance(found, JournalLost)
    assert f"knows messages up to {first} of the subject, and {first + 1000}" in str(found.strerror)


def test_a_message_without_an_answer_is_in_doubt_where_another_stream_is_found(
    ann: NatsJournal, losses: Losses, three_nodes: NatsCluster
) -> None:
    first = stored(ann, 0)

    def lose() -> str:
        # What was sent may be in the stream of before, whose data may come back.
        another = Thread(target=rebuild, args=(three_nodes, stream_name(ann._options.cluster)))
        another.start()
        another.join()
        return "message"

    losses.script = [lose]
    assert isinstance(put(ann, first), InDoubt)
    with pytest.raises(ForeignStream):
        ann.last("s")


def test_a_replica_that_lags_does_not_make_a_folder_unknown(
    ann: NatsJournal, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def lag(*_: object) -> list[Reply]:
        return []

    sequence = stored(ann, 0)
    monkeypatch.setattr(nats_journal, "direct_get_batch", lag)
    last = ann.last("s")
    assert last is not None
    assert last.sequence == sequence
    assert ann.last("nowhere") is None


def test_the_event_loop_publishes_as_threads_do(ann: NatsJournal) -> None:
    async def publish() -> list[int | OSError]:
        both = [Publication(folder, 0, ANN, Kind.CHANGE, b"x") for folder in ("a", "b")]
        again = Publication("a", 0, BOB, Kind.CHANGE, b"y")
        return [*await ann.publish_on_loop(both), *await ann.publish_on_loop([again])]

    loop = ann._connection._loop
    found = asyncio.run_coroutine_threadsafe(publish(), loop).result(READY_S)
    assert isinstance(found[0], int)
    assert isinstance(found[1], int)
    assert isinstance(found[2], Fenced)
    assert [each.body for each in ann.read("a", 0, found[0])] == [b"x"]
