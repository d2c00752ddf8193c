"""Threads that share one blocking client without delaying each other."""

import threading
import time
from collections.abc import Callable, Iterator
from concurrent import futures
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest

from steno import (
    BadRequest,
    BlockingClient,
    BlockingSession,
    BlockingSubscription,
    Busy,
    Live,
    RecordsEvent,
    Unreachable,
    connect_sync,
)
from steno_protocol import commands, replies
from steno_protocol.errors import Outcome
from steno_protocol.messages import Request
from support.messages import message
from support.scripted_daemon import Answers, ScriptedDaemon
from support.session_files import contents_in

QUICK_S = 15.0
"""What is at once on an idle machine; the threads in its way would hold it up for ever, or 60 s."""

LONG_S = 60.0


@contextmanager
def threads(client: BlockingClient) -> Iterator[ThreadPoolExecutor]:
    """Threads that share the client, which is closed first: nobody waits after that."""
    with ThreadPoolExecutor(16) as pool:
        try:
            yield pool
        finally:
            client.close()


def contents(subscription: BlockingSubscription, count: int) -> list[str]:
    """The contents of the next `count` messages."""
    texts: list[str] = []
    for event in subscription:
        if isinstance(event, RecordsEvent):
            texts += [str(record.record["content"]) for record in event.records()]
        if len(texts) >= count:
            break
    return texts


def begun(subscription: BlockingSubscription) -> BlockingSubscription:
    """The subscription, once it is at its end and its next event is news."""
    assert isinstance(next(subscription), Live)
    return subscription


def wait_in(pool: ThreadPoolExecutor, client: BlockingClient, work: Callable[[], object]) -> None:
    """Have a thread begin a wait, and return once it looked for the first time."""
    link = client._link
    has_looked = threading.Event()
    wait_until = link.wait_until

    def watched(is_true: Callable[[], bool], timeout: float | None = None) -> bool:
        def look() -> bool:
            has_looked.set()
            return is_true()

        return wait_until(look, timeout)

    link.wait_until = watched  # type: ignore[method-assign]
    pool.submit(work)
    assert has_looked.wait(LONG_S)
    link.wait_until = wait_until  # type: ignore[method-assign]


def test_an_append_is_sent_at_once_beside_a_quiet_subscription(
    root: Path,
) -> None:
    with connect_sync(root) as client, threads(client) as pool:
        quiet = begun(client.open("quiet").subscribe("now"))
        session = client.open("demo")
        wait_in(pool, client, lambda: next(quiet, None))
        ack = pool.submit(session.append_message, message("a")).result(QUICK_S)
        assert str(ack.first) == "0:0"
        assert session.history == [message("a")]


def test_an_append_goes_at_once_while_another_thread_waits_again_and_again(root: Path) -> None:
    with connect_sync(root) as client, threads(client) as pool:
        quiet = begun(client.open("quiet").subscribe("now"))
        session = client.open("demo")
        is_over = threading.Event()

        def wait_again_and_again() -> None:
            while not is_over.is_set():
                quiet.next_event(timeout=LONG_S)

        wait_in(pool, client, wait_again_and_again)
        for number in range(5):
            pool.submit(session.append_message, message(str(number))).result(QUICK_S)
        is_over.set()


def test_two_subscribed_threads_see_the_appends_of_a_third(root: Path) -> None:
    with connect_sync(root) as client, threads(client) as pool:
        session = client.open("demo")
        pending = [pool.submit(contents, begun(session.subscribe("now")), 50) for _ in range(2)]
        texts = [str(number) for number in range(50)]
        for text in texts:
            pool.submit(session.append_message, message(text)).result(QUICK_S)
        # The last event too, whichever thread took it in.
        assert [each.result(QUICK_S) for each in pending] == [texts, texts]


def test_two_subscribed_threads_see_the_appends_of_another_client(root: Path) -> None:
    with connect_sync(root) as client, connect_sync(root) as other, threads(client) as pool:
        first, second = client.open("first"), client.open("second")
        in_first = pool.submit(contents, begun(first.subscribe("now")), 20)
        in_second = pool.submit(contents, begun(second.subscribe("now")), 20)
        texts = [str(number) for number in range(20)]
        for name in ("first", "second"):
            for text in texts:
                other.session(name).append_message(message(text))
        assert in_first.result(QUICK_S) == texts
        assert in_second.result(QUICK_S) == texts


def test_two_threads_in_one_subscription_get_each_event_once(root: Path) -> None:
    with connect_sync(root) as client, threads(client) as pool:
        session = client.open("demo")
        events = begun(session.subscribe("now"))
        link = client._link
        wait_until = link.wait_until

        def wait_as_ever() -> None:
            link.wait_until = wait_until  # type: ignore[method-assign]

        both_have_news = threading.Barrier(2, wait_as_ever, LONG_S)

        def watched(is_true: Callable[[], bool], timeout: float | None = None) -> bool:
            has_news = wait_until(is_true, timeout)
            both_have_news.wait()
            return has_news

        session.append_message(message("one"))
        link.wait_until = watched  # type: ignore[method-assign]
        pending = [pool.submit(contents, events, 1) for _ in range(2)]
        futures.wait(pending, QUICK_S, futures.FIRST_COMPLETED)
        assert sum(each.done() for each in pending) == 1
        session.append_message(message("two"))
        assert sorted(each.result(QUICK_S) for each in pending) == [["one"], ["two"]]


def test_a_wait_ends_with_another_threads_append_or_its_timeout(root: Path) -> None:
    with connect_sync(root) as client, threads(client) as pool:
        session = client.open("demo")
        waits = [pool.submit(session.wait_for, f"0:{count}", LONG_S) for count in (1, 3)]
        never = pool.submit(session.wait_for, "0:99", 0.05)
        for number in range(3):
            pool.submit(session.append_message, message(str(number))).result(QUICK_S)
        assert [wait.result(QUICK_S) for wait in waits] == [True, True]
        assert never.result(QUICK_S) is False


def test_a_client_that_is_closed_ends_the_waits_on_it(root: Path) -> None:
    with connect_sync(root) as client, threads(client) as pool:
        session = client.open("demo")
        events = begun(session.subscribe("now"))
        found: list[Future[object]] = []
        wait_in(pool, client, lambda: found.append(pool.submit(next, events)))
        found.append(pool.submit(session.wait_for, "0:99"))
        pool.submit(client.close).result(QUICK_S)
        for each in found:
            with pytest.raises((Unreachable, BadRequest), match="closed"):
                each.result(QUICK_S)


def test_a_subscription_that_is_closed_ends_the_loop_over_it(root: Path) -> None:
    with connect_sync(root) as client, threads(client) as pool:
        events = begun(client.open("demo").subscribe("now"))
        pending = pool.submit(list, events)
        wait_in(pool, client, lambda: client.open("demo").wait_for("0:99", LONG_S))
        pool.submit(events.close).result(QUICK_S)
        assert pending.result(QUICK_S) == []


@pytest.mark.parametrize(
    "wait",
    [
        lambda client: client.session("demo").restore(),
        lambda client: client.open("demo", create=False),
        lambda client: client.session("demo").subscribe("now"),
        lambda client: next(client.session("demo").subscribe("start")),
    ],
    ids=["restore", "open", "subscribe from now on", "the first event"],
)
def test_a_subscription_that_is_not_answered_ends_in_time(
    root: Path, wait: Callable[[BlockingClient], object]
) -> None:
    def mute(request: Request) -> Answers | None:
        # It does not answer the close request, either: that would wake the waiting thread.
        is_about_it = isinstance(request.command, commands.Subscribe | commands.Unsubscribe)
        return [] if is_about_it else None

    with (
        ScriptedDaemon(root, mute) as daemon,
        connect_sync(endpoint=daemon.endpoint) as client,
        threads(client) as pool,
    ):
        client._link.timeout = 1.0
        # In a thread of its own, so that a wait for ever fails here and is ended.
        waiting = pool.submit(wait, client)
        with pytest.raises(Unreachable, match="not answered in time"):
            waiting.result(QUICK_S)


def test_a_request_without_a_turn_in_time_is_busy_and_unsent(root: Path) -> None:
    is_asked, may_answer = threading.Event(), threading.Event()

    def slow(request: Request) -> Answers | None:
        if isinstance(request.command, commands.Status):
            is_asked.set()
            assert may_answer.wait(LONG_S)
        return None

    with ScriptedDaemon(root, slow) as daemon:
        with connect_sync(endpoint=daemon.endpoint) as client, threads(client) as pool:
            link = client._link
            session = client.open("demo", follow=False)
            slow_one = pool.submit(link.ask, commands.Status(), replies.Done)
            assert is_asked.wait(LONG_S)
            link.timeout = 0.05
            with pytest.raises(Busy, match="another thread") as raised:
                pool.submit(session.append_message, message("a")).result(QUICK_S)
            assert raised.value.outcome is Outcome.NOT_APPLIED
            with pytest.raises(Busy, match="client of its own"):
                pool.submit(client.close).result(QUICK_S)
            link.timeout = LONG_S
            may_answer.set()
            assert slow_one.result(QUICK_S) == replies.Done()
            assert str(session.append_message(message("b")).first) == "0:0"
        assert sum(isinstance(each, commands.Append) for each in daemon.requests) == 1


def test_eight_threads_append_each_in_its_order_and_each_once(root: Path) -> None:
    with connect_sync(root) as client, threads(client) as pool:
        session = client.open("demo")

        def write(number: int) -> list[str]:
            return [
                str(
                    session.append_message(message(f"{number}-{count}"), durability="written").first
                )
                for count in range(200)
            ]

        acked = [each.result() for each in [pool.submit(write, number) for number in range(8)]]
        assert len({position for own in acked for position in own}) == 1600
        assert set(contents_in(root, "demo").values()) == {1}
        said = [str(each["content"]) for each in session.history]
        for number in range(8):
            own = [text for text in said if text.startswith(f"{number}-")]
            assert own == [f"{number}-{count}" for count in range(200)]


def test_waiting_threads_use_no_processor_time(root: Path) -> None:
    with connect_sync(root) as client, threads(client) as pool:
        session = client.open("demo")
        steps = _steps_counted(client)

        def wait() -> float:
            began = time.thread_time()
            assert not session.wait_for("0:99", 1.0)
            return time.thread_time() - began

        used = [each.result(QUICK_S) for each in [pool.submit(wait) for _ in range(3)]]
        assert max(used) < 0.2
        # One step each at the beginning, and a few for the calls of the other threads.
        assert len(steps) < 30


def _steps_counted(client: BlockingClient) -> list[float]:
    link, steps = client._link, list[float]()
    step = link._step

    def counted(deadline: float) -> bool:
        steps.append(deadline)
        return step(deadline)

    link._step = counted  # type: ignore[method-assign]
    return steps


def test_an_interrupt_leaves_the_turn_to_others(root: Path) -> None:
    with connect_sync(root) as client, threads(client) as pool:
        session: BlockingSession = client.open("demo")

        def interrupted() -> bool:
            raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            client._link.wait_until(interrupted)
        pool.submit(session.append_message, message("a")).result(QUICK_S)
