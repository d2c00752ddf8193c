"""What every journal does: the real one and its model in memory."""

import threading
from errno import EMSGSIZE

import pytest
from msgspec import structs

from cluster.conftest import Join
from stenod_cluster import limits
from stenod_cluster.journal import (
    Fenced,
    Journal,
    JournalLost,
    Kind,
    Message,
    Owner,
    Publication,
    subject_of_name,
)
from support.nats_cluster import wait_until
from support.nats_journals import READY_S

ANN = Owner("ann", "a1", "tcp://10.0.0.1:7117")
BOB = Owner("bob", "b1", "tcp://10.0.0.2:7117")


def put(
    journal: Journal, folder: str, after: int, owner: Owner = ANN, body: bytes = b"x",
    kind: Kind = Kind.CHANGE,
) -> int | OSError:  # fmt: skip
    """Publish one message."""
    [found] = journal.publish([Publication(folder, after, owner, kind, body)])
    return found


def stored(
    journal: Journal, folder: str, after: int, owner: Owner = ANN, body: bytes = b"x",
    kind: Kind = Kind.CHANGE,
) -> int:  # fmt: skip
    """Publish one message that has to be stored."""
    found = put(journal, folder, after, owner, body, kind)
    assert isinstance(found, int), found
    return found


def last_after(journal: Journal, folder: str, sequence: int) -> Message:
    """The folder's last message, as soon as the replica that answers has it."""
    while (found := journal.last(folder)) is None or found.sequence < sequence:
        pass
    return found


def test_a_message_comes_back_as_it_was_published(join: Join) -> None:
    journal = join("ann")
    sequence = stored(journal, "a/b", 0, body=bytes(range(256)), kind=Kind.SNAPSHOT)

    found = last_after(journal, "a/b", sequence)

    assert (found.sequence, found.owner, found.kind) == (sequence, ANN, Kind.SNAPSHOT)
    assert found.body == bytes(range(256))
    assert list(journal.read("a/b", 0, sequence)) == [found]


def test_a_folder_without_messages_has_no_last_one(join: Join) -> None:
    assert join("ann").last("never") is None


def test_the_last_messages_of_several_folders_are_read_together(join: Join) -> None:
    journal = join("ann")
    names = [f"s{number}" for number in range(100)]
    found = journal.publish([Publication(name, 0, ANN, Kind.OWN, b"") for name in names])
    for name, sequence in zip(names, found, strict=True):
        assert isinstance(sequence, int)
        last_after(journal, name, sequence)

    last = journal.last_of([*names, "never"])

    assert [each.sequence if each else None for each in last] == [*found, None]


def test_last_messages_that_one_answer_has_no_room_for_are_read_too(join: Join) -> None:
    journal = join("ann")
    body = bytes(limits.JOURNAL_BODY_BYTES_MAX)
    names = [f"large{number}" for number in range(limits.READ_BATCH_BYTES // len(body) + 2)]
    for name in names:
        last_after(journal, name, stored(journal, name, 0, body=body))

    found = journal.last_of([*names, "never"])

    assert found.pop() is None
    assert all(isinstance(each, Message) and each.body == body for each in found)


@pytest.mark.parametrize("folder", ["a.b/c d", "*/>", "%2E/ä€", "Kimi:x/\udcff", "tab\tline\n/q"])
def test_every_folder_name_has_its_own_subject(join: Join, folder: str) -> None:
    journal = join("ann")
    sequence = stored(journal, folder, 0)

    assert last_after(journal, folder, sequence).sequence == sequence
    assert journal.counts() == {folder: 1}
    assert journal.last(folder.replace(".", "/")) is None or "." not in folder


def test_messages_are_read_in_the_order_of_publication(join: Join) -> None:
    journal, at, sequences = join("ann"), 0, []
    for number in range(600):
        at = stored(journal, "s", at, body=str(number).encode())
        sequences.append(at)

    found = list(journal.read("s", 0, at))

    assert [message.sequence for message in found] == sequences
    assert [message.body for message in found] == [str(number).encode() for number in range(600)]
    assert [each.body for each in journal.read("s", sequences[9], sequences[11])] == [b"10", b"11"]
    assert list(journal.read("s", at, at)) == []


def test_sixteen_large_parts_are_read_whole(join: Join) -> None:
    journal, at = join("ann"), 0
    bodies = [bytes([number]) * limits.JOURNAL_BODY_BYTES_MAX for number in range(16)]
    for number, body in enumerate(bodies):
        at = stored(journal, "s", at, body=body, kind=Kind.CHANGE if number == 15 else Kind.PART)

    found = list(join("bob").read("s", 0, at))

    assert [message.body for message in found] == bodies
    assert [message.kind for message in found] == [Kind.PART] * 15 + [Kind.CHANGE]


def test_folders_are_published_to_side_by_side(join: Join) -> None:
    journal = join("ann")
    found = journal.publish(
        [Publication(f"s{number}", 0, ANN, Kind.OWN, b"") for number in range(16)]
    )

    assert all(isinstance(each, int) for each in found)
    assert journal.counts() == {f"s{number}": 1 for number in range(16)}


def test_names_are_listed_apart_from_sessions(join: Join) -> None:
    journal = join("ann")
    stored(journal, "i", 0)
    for name in ("a", "a/b", "a/b/c d", "ab", "c/a/b"):
        stored(journal, subject_of_name(name), 0, kind=Kind.NAME)

    assert sorted(journal.names()) == ["a", "a/b", "a/b/c d", "ab", "c/a/b"]
    assert sorted(journal.names("a")) == ["a/b", "a/b/c d"]
    assert journal.names("never") == []
    assert journal.counts() == {"i": 1}


def batch(*messages: tuple[str, int]) -> Publication:
    """Several messages that are stored together or not at all."""
    *also, last = (Publication(subject, after, ANN, Kind.OWN, b"x") for subject, after in messages)
    return structs.replace(last, also=tuple(also))


def test_a_batch_is_stored_whole_and_in_order(join: Join) -> None:
    journal = join("ann")
    first = stored(journal, "i", 0)

    [found] = journal.publish([batch(("@p", 0), ("i", first), ("@q", 0))])

    assert isinstance(found, int)
    at_once = [journal.last("@p"), last_after(journal, "i", found - 1), journal.last("@q")]
    assert [each.sequence for each in at_once if each] == [found - 2, found - 1, found]


@pytest.mark.parametrize("wrong", range(3))
def test_a_batch_with_one_wrong_fence_stores_nothing(join: Join, wrong: int) -> None:
    journal, subjects = join("ann"), ("@p", "i", "@q")
    theirs = stored(journal, subjects[wrong], 0, BOB)

    [found] = journal.publish([batch(*((each, 0) for each in subjects))])

    assert isinstance(found, Fenced)
    assert (found.subject, found.newer.sequence) == (subjects[wrong], theirs)
    assert found.newer.owner == BOB
    others = [each for each in subjects if each != subjects[wrong]]
    assert journal.last_of(others) == [None, None]


def test_a_batch_of_hundreds_of_large_messages_is_stored(join: Join) -> None:
    journal = join("ann")
    wanted = batch(*((f"@s/{number}", 0) for number in range(900)))

    [found] = journal.publish([structs.replace(wanted, body=b"x" * 500_000)])

    assert isinstance(found, int)
    assert len(journal.names("s")) == 900


def test_of_two_batches_behind_the_same_names_one_is_stored(join: Join) -> None:
    ann, bob = join("ann"), join("bob")
    outcomes: list[int | OSError] = []

    def publish(journal: Journal) -> None:
        outcomes.extend(journal.publish([batch(("@p", 0), ("@q", 0))]))

    threads = [threading.Thread(target=publish, args=[journal]) for journal in (ann, bob)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert sorted(isinstance(each, int) for each in outcomes) == [False, True]
    (refused,) = (each for each in outcomes if not isinstance(each, int))
    assert isinstance(refused, Fenced)


def test_a_stale_owner_is_refused_and_learns_the_newer_one(join: Join) -> None:
    ann, bob = join("ann"), join("bob")
    first = stored(ann, "s", 0, kind=Kind.OWN)
    taken = stored(bob, "s", first, BOB, kind=Kind.OWN)

    refused = put(ann, "s", first)

    assert isinstance(refused, Fenced)
    assert (refused.newer.owner, refused.newer.sequence) == (BOB, taken)
    assert bob.counts() == {"s": 2}
    assert isinstance(stored(bob, "s", taken, BOB), int)


def test_one_refused_publication_leaves_the_others(join: Join) -> None:
    journal = join("ann")
    first = stored(journal, "s", 0)
    stored(journal, "s", first)

    refused, taken = journal.publish(
        [Publication("s", first, ANN, Kind.CHANGE, b""), Publication("t", 0, ANN, Kind.OWN, b"")]
    )

    assert isinstance(refused, Fenced)
    assert isinstance(taken, int)


def test_of_racing_owners_one_continues_the_folder(join: Join) -> None:
    journals = [join(f"h{number}") for number in range(4)]
    first = stored(journals[0], "s", 0)
    found: list[int | OSError] = []

    def take(number: int) -> None:
        owner = Owner(f"h{number}", "1", f"tcp://{number}")
        found.append(put(journals[number], "s", first, owner, kind=Kind.OWN))

    threads = [threading.Thread(target=take, args=[number]) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert sum(isinstance(each, int) for each in found) == 1
    assert sum(isinstance(each, Fenced) for each in found) == 3
    assert journals[0].counts() == {"s": 2}


def test_the_oldest_name_below_one_is_that_of_the_first_message(join: Join) -> None:
    journal = join("ann")
    assert journal.names("p", oldest=True) == []
    at = 0
    for name in ("a", "p", "p/z", "p/b/c", "p/a"):
        at = stored(journal, subject_of_name(name), 0)
    assert journal.names("p", oldest=True) == ["p/z"]
    stored(journal, subject_of_name("p/a"), at)
    journal.purge(subject_of_name("p/z"), at)
    assert journal.names("p", oldest=True) == ["p/b/c"]


def test_a_purge_removes_what_is_before(join: Join) -> None:
    journal, at = join("ann"), 0
    for _ in range(5):
        at = stored(journal, "s", at)
    other = stored(journal, "t", 0)

    journal.purge("s", at)
    journal.purge("s", at)

    assert journal.counts() == {"s": 1, "t": 1}
    assert last_after(journal, "t", other).sequence == other
    assert isinstance(stored(journal, "s", at), int)


def test_a_purge_behind_a_message_keeps_what_is_before(join: Join) -> None:
    journal, sequences = join("ann"), [0]
    for _ in range(600):
        sequences.append(stored(journal, "s", sequences[-1]))
    kept, last = sequences[2], sequences[-1]

    for _ in range(2):
        journal.purge("s", last, kept)
        journal.purge("s", last, last)
        # A replica that lags has what was removed last for a moment more.
        wait_until(
            lambda: (
                [each.sequence for each in journal.read("s", 0, last)] == [*sequences[1:3], last]
            ),
            "what was purged is still there",
        )
    assert isinstance(stored(journal, "s", last), int)


def test_a_message_over_the_limit_is_refused(join: Join) -> None:
    journal = join("ann")

    refused = put(journal, "s", 0, body=bytes(2_000_000))

    assert isinstance(refused, OSError)
    assert refused.errno == EMSGSIZE
    assert journal.counts() == {}


def test_announcements_reach_all_daemons(join: Join) -> None:
    ann, bob = join("ann"), join("bob")
    heard: set[tuple[str, str, bytes]] = set()
    all_heard = threading.Event()

    def listener(name: str, topic: str, body: bytes) -> None:
        heard.add((name, topic, body))
        if len(heard) == 2:
            all_heard.set()

    ann.listen(lambda topic, body: listener("ann", topic, body))
    bob.listen(lambda topic, body: listener("bob", topic, body))
    # An announcement may be lost while the servers learn of a new listener.
    for _ in range(200):
        ann.announce(ANN, "alive.now", b"1")
        if all_heard.wait(0.1):
            break

    assert heard == {("ann", "alive.now", b"1"), ("bob", "alive.now", b"1")}


def test_a_closed_journal_publishes_and_reads_nothing(join: Join) -> None:
    journal = join("ann")
    journal.close()
    journal.close()

    assert isinstance(put(journal, "s", 0), JournalLost)
    with pytest.raises(JournalLost):
        journal.last("s")
    with pytest.raises(JournalLost):
        journal.counts()
    journal.announce(ANN, "alive", b"")


def test_the_last_announcement_of_a_journal_that_is_closed_is_heard(join: Join) -> None:
    ann, bob = join("ann"), join("bob")
    is_heard, is_ended = threading.Event(), threading.Event()

    def hear(topic: str, body: bytes) -> None:
        del body
        (is_ended if topic == "ended" else is_heard).set()

    bob.listen(hear)
    while not is_heard.wait(0.1):
        ann.announce(ANN, "alive", b"")

    ann.announce(ANN, "ended", b"")
    ann.close()

    assert is_ended.wait(READY_S)
