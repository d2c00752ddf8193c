"""Calls of the blocking client that are interrupted by signals."""

import signal
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from steno import BlockingClient, BlockingSession, Busy, RecordsEvent, connect_sync
from steno_protocol.errors import Outcome
from support.interrupts import Interrupts
from support.messages import message
from support.session_files import contents_in

# Python itself drops an interrupt that comes in a finaliser, as that of a generator, and says so.
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")


def texts(session: BlockingSession) -> list[str]:
    return [str(message["content"]) for message in session.history]


def wait_until_something_came(client: BlockingClient) -> None:
    connection = client._link._connection
    assert connection is not None
    assert connection.wait(time.monotonic() + 30)[0]


def interrupt_everywhere(work: Callable[[int], object], check: Callable[[int], object]) -> int:
    """Interrupt the work at one place after the other, check after each; how many there were."""
    interrupts = Interrupts()
    place = 0
    while not place or interrupts.has_come:
        interrupts.run(lambda place=place: work(place), place)
        check(place)
        place += 1
    return place


def test_an_append_that_is_interrupted_anywhere_is_applied_once_by_its_repeat(root: Path) -> None:
    with connect_sync(root) as client:
        session = client.open("demo")

        def append(place: int) -> None:
            session.append_message(message(str(place)), key=f"k{place}")

        assert interrupt_everywhere(append, append) > 100
        assert texts(session) == [str(record.record["content"]) for record in session.records()]
        assert session.damaged == 0
        assert set(contents_in(root, "demo").values()) == {1}
        assert not client._link._turns._sleeping


@pytest.mark.slow
def test_a_refresh_that_is_interrupted_anywhere_is_made_good_by_the_next(root: Path) -> None:
    with connect_sync(root) as client, connect_sync(root) as other:
        session, reader = other.open("demo", follow=False), client.open("demo")
        written: list[str] = []

        def check(place: int) -> None:
            reader.refresh()
            assert texts(reader) == written
            written.append(str(place))
            session.append_message(message(written[-1]))
            wait_until_something_came(client)

        check(-1)
        assert interrupt_everywhere(lambda _: reader.refresh(), check) > 50
        assert reader.damaged == 0


@pytest.mark.slow
def test_an_append_interrupted_anywhere_loses_no_other_record(root: Path) -> None:
    with connect_sync(root) as client, connect_sync(root) as other:
        writer, session = other.open("demo", follow=False), client.open("demo")

        def write_and_let_it_come(place: int) -> None:
            writer.append_message(message(f"other {place}"))
            wait_until_something_came(client)

        def append(place: int) -> None:
            session.append_message(message(str(place)), key=f"k{place}")

        def check(place: int) -> None:
            append(place)
            write_and_let_it_come(place + 1)

        write_and_let_it_come(0)
        assert interrupt_everywhere(append, check) > 100
        session.refresh()
        assert texts(session) == [str(record.record["content"]) for record in session.records()]
        assert set(contents_in(root, "demo").values()) == {1}


@pytest.mark.slow
def test_a_read_that_is_interrupted_anywhere_leaves_the_client_sound(root: Path) -> None:
    with connect_sync(root) as client:
        session = client.open("demo", follow=False)
        session.append_message([message("x" * 200)] * 50)
        interrupt_everywhere(lambda _: list(session.lines()), lambda _: session.stat())
        assert len(list(session.lines())) == 50


@pytest.mark.slow
def test_an_interrupted_event_comes_with_the_next_call(root: Path) -> None:
    with connect_sync(root) as client, connect_sync(root) as other:
        session = other.open("demo", follow=False)
        seen: list[str] = []
        with client.open("demo", follow=False).subscribe() as events:

            def take(_: int) -> None:
                while (event := events.next_event(timeout=0)) is not None:
                    if isinstance(event, RecordsEvent):
                        seen.extend(str(each.record["content"]) for each in event.records())

            def write_and_take_all(place: int) -> None:
                session.append_message(message(str(place)))
                while not seen or seen[-1] != str(place):
                    event = events.next_event()
                    if isinstance(event, RecordsEvent):
                        seen.extend(str(each.record["content"]) for each in event.records())

            assert interrupt_everywhere(take, write_and_take_all) > 20
        assert seen == [str(record.record["content"]) for record in session.records()]


@pytest.mark.slow
def test_an_interrupted_connect_blocks_no_other_client(
    root: Path,
) -> None:
    with connect_sync(root) as first:

        def connect(_: int) -> None:
            connect_sync(root, spawn=False).close()

        assert interrupt_everywhere(connect, lambda _: first.status()) > 100
        connect_sync(root, spawn=False, timeout=5).close()


def test_a_client_continues_after_a_keyboard_interrupt_in_a_wait(
    root: Path,
) -> None:
    with connect_sync(root) as client:
        session = client.open("demo")

        def wait() -> None:
            # Begun here, because on a busy machine the signal may come before the wait.
            signal.setitimer(signal.ITIMER_REAL, 0.05)
            session.wait_for("0:9")

        handler = signal.signal(signal.SIGALRM, signal.default_int_handler)
        try:
            with pytest.raises(KeyboardInterrupt):
                wait()
        finally:
            signal.signal(signal.SIGALRM, handler)
        session.append_message(message("a"))
        assert texts(session) == ["a"]


def test_a_signal_handler_cannot_use_the_client_during_its_call(
    root: Path,
) -> None:
    messages: list[Busy] = []
    with connect_sync(root) as client:
        session = client.open("demo")
        other = session.subscribe()
        flush = client._link._exchange.flush

        def handler() -> None:
            for use in (client.status, client.close, session.refresh, session.clear):
                with pytest.raises(Busy, match="client of its own") as raised:
                    use()
                assert raised.value.outcome is Outcome.NOT_APPLIED
                messages.append(raised.value)
            # What only lets go of something never fails.
            other.close()

        def flush_and_be_interrupted(send: Callable[[Sequence[bytes]], bool]) -> None:
            def send_and_be_interrupted(frames: Sequence[bytes]) -> bool:
                has_gone = send(frames)
                client._link._exchange.flush = flush  # type: ignore[method-assign]
                handler()
                return has_gone

            flush(send_and_be_interrupted)

        client._link._exchange.flush = flush_and_be_interrupted  # type: ignore[method-assign]
        session.append_message(message("a"))
        assert len(messages) == 4
        session.append_message(message("b"))
        assert texts(session) == ["a", "b"]


def test_a_signal_handler_may_use_the_client_while_its_thread_only_waits(root: Path) -> None:
    with connect_sync(root) as client:
        session = client.open("demo")

        def write(*_: object) -> None:
            session.append_message(message("from the handler"))

        handler = signal.signal(signal.SIGALRM, write)
        signal.setitimer(signal.ITIMER_REAL, 0.05, 0.05)
        try:
            # The first signal may come while it looks, and is refused then: the next one comes.
            while True:
                try:
                    assert session.wait_for("0:1", timeout=30)
                    break
                except Busy:
                    continue
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, handler)
        assert texts(session)[0] == "from the handler"
