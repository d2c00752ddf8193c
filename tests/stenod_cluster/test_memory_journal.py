"""The faults of the model of the journal."""

import pytest

from stenod_cluster.journal import (
    Fenced,
    ForeignMessage,
    InDoubt,
    Journal,
    JournalLost,
    Kind,
    Owner,
    Publication,
)
from support.memory_journal import UNPUBLISHED, Fault, MemoryStream

ANN = Owner("ann", "a1", "tcp://10.0.0.1:7117")


def put(journal: Journal, after: int) -> int | OSError:
    """Publish one message of the session s."""
    return journal.publish([Publication("s", after, ANN, Kind.CHANGE, b"x")])[0]


@pytest.mark.parametrize(("fault", "count"), [(Fault.UNANSWERED, 1), (Fault.DROPPED, 0)])
def test_a_fault_decides_whether_a_doubtful_message_is_stored(fault: Fault, count: int) -> None:
    stream = MemoryStream()
    journal = stream.join("ann")
    stream.force("ann", fault)

    assert isinstance(put(journal, 0), InDoubt)
    stream.settle()
    assert journal.counts().get("s", 0) == count


def test_a_late_message_comes_as_long_as_its_fence_holds() -> None:
    stream = MemoryStream()
    journal = stream.join("ann")
    stream.force("ann", Fault.LATE)
    assert isinstance(put(journal, 0), InDoubt)
    assert journal.last("s") is None

    stream.settle()

    found = put(journal, 0)
    assert isinstance(found, Fenced)
    assert found.newer.owner == ANN


def test_a_late_message_comes_never_behind_another_one() -> None:
    outcomes: set[bool] = set()
    for seed in range(20):
        stream = MemoryStream(seed)
        journal = stream.join("ann")
        stream.force("ann", Fault.LATE)
        put(journal, 0)
        is_stored = isinstance(put(journal, 0), int)
        stream.settle()
        assert journal.counts() == {"s": 1}
        outcomes.add(is_stored)
    assert outcomes == {True, False}


def test_a_host_that_is_cut_off_reads_publishes_and_hears_nothing() -> None:
    stream = MemoryStream()
    ann, bob = stream.join("ann"), stream.join("bob")
    heard: list[str] = []
    ann.listen(lambda topic, _: heard.append(topic))
    stream.partition("ann")

    bob.announce(ANN, "lost", b"")
    assert isinstance(put(ann, 0), JournalLost)
    assert isinstance(put(bob, 0), int)
    for read in (lambda: ann.last("s"), ann.counts, lambda: list(ann.read("s", 0, 1))):
        with pytest.raises(JournalLost):
            read()

    stream.heal("ann")
    bob.announce(ANN, "alive", b"")
    assert heard == ["alive"]
    assert ann.counts() == {"s": 1}


def test_a_stale_replica_lacks_the_last_message() -> None:
    stream = MemoryStream()
    journal = stream.join("ann")
    first = put(journal, 0)
    assert isinstance(first, int)
    put(journal, first)
    stream.force("ann", Fault.STALE)

    stale, fresh = journal.last("s"), journal.last("s")

    assert stale is not None
    assert fresh is not None
    assert stale.sequence == first < fresh.sequence


def test_a_message_of_another_program_is_named() -> None:
    stream = MemoryStream()
    journal = stream.join("ann")
    foreign = stream.publish_foreign("s")

    found = put(journal, 0)

    assert isinstance(found, ForeignMessage)
    assert found.sequence == foreign
    with pytest.raises(ForeignMessage):
        journal.last("s")
    here, other = journal.last_of(["s", "t"])
    assert isinstance(here, ForeignMessage)
    assert other is None


def test_a_full_stream_refuses_a_message() -> None:
    found = put(MemoryStream(capacity=0).join("ann"), 0)
    assert isinstance(found, OSError)
    assert "full" in str(found)


def test_the_same_seed_has_the_same_faults() -> None:
    def run(seed: int) -> list[str]:
        stream = MemoryStream(seed, dict.fromkeys(UNPUBLISHED, 0.2))
        journal = stream.join("ann")
        return [type(put(journal, 0)).__name__ for _ in range(50)]

    assert run(3) == run(3)
    assert {"InDoubt", "Fenced"} <= set(run(3)) | set(run(4))
    assert run(3) != run(4)
