"""What the daemons of a cluster tell each other about sessions."""

import threading

import pytest

from stenod_cluster import limits
from stenod_cluster.hosts import Hosts
from stenod_cluster.journal import Owner
from support.memory_journal import MemoryStream

WAIT_S = 60.0


class Daemon:
    """A daemon that keeps what it hears."""

    def __init__(self, stream: MemoryStream, name: str) -> None:
        self.now = 0.0
        self.taken = threading.Event()
        self.given: list[str] = []
        self.hosts = Hosts(
            stream.join(name), Owner(name, "1", f"ipc:///{name}"), WAIT_S, lambda: self.now,
            lambda *_: self.taken.set(), lambda _: None,
            lambda session, _: self.given.append(session),
        )  # fmt: skip


@pytest.fixture
def one(stream: MemoryStream) -> Daemon:
    return Daemon(stream, "one")


@pytest.fixture
def two(stream: MemoryStream, one: Daemon) -> Daemon:
    made = Daemon(stream, "two")
    one.hosts.tell_alive()
    made.hosts.tell_alive()
    return made


def test_a_session_counts_as_taken_when_its_living_owner_has_marked_its_copy(
    one: Daemon, two: Daemon
) -> None:
    taking = threading.Thread(target=two.hosts.tell_taken, args=("s", {"one", "dead"}))
    taking.start()
    assert one.taken.wait(WAIT_S)
    one.hosts.tell_left("another")
    assert taking.is_alive()
    one.hosts.tell_left("s")
    taking.join(WAIT_S)
    assert not taking.is_alive()


def test_nobody_waits_for_a_dead_owner(stream: MemoryStream, two: Daemon) -> None:
    stream.partition("one")
    two.hosts.tell_taken("s", {"dead"})


def test_nobody_waits_any_longer_for_an_owner_that_dies_meanwhile(one: Daemon, two: Daemon) -> None:
    two.hosts.dead_s = 0.01
    taking = threading.Thread(target=two.hosts.tell_taken, args=("s", {"one"}), daemon=True)
    taking.start()
    assert one.taken.wait(WAIT_S)
    two.now += 1.0
    taking.join(WAIT_S / 2)
    assert not taking.is_alive()


def test_a_session_is_given_until_the_other_daemon_has_it(one: Daemon, two: Daemon) -> None:
    given: list[bool] = []
    giving = threading.Thread(target=lambda: given.append(one.hosts.give("s", "two")))
    one.hosts.answer_s = 0.01
    giving.start()
    while len(two.given) < 2:
        assert giving.is_alive()
    two.hosts.tell_taken("s", set())
    giving.join(WAIT_S)
    assert given == [True]
    assert one.given == []


def test_a_session_that_nobody_takes_is_not_given(
    stream: MemoryStream, one: Daemon, two: Daemon
) -> None:
    stream.partition("two")
    one.hosts.answer_s = 0.0
    assert not one.hosts.give("s", "two")
    stream.heal("two")
    assert not one.hosts.give("s", "two")
    assert len(two.given) == limits.GIVE_ATTEMPTS_MAX


def test_a_session_is_given_to_no_daemon_that_dies_meanwhile(one: Daemon, two: Daemon) -> None:
    one.hosts.dead_s = 0.01
    given: list[bool] = []
    giving = threading.Thread(target=lambda: given.append(one.hosts.give("s", "two")), daemon=True)
    giving.start()
    while not two.given:
        assert giving.is_alive()
    one.now += 1.0
    giving.join(WAIT_S / 2)
    assert given == [False]
    assert len(two.given) == 1
