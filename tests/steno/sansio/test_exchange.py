"""The client's exchange: replies, silence and ends of connections, driven by hand."""

from collections.abc import Sequence
from itertools import pairwise
from math import inf

import msgspec
import pytest

from steno._sansio.follower import Follower
from steno._sansio.requests import result_of
from steno.values import Live, RecordsEvent, Reset
from steno_protocol import events, limits, replies
from steno_protocol.commands import (
    Append,
    Command,
    CompactAbort,
    CompactBegin,
    Delete,
    Describe,
    Drain,
    Fork,
    Gc,
    Grant,
    Hello,
    Open,
    Stat,
    Subscribe,
    Unsubscribe,
    WriteSystemPrompt,
)
from steno_protocol.errors import (
    BadRequest,
    Busy,
    Conflict,
    ErrorCode,
    Exists,
    Incompatible,
    NotFound,
    Outcome,
    OutcomeUnknown,
    StorageFailed,
    TooLarge,
    Unreachable,
)
from steno_protocol.messages import Request, decode_requests, encode_replies
from steno_protocol.positions import Position
from support.driven_exchange import ACK, RECORD, Driver, only


def test_a_request_is_sent_at_once_with_its_deadline_on_the_daemons_clock() -> None:
    driver = Driver()
    pending = driver.append(timeout_s=30.0)
    request_id, command = only(driver.sent())
    assert request_id == pending.id
    assert command.deadline_ms == 5_000_000 + 30_000
    driver.answer(request_id, ACK)
    assert result_of(pending, replies.Reply) == (ACK, b"")
    assert driver.woken == ["k1"]
    assert not driver.exchange.wants_connection


def test_mutation_without_a_reply_is_resent_at_growing_intervals() -> None:
    driver = Driver()
    pending = driver.append()
    first = only(driver.sent())[1]
    assert isinstance(first, Append)
    assert not first.repeat
    waits: list[float] = []
    begun = driver.now
    while not pending.is_done:
        driver.wait(driver.exchange.alarm - driver.now)
        for request_id, command in driver.sent():
            assert isinstance(command, Append)
            assert (request_id, command.key, command.repeat) == (pending.id, "k1", True)
            waits.append(driver.now - begun)
    assert waits == [2.0, 6.0, 14.0, 22.0]
    with pytest.raises(OutcomeUnknown, match="k1") as raised:
        result_of(pending, replies.Reply)
    assert raised.value.key == "k1"
    assert raised.value.session == "demo"
    assert driver.exchange.alarm == inf


def test_a_mutation_that_was_never_sent_ends_unreachable_with_the_reason() -> None:
    driver = Driver(connected=False)
    driver.exchange.trouble = "no daemon listens"
    pending = driver.append()
    assert not driver.exchange.outbox
    driver.wait(30.0)
    with pytest.raises(Unreachable, match="no daemon listens"):
        result_of(pending, replies.Reply)


def test_reconnect_repeats_sent_requests_only() -> None:
    driver = Driver()
    driver.append("before")
    driver.sent()
    driver.exchange.disconnected("lost")
    driver.append("after")
    assert not driver.exchange.outbox
    driver.connect()
    commands = [command for _, command in driver.sent()]
    assert [(c.key, c.repeat) for c in commands if isinstance(c, Append)] == [
        ("before", True),
        ("after", False),
    ]


def test_busy_is_tried_again_with_growing_pauses_and_is_no_repeat() -> None:
    driver = Driver()
    pending = driver.append()
    driver.sent()
    pauses: list[float] = []
    for _ in range(4):
        driver.refuse(pending.id, ErrorCode.BUSY)
        pauses.append(driver.exchange.alarm - driver.now)
        driver.wait(pauses[-1])
        command = only(driver.sent())[1]
        assert isinstance(command, Append)
        assert not command.repeat
    assert all(later >= 1.9 * sooner for sooner, later in pairwise(pauses))
    driver.answer(pending.id, ACK)
    assert result_of(pending, replies.Reply)[0] == ACK


def test_a_request_that_was_always_busy_says_so_because_nothing_happened() -> None:
    driver = Driver()
    pending = driver.append(timeout_s=1.0)
    driver.refuse(pending.id, ErrorCode.BUSY)
    driver.now += 1.0
    driver.exchange.tick(driver.now)
    with pytest.raises(Busy):
        result_of(pending, replies.Reply)


def test_a_refusal_is_final_only_when_no_other_copy_is_under_way() -> None:
    driver = Driver()
    pending = driver.append()
    driver.wait(2.0)
    driver.refuse(pending.id, ErrorCode.CONFLICT)
    assert not pending.is_done
    driver.refuse(pending.id, ErrorCode.CONFLICT)
    with pytest.raises(Conflict):
        result_of(pending, replies.Reply)


def test_an_unknown_outcome_of_the_daemon_bears_the_key() -> None:
    driver = Driver()
    pending = driver.append()
    driver.refuse(pending.id, ErrorCode.STORAGE_FAILED, Outcome.UNKNOWN)
    with pytest.raises(OutcomeUnknown) as raised:
        result_of(pending, replies.Reply)
    assert (raised.value.key, raised.value.code) == ("k1", ErrorCode.STORAGE_FAILED)


def test_expired_too_early_asks_for_the_clock_and_tries_again() -> None:
    driver = Driver()
    pending = driver.append()
    driver.sent()
    driver.refuse(pending.id, ErrorCode.EXPIRED)
    hello_id, hello = only(driver.sent())
    assert isinstance(hello, Hello)
    driver.answer(
        hello_id,
        replies.Welcome(
            version="0", protocol=2, pid=1, root="/", started_at=0.0, clock_ms=9_000_000, limits={}
        ),
    )
    driver.wait(driver.exchange.alarm - driver.now)
    _, command = only(driver.sent())
    assert command.deadline_ms == pytest.approx(9_000_000 + 30_000, abs=1)


@pytest.mark.parametrize("key", [None, "k1"])
def test_a_session_made_by_a_lost_first_try_without_key_is_no_exists(key: str | None) -> None:
    driver, command = Driver(), Open(session="demo", exclusive=True, key=key)
    sure = driver.ask(command)
    driver.refuse(sure.id, ErrorCode.EXISTS)
    with pytest.raises(Exists):
        result_of(sure, replies.Reply)
    unsure = driver.ask(command)
    driver.exchange.disconnected("lost")
    driver.connect()
    driver.refuse(unsure.id, ErrorCode.EXISTS)
    with pytest.raises(OutcomeUnknown if key is None else Exists):
        result_of(unsure, replies.Reply)


@pytest.mark.parametrize(
    ("command", "key"),
    [
        (Fork(session="demo", new_session="other", key="k2"), "k2"),
        (Delete(session="demo", key="k3"), "k3"),
        (Describe(session="demo", title="t"), None),
        (Open(session="demo", key="k5"), "k5"),
        (CompactBegin(session="demo", lease="k4"), None),
        (CompactAbort(session="demo", lease="k4"), None),
        (Gc(trash=True), None),
        (Drain(), None),
    ],
)
def test_mutation_without_its_reply_has_an_unknown_outcome(
    command: Command, key: str | None
) -> None:
    driver = Driver()
    pending = driver.ask(command)
    driver.wait(30.0)
    with pytest.raises(OutcomeUnknown, match="repeat it") as raised:
        result_of(pending, replies.Reply)
    assert raised.value.key == key


@pytest.mark.parametrize(
    "command",
    [
        Stat(session="demo"),
        Open(session="demo", create=False),
        Gc(trash=True, dry_run=True),
    ],
)
def test_query_without_its_reply_was_not_applied(
    command: Command,
) -> None:
    driver = Driver()
    pending = driver.ask(command)
    driver.wait(30.0)
    with pytest.raises(Unreachable) as raised:
        result_of(pending, replies.Reply)
    assert raised.value.outcome is Outcome.NOT_APPLIED


def test_drain_succeeds_when_its_connection_ends() -> None:
    driver = Driver()
    pending = driver.exchange.submit(Drain(), (), lambda: None, driver.now, 30.0)
    driver.exchange.disconnected("lost")
    assert result_of(pending, replies.Reply) == (replies.Done(), b"")
    assert not driver.exchange.needs_daemon


def test_a_forgotten_request_gets_no_answer_and_is_not_sent_again() -> None:
    driver = Driver()
    pending = driver.append()
    driver.sent()
    driver.exchange.forget(pending)
    driver.answer(pending.id, ACK)
    driver.wait(10.0)
    assert not pending.is_done
    assert not driver.sent()


def test_oversized_header_and_lone_surrogate_are_refused_before_a_send() -> None:
    for connected in (True, False):
        driver = Driver(connected=connected)
        large = WriteSystemPrompt(session="demo", key="k", prompt="x" * limits.HEADER_BYTES_MAX)
        with pytest.raises(TooLarge):
            driver.exchange.submit(large, (), lambda: None, driver.now, 1.0)
        odd = WriteSystemPrompt(session="demo", key="k", prompt="\ud800")
        with pytest.raises(BadRequest):
            driver.exchange.submit(odd, (), lambda: None, driver.now, 1.0)
        assert not driver.exchange.wants_connection
        assert not driver.exchange.outbox


def test_end_of_the_exchange_reaches_all_present_and_later_requests() -> None:
    driver = Driver()
    mutation, read, follower = driver.append(), driver.stat(), driver.follow()
    driver.exchange.fail(Incompatible("too old"), for_ever=True)
    with pytest.raises(OutcomeUnknown):
        result_of(mutation, replies.Reply)
    with pytest.raises(Incompatible):
        result_of(read, replies.Reply)
    assert isinstance(follower.error, Incompatible)
    with pytest.raises(Incompatible):
        driver.append()


def test_invalid_message_is_incompatible() -> None:
    driver = Driver()
    for frames in ([], [b"STENO/1", b"r1", b"{}"], [b"STENO/2\n["]):
        with pytest.raises(Incompatible):
            driver.exchange.receive(frames, driver.now)


def test_a_position_of_the_daemon_that_is_none_is_incompatible() -> None:
    driver = Driver()
    driver.follow()
    request_id, _ = only(driver.sent())
    driver.answer(request_id, replies.Subscribed(head="0:0", incarnation="i"))
    with pytest.raises(Incompatible, match="0:-1"):
        driver.answer(request_id, events.Records(first="0:-1", next="0:0"), b"{}\n")


@pytest.mark.parametrize("is_stale", [True, False])
def test_each_stale_reply_is_notified(*, is_stale: bool) -> None:
    driver = Driver()
    driver.stat()
    driver.follow()
    (asked, _), (followed, _) = driver.sent()
    driver.answer(asked, replies.Done(stale=is_stale))
    assert driver.stale_replies == is_stale
    driver.answer(followed, replies.Subscribed(head="0:0", incarnation="i", stale=is_stale))
    assert driver.stale_replies == 2 * is_stale


# --- subscriptions -------------------------------------------------------------------------------


def begin(driver: Driver, follower: Follower, head: str = "0:0") -> bytes:
    request_id, command = only(driver.sent())
    assert isinstance(command, Subscribe)
    driver.answer(request_id, replies.Subscribed(head=head, incarnation="i1"))
    return request_id


def records(driver: Driver, request_id: bytes, first: str, after: str, block: bytes) -> None:
    driver.answer(request_id, events.Records(first=first, next=after), block)


def test_events_arrive_in_order_with_one_live() -> None:
    driver = Driver()
    follower = driver.follow()
    request_id = begin(driver, follower, head="2:2")
    records(driver, request_id, "2:0", "2:2", b"{}\n{}\n")
    driver.answer(request_id, events.Live(head="2:2"))
    reset = events.Reset(generation=3, kept=1, why="reverted", incarnation="i1", head="3:2")
    driver.answer(request_id, reset)
    records(driver, request_id, "3:1", "3:2", b"{}\n")
    driver.answer(request_id, events.Live(head="3:2"))
    assert list(follower.inbox) == [
        RecordsEvent(Position(2, 0), Position(2, 2), b"{}\n{}\n"),
        Live(Position(2, 2)),
        Reset(3, 1, "reverted", "i1", Position(3, 2)),
        RecordsEvent(Position(3, 1), Position(3, 2), b"{}\n"),
    ]


def test_after_a_reconnect_a_subscription_goes_on_where_it_was() -> None:
    driver = Driver()
    follower = driver.follow()
    request_id = begin(driver, follower)
    records(driver, request_id, "0:0", "0:2", b"{}\n{}\n")
    follower.pop()
    driver.exchange.disconnected("lost")
    driver.connect()
    again_id, command = only(driver.sent())
    assert isinstance(command, Subscribe)
    assert again_id != request_id
    assert (command.after, command.incarnation) == ("0:2", "i1")
    driver.answer(again_id, replies.Subscribed(head="0:5", incarnation="i1"))
    assert follower.position == Position(0, 2)


def test_events_from_before_a_reconnect_are_consumed_first() -> None:
    driver = Driver()
    follower = driver.follow()
    records(driver, begin(driver, follower), "0:0", "0:1", b"{}\n")
    driver.exchange.disconnected("lost")
    driver.connect()
    assert not driver.sent()
    follower.pop()
    driver.exchange.consumed(follower, driver.now)
    _, command = only(driver.sent())
    assert isinstance(command, Subscribe)
    assert command.after == "0:1"


def test_credit_is_given_back_in_portions_of_half_a_window() -> None:
    driver = Driver()
    follower = driver.follow()
    request_id = begin(driver, follower)
    block = b"x" * (limits.SUBSCRIPTION_WINDOW_BYTES // 4 - limits.EVENT_COST_BYTES - 1) + b"\n"
    granted: list[int] = []
    for number in range(4):
        records(driver, request_id, f"0:{number}", f"0:{number + 1}", block)
        follower.pop()
        driver.exchange.consumed(follower, driver.now)
        granted += [c.bytes for _, c in driver.sent() if isinstance(c, Grant)]
    assert granted == [limits.SUBSCRIPTION_WINDOW_BYTES // 2] * 2


def test_a_lagging_subscription_resumes_once_its_inbox_is_empty() -> None:
    driver = Driver()
    follower = driver.follow()
    request_id = begin(driver, follower)
    records(driver, request_id, "0:0", "0:1", b"{}\n")
    driver.answer(request_id, events.Lagged(next="0:1", why="slow"))
    assert not driver.sent()
    follower.pop()
    driver.exchange.consumed(follower, driver.now)
    _, command = only(driver.sent())
    assert isinstance(command, Subscribe)
    assert command.after == "0:1"


def test_event_out_of_sequence_is_dropped_and_requested_again() -> None:
    driver = Driver()
    follower = driver.follow()
    request_id = begin(driver, follower)
    records(driver, request_id, "0:0", "0:3", b"{}\n{}\n{}\n")
    follower.pop()
    records(driver, request_id, "0:1", "0:2", b"{}\n")
    assert not follower.inbox
    driver.wait(driver.exchange.alarm - driver.now)
    unsubscribe, subscribe = [command for _, command in driver.sent()]
    assert isinstance(unsubscribe, Unsubscribe)
    assert isinstance(subscribe, Subscribe)
    assert subscribe.after == "0:3"


def test_events_after_a_gap_are_dropped_and_requested_again() -> None:
    driver = Driver()
    follower = driver.follow()
    request_id, _ = only(driver.sent())
    driver.answer(request_id, events.Live(head="2:5"))
    driver.answer(request_id, replies.Subscribed(head="2:6", incarnation="i1"))
    assert (follower.is_live, len(follower.inbox)) == (False, 0)
    driver.wait(driver.exchange.alarm - driver.now)
    assert isinstance(driver.sent()[-1][1], Subscribe)


def test_a_daemon_that_forgot_a_subscription_is_asked_again_from_where_it_was() -> None:
    driver = Driver()
    follower = driver.follow()
    request_id = begin(driver, follower, head="0:3")
    records(driver, request_id, "0:0", "0:3", b"x" * limits.SUBSCRIPTION_WINDOW_BYTES)
    follower.pop()
    driver.exchange.consumed(follower, driver.now)
    granted, command = only(driver.sent())
    assert isinstance(command, Grant)
    driver.answer(granted, events.Lagged(next="0:0", why="not known"))
    *_, (_, subscribe) = driver.sent()
    assert isinstance(subscribe, Subscribe)
    assert subscribe.after == "0:3"


def test_refused_subscription_raises_the_reason() -> None:
    driver = Driver()
    follower = driver.follow()
    request_id, _ = only(driver.sent())
    driver.refuse(request_id, ErrorCode.NOT_FOUND)
    assert isinstance(follower.error, NotFound)
    assert driver.woken == ["follower"]
    assert not driver.exchange.wants_connection


def followed_again(driver: Driver, *, until_live: bool) -> tuple[Follower, bytes]:
    """A follower that was live and asks again on a new connection, and its request."""
    follower = driver.follow(until_live=until_live)
    driver.answer(begin(driver, follower), events.Live(head="0:0"))
    follower.pop()
    driver.exchange.disconnected("gone")
    driver.connect()
    return follower, only(driver.sent())[0]


def test_mirror_survives_a_temporary_disk_failure() -> None:
    driver = Driver()
    follower, request_id = followed_again(driver, until_live=True)
    driver.refuse(request_id, ErrorCode.STORAGE_FAILED)
    assert follower.error is None
    driver.wait(driver.exchange.alarm - driver.now)
    begin(driver, follower)


def test_subscription_raises_a_later_disk_failure() -> None:
    driver = Driver()
    follower, request_id = followed_again(driver, until_live=False)
    driver.refuse(request_id, ErrorCode.STORAGE_FAILED)
    assert isinstance(follower.error, StorageFailed)


def test_mirror_raises_an_initial_disk_failure_at_once() -> None:
    driver = Driver()
    follower = driver.follow(until_live=True)
    request_id, _ = only(driver.sent())
    driver.refuse(request_id, ErrorCode.STORAGE_FAILED)
    assert isinstance(follower.error, StorageFailed)


def test_subscription_without_a_reply_is_resent_once_under_a_new_name() -> None:
    driver = Driver()
    follower = driver.follow()
    asked_at: dict[str, float] = {}
    while follower.error is None:
        for _, command in driver.sent():
            if isinstance(command, Subscribe):
                asked_at[command.subscription] = driver.now
        driver.wait(driver.exchange.alarm - driver.now)
    pauses = [later - sooner for sooner, later in pairwise(asked_at.values())]
    assert pauses == pytest.approx([2.0, 4.0, 8.0, 8.0])
    assert isinstance(follower.error, Unreachable)


def test_an_answer_to_an_attempt_that_was_given_up_ends_its_subscription() -> None:
    driver = Driver()
    follower = driver.follow()
    given_up, _ = only(driver.sent())
    driver.wait(driver.exchange.alarm - driver.now)
    request_id, _ = [sent for sent in driver.sent() if isinstance(sent[1], Subscribe)][-1]
    driver.answer(given_up, replies.Subscribed(head="0:5", incarnation="i1"))
    _, command = only(driver.sent())
    assert command == Unsubscribe(subscription=given_up.decode())
    driver.answer(request_id, replies.Subscribed(head="0:5", incarnation="i1"))
    assert not driver.sent()
    assert follower.position is not None


def test_a_long_backlog_is_waited_for_as_long_as_it_moves() -> None:
    driver = Driver()
    follower = driver.follow(until_live=True)
    request_id = begin(driver, follower)
    for number in range(5):
        driver.wait(20.0)
        records(driver, request_id, f"0:{number}", f"0:{number + 1}", b"{}\n")
    assert follower.error is None
    assert driver.exchange.needs_daemon
    driver.answer(request_id, events.Live(head="0:5"))
    driver.wait(100.0)
    assert follower.error is None
    assert not driver.exchange.needs_daemon
    assert driver.exchange.wants_connection


def test_an_abandoned_subscription_ends_at_the_next_tick() -> None:
    driver = Driver()
    follower = driver.follow()
    begin(driver, follower)
    driver.exchange.abandon(follower)
    driver.exchange.tick(driver.now)
    assert isinstance(only(driver.sent())[1], Unsubscribe)
    assert not driver.exchange.wants_connection


# --- several requests in one message -------------------------------------------------------------


class Socket:
    """A socket that accepts a given number of messages."""

    def __init__(self, room: int = 100) -> None:
        self.room = room
        self.taken: list[list[bytes]] = []

    def send(self, frames: Sequence[bytes]) -> bool:
        if len(self.taken) >= self.room:
            return False
        self.taken.append(list(frames))
        return True


def keys_of(message: Sequence[bytes]) -> list[str]:
    commands = [each.command for each in decode_requests(message) if isinstance(each, Request)]
    return [command.key for command in commands if isinstance(command, Append)]


def test_messages_wait_in_order_for_a_full_socket(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(limits, "MESSAGE_REQUESTS_MAX", 2)
    driver, socket = Driver(), Socket(room=1)
    for key in ("a", "b", "c", "d", "e"):
        driver.append(key)
    driver.exchange.flush(socket.send)
    assert [keys_of(message) for message in socket.taken] == [["a", "b"]]
    assert len(driver.exchange.outbox) == 3
    socket.room = 100
    driver.exchange.flush(socket.send)
    assert [keys_of(message) for message in socket.taken] == [["a", "b"], ["c", "d"], ["e"]]


def test_large_request_is_a_message_of_its_own_in_order() -> None:
    driver, socket = Driver(), Socket()
    large = b"x" * limits.FAST_CHECK_BYTES_MAX
    for key, each in (("a", RECORD), ("b", large), ("c", RECORD), ("d", RECORD)):
        command = Append(session="demo", key=key)
        driver.exchange.submit(command, [each], lambda: None, driver.now, 30.0)
    driver.exchange.flush(socket.send)
    assert [keys_of(message) for message in socket.taken] == [["a"], ["b"], ["c", "d"]]


def test_replies_in_one_message_end_their_requests() -> None:
    driver = Driver()
    pendings = [driver.append("a"), driver.append("b")]
    acks = [msgspec.structs.replace(ACK, head=f"0:{number}") for number in range(2)]
    names = [pending.id for pending in pendings]
    driver.exchange.receive(encode_replies(list(zip(names, acks, strict=True))), driver.now)
    assert [result_of(pending, replies.Reply)[0] for pending in pendings] == acks
