"""The blocking client in a cluster: it goes to the owners, and on when they move or die."""

import os
import signal
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

import steno
from steno_protocol import limits
from support.scripted_cluster import (
    DEADLINE_S,
    HOME,
    WAIT_S,
    ScriptedCluster,
    contents,
    message,
    wait_until,
)

NOT_SERVED = (steno.Held, steno.OutcomeUnknown)
"""At its deadline a change may just be on its way to the home daemon again, which may apply it."""


def connected(cluster: ScriptedCluster, timeout: float = WAIT_S) -> steno.BlockingClient:
    return steno.connect_sync(endpoint=cluster.members[HOME].endpoint, timeout=timeout)


@pytest.mark.usefixtures("patient_clients")
def test_commands_go_to_the_named_owner_and_stay_there(cluster: ScriptedCluster) -> None:
    cluster.owner = 1
    with connected(cluster) as client:
        session = client.session("demo")
        for number in range(3):
            session.append_message(message(number))
    assert contents(cluster.lines) == ["0", "1", "2"]
    # Home: hello and the first append; the owner: hello and all appends.
    assert [len(member.requests) for member in cluster.members] == [2, 4, 0]


def read(events: steno.BlockingSubscription, seen: list[str], count: int) -> None:
    end = time.monotonic() + WAIT_S
    while len(seen) < count and time.monotonic() < end:
        event = events.next_event(timeout=1.0)
        if isinstance(event, steno.RecordsEvent):
            seen.extend(contents(event.lines()))


def test_a_moved_session_is_followed_without_loss_or_duplicate(cluster: ScriptedCluster) -> None:
    seen: list[str] = []
    with connected(cluster) as client:
        session = client.session("demo")
        with session.subscribe() as events:
            for number, owner in enumerate([HOME, 1, 2, HOME]):
                cluster.move(owner)
                session.append_message(message(number))
                read(events, seen, number + 1)
    assert seen == ["0", "1", "2", "3"]


def test_a_follower_in_a_thread_moves_with_the_session(cluster: ScriptedCluster) -> None:
    seen: list[str] = []
    cluster.move(1)
    with connected(cluster) as client, ThreadPoolExecutor(1) as threads:
        session = client.session("demo")
        with session.subscribe() as events:
            reading = threads.submit(read, events, seen, 4)
            for number, owner in enumerate([1, 2, HOME, 2]):
                cluster.move(owner)
                session.append_message(message(number))
            reading.result(WAIT_S)
    assert seen == ["0", "1", "2", "3"]


def test_an_owner_killed_among_appends_applies_each_once(cluster: ScriptedCluster) -> None:
    cluster.owner = 1
    cluster.members[1].loses_answers = 1 << 30
    with connected(cluster) as client, ThreadPoolExecutor(1) as threads:
        session = client.session("demo")
        appending = threads.submit(session.append_message, message(0))
        wait_until(lambda: bool(cluster.acks))
        cluster.kill(1)
        cluster.owner = None
        ack = appending.result(WAIT_S)
        session.append_message(message(1))
    assert contents(cluster.lines) == ["0", "1"]
    assert str(ack.first) == "0:0"
    first, *repeats, last = [each.repeat for each in cluster.appends_at(HOME)]
    assert (first, last) == (False, False)
    # Home is asked again and again until it has learned that the owner is dead.
    assert repeats
    assert all(repeats)


def test_home_is_asked_until_it_takes_a_dead_owners_session(cluster: ScriptedCluster) -> None:
    cluster.owner = 1
    cluster.kill(1)
    home = cluster.members[HOME]
    with connected(cluster) as client, ThreadPoolExecutor(1) as threads:
        appending = threads.submit(client.session("demo").append_message, message(0))
        wait_until(lambda: len(home.requests) >= 5)
        cluster.owner = HOME
        appending.result(WAIT_S)
    assert contents(cluster.lines) == ["0"]


def test_a_silent_owner_is_left_when_home_has_the_session(cluster: ScriptedCluster) -> None:
    cluster.owner = 1
    seen: list[str] = []
    with connected(cluster) as client:
        session = client.session("demo")
        with session.subscribe("now") as events:
            session.append_message(message(0))
            cluster.members[1].fall_silent()
            cluster.owner = HOME
            session.append_message(message(1))
            read(events, seen, 2)
    assert seen == ["0", "1"]


def test_daemons_that_name_each_other_are_asked_with_pauses(cluster: ScriptedCluster) -> None:
    members = cluster.members
    cluster.owner = None
    cluster.named = {0: members[1].endpoint, 1: members[2].endpoint, 2: members[1].endpoint}
    with connected(cluster, timeout=DEADLINE_S) as client, pytest.raises(steno.Held) as refused:
        client.stat("demo")
    assert refused.value.session == "demo"
    assert refused.value.endpoint in {members[1].endpoint, members[2].endpoint}
    assert "name each other" in refused.value.message
    assert "steno cluster status" in refused.value.message
    rounds = 6 + DEADLINE_S / limits.OWNER_PAUSE_S_MAX
    assert len(members[HOME].requests) < rounds
    assert len(members[1].requests) < 2 * rounds


def test_an_address_that_is_none_is_named_at_the_deadline(cluster: ScriptedCluster) -> None:
    cluster.owner = 1
    cluster.named = {HOME: "http://10.0.0.1"}
    with (
        connected(cluster, timeout=DEADLINE_S) as client,
        pytest.raises(NOT_SERVED, match="is not an endpoint"),
    ):
        client.session("demo").append_message(message(0))


def test_held_without_an_endpoint_is_raised_at_once(cluster: ScriptedCluster) -> None:
    cluster.owner = 1
    cluster.named = {HOME: None}
    with connected(cluster) as client, pytest.raises(steno.Held, match="another daemon owns it"):
        client.session("demo").append_message(message(0))


def test_a_mirror_moves_along(cluster: ScriptedCluster) -> None:
    with connected(cluster) as client:
        session = client.open("demo")
        for number, owner in enumerate([1, HOME, 2]):
            cluster.move(owner)
            session.append_message(message(number))
            session.refresh()
        assert [each["content"] for each in session.history] == ["0", "1", "2"]


def test_owner_answers_while_home_is_dead(cluster: ScriptedCluster) -> None:
    cluster.owner = 1
    with connected(cluster) as client:
        session = client.session("demo")
        session.append_message(message(0))
        cluster.kill(HOME)
        session.append_message(message(1))
    assert contents(cluster.lines) == ["0", "1"]


def test_another_known_owner_is_asked_while_home_is_dead(cluster: ScriptedCluster) -> None:
    with connected(cluster) as client:
        session = client.session("demo")
        for number, owner in enumerate([1, 2]):
            cluster.move(owner)
            session.append_message(message(number))
        cluster.kill(HOME)
        cluster.kill(2)
        cluster.owner = None
        session.append_message(message(2))
    assert contents(cluster.lines) == ["0", "1", "2"]
    assert cluster.owner == 1


def test_closing_ends_a_wait_for_an_owner(cluster: ScriptedCluster) -> None:
    cluster.owner = 1
    client = connected(cluster)
    session = client.session("demo")
    session.append_message(message(0))
    with session.subscribe("now") as events, ThreadPoolExecutor(1) as threads:
        assert isinstance(events.next_event(), steno.Live)
        waiting = threads.submit(events.next_event)
        client.close()
        with pytest.raises(steno.StenoError, match=r"client (was|is) closed"):
            waiting.result(WAIT_S)


def test_the_connections_to_owners_stay_with_the_parent(cluster: ScriptedCluster) -> None:
    cluster.owner = 1
    with connected(cluster) as client:
        session = client.session("demo")
        session.append_message(message(0))
        child = os.fork()
        if child == 0:
            try:
                session.append_message(message(9))
            except steno.BadRequest:
                os._exit(0)
            os._exit(1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        session.append_message(message(1))
    assert contents(cluster.lines) == ["0", "1"]


def test_an_interrupt_at_an_owner_leaves_the_client_usable(cluster: ScriptedCluster) -> None:
    cluster.owner = 1
    with connected(cluster) as client:
        session = client.session("demo")
        session.append_message(message(0))
        cluster.members[1].loses_answers = 1 << 30
        main = threading.main_thread().ident

        def interrupt() -> None:
            wait_until(lambda: len(cluster.acks) >= 2)
            assert main is not None
            signal.pthread_kill(main, signal.SIGINT)

        other = threading.Thread(target=interrupt)
        other.start()
        with pytest.raises(KeyboardInterrupt):
            session.append_message(message(1), key="once")
        other.join()
        with cluster.lock:
            cluster.members[1].loses_answers = 0
        ack = session.append_message(message(1), key="once")
    assert contents(cluster.lines) == ["0", "1"]
    assert str(ack.first) == "0:1"


def test_the_next_address_is_taken_when_home_dies(cluster: ScriptedCluster) -> None:
    cluster.kill(HOME)
    cluster.owner = None
    addresses = [member.endpoint for member in cluster.members]
    with steno.connect_sync(endpoint=addresses, timeout=WAIT_S) as client:
        session = client.session("demo")
        session.append_message(message(0))
        cluster.kill(1)
        cluster.owner = None
        session.append_message(message(1))
    assert contents(cluster.lines) == ["0", "1"]
    assert cluster.owner == 2


def test_addresses_of_a_cluster_are_checked_and_bounded() -> None:
    with pytest.raises(steno.BadRequest, match="is not an endpoint"):
        steno.connect_sync(endpoint="tcp://10.0.0.1:7117,tcp://10.0.0.2")
    many = ["tcp://10.0.0.1:7117"] * (limits.ENDPOINTS_MAX + 1)
    for wrong in ([], many):
        with pytest.raises(steno.BadRequest, match="endpoints: give one to"):
            steno.connect_sync(endpoint=wrong)
