"""Followed sessions: their last lines, and their ends."""

from collections.abc import AsyncIterator, Iterable
from contextlib import aclosing
from types import SimpleNamespace
from typing import Any

import anyio
import anyio.abc
import pytest

import steno
from steno.values import Live, Record, RecordsEvent, Reset
from steno_protocol.positions import Position
from steno_redact.patterns import Patterns
from steno_redact.redactor import Redactor
from steno_view import watches as watches_module
from steno_view.feed import Feed, PageState
from steno_view.limits import TAIL_BYTES_MAX
from steno_view.pulse import Pulse
from steno_view.watches import Watch, Watches

pytestmark = pytest.mark.anyio


class _Events:
    """A subscription with events that are there already."""

    incarnation = "one"

    def __init__(self, events: Iterable[Any]) -> None:
        self._events = list(events)

    async def __aenter__(self) -> "_Events":
        return self

    async def __aexit__(self, *_: object) -> None:
        return None

    async def __aiter__(self) -> AsyncIterator[Any]:
        for each in self._events:
            yield each
        raise steno.NotFound("it ended")


async def followed(*events: Any) -> Watch:
    """A watch that has seen these events."""
    watch = Watch("talk")
    session = SimpleNamespace(subscribe=lambda *_, **__: _Events(events))
    await watch.follow(session)  # type: ignore[arg-type]
    return watch


def block(first: int, count: int, *, generation: int = 0, size: int = 1) -> RecordsEvent:
    lines = [b'{"n":%d,"x":"%s"}\n' % (first + n, b"x" * size) for n in range(count)]
    at = Position(generation, first)
    return RecordsEvent(at, Position(generation, first + count), b"".join(lines))


def numbers(records: list[Record] | None) -> list[int] | None:
    return None if records is None else [each.record["n"] for each in records]


async def test_ranges_of_the_latest_lines_are_known_and_others_are_not() -> None:
    watch = await followed(block(5, 3), block(8, 1), block(9, 4))
    for start in range(5, 14):
        for end in range(start, 14):
            found = watch.latest(Position(0, start), Position(0, end))
            assert numbers(found) == list(range(start, end))
    assert watch.latest(Position(0, 4), Position(0, 8)) is None
    assert watch.latest(Position(0, 8), Position(0, 14)) is None
    assert watch.latest(Position(1, 0), Position(1, 1)) is None


async def test_lines_before_a_gap_are_forgotten() -> None:
    watch = await followed(block(0, 3), block(5, 2))
    assert watch.latest(Position(0, 1), Position(0, 2)) is None
    assert numbers(watch.latest(Position(0, 5), Position(0, 7))) == [5, 6]


async def test_a_rewrite_forgets_the_lines_that_it_may_have_replaced() -> None:
    reset = Reset(
        file="context", incarnation="one", generation=1, kept=1, head=Position(1, 1), why="revert"
    )
    watch = await followed(block(0, 3), reset, block(1, 2, generation=1))
    assert watch.latest(Position(0, 0), Position(0, 1)) is None
    assert watch.latest(Position(1, 0), Position(1, 2)) is None
    assert numbers(watch.latest(Position(1, 1), Position(1, 3))) == [1, 2]


async def test_the_kept_lines_are_bounded() -> None:
    size = TAIL_BYTES_MAX // 4
    watch = await followed(*(block(number, 1, size=size) for number in range(9)))
    assert sum(len(each.block) for each in watch.tail) <= TAIL_BYTES_MAX
    assert watch.latest(Position(0, 0), Position(0, 1)) is None
    assert numbers(watch.latest(Position(0, 8), Position(0, 9))) == [8]


async def test_a_session_without_new_lines_has_none() -> None:
    watch = Watch("talk")
    assert watch.latest(Position(0, 0), Position(0, 0)) is None


async def test_lines_of_a_deleted_session_are_not_those_of_the_next_one() -> None:
    reset = Reset(
        file="context", incarnation="two", generation=0, kept=0, head=Position(0, 3), why="created"
    )
    watch = await followed(block(0, 3), reset)
    assert watch.latest(Position(0, 0), Position(0, 3)) is None


class _OpenSubscription:
    """A subscription to an empty session, without an end of its own."""

    incarnation = "one"

    def __init__(self) -> None:
        self.ended = anyio.Event()

    async def __aenter__(self) -> "_OpenSubscription":
        return self

    async def __aexit__(self, *_: object) -> None:
        self.ended.set()

    async def __aiter__(self) -> AsyncIterator[Any]:
        for file in ("context", "wire"):
            yield Live(file=file, head=Position(0, 0))
        await anyio.sleep_forever()


class _Daemon:
    """Empty sessions by name, each with its subscription."""

    def __init__(self) -> None:
        self.subscriptions: dict[str, _OpenSubscription] = {}

    def session(self, name: str) -> Any:
        subscription = self.subscriptions[name] = _OpenSubscription()

        async def nothing(*_: object) -> AsyncIterator[Any]:
            for each in ():
                yield each

        return SimpleNamespace(
            subscribe=lambda *_, **__: subscription, lines=nothing, wire_records=nothing
        )

    def watches(self, tasks: anyio.abc.TaskGroup) -> Watches:
        return Watches(self, tasks, Redactor(Patterns([])))  # type: ignore[arg-type]


async def test_the_follow_of_a_cancelled_page_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watches_module, "WATCH_LINGER_S", 0.01)
    daemon = _Daemon()

    async def stay(watches: Watches, *, task_status: anyio.abc.TaskStatus[None]) -> None:
        async with watches.page("talk"):
            task_status.started()
            await anyio.sleep_forever()

    async with anyio.create_task_group() as tasks:
        watches = daemon.watches(tasks)
        async with anyio.create_task_group() as pages:
            await pages.start(stay, watches)
            pages.cancel_scope.cancel()
        with anyio.fail_after(10):
            await daemon.subscriptions["talk"].ended.wait()
        assert watches.known("talk") is None
        tasks.cancel_scope.cancel()


async def test_a_page_that_comes_back_finds_the_same_watch(monkeypatch: pytest.MonkeyPatch) -> None:
    # A machine that pauses makes the page come back too late for a short time.
    for linger_s in (0.01, 0.1, 1.0, 10.0):
        monkeypatch.setattr(watches_module, "WATCH_LINGER_S", linger_s)
        if await _is_same_after(linger_s):
            return
    pytest.fail("no page came back in time")


async def _is_same_after(linger_s: float) -> bool:
    """Whether a page came back in time, and then found the same watch for longer than that."""
    daemon = _Daemon()
    async with anyio.create_task_group() as tasks:
        watches = daemon.watches(tasks)
        async with watches.page("talk") as first:
            left_at = anyio.current_time()
        async with watches.page("talk") as again:
            is_same = again is first
            assert is_same or anyio.current_time() - left_at >= linger_s
            # This one is left later, and its end shows that the time has passed.
            async with watches.page("other"):
                pass
            with anyio.fail_after(linger_s + 10):
                await daemon.subscriptions["other"].ended.wait()
            assert watches.known("talk") is again
        tasks.cancel_scope.cancel()
    return is_same


async def test_a_session_that_is_gone_is_followed_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    daemon = _Daemon()
    gone = SimpleNamespace(subscribe=lambda *_, **__: _Events(()))
    async with anyio.create_task_group() as tasks:
        watches = daemon.watches(tasks)
        with monkeypatch.context() as patch:
            patch.setattr(daemon, "session", lambda _: gone)
            with pytest.raises(steno.NotFound):
                await watches.page("talk").__aenter__()
        assert watches.known("talk") is None
        async with watches.page("talk") as watch:
            assert watch.error is None
        tasks.cancel_scope.cancel()


async def test_a_change_between_the_look_and_the_wait_of_a_stream_is_sent_at_once() -> None:
    watch, pulse = Watch("talk"), Pulse(SimpleNamespace(sessions=None))  # type: ignore[arg-type]
    state, redactor = PageState.of(watch), Redactor(Patterns([]))
    feed = Feed(watch, pulse, state, anyio.Event(), redactor, is_held=True)
    looks = feed._has_news

    async def change() -> None:
        watch.mails += 1
        watch._notify()

    async with anyio.create_task_group() as tasks:

        def looks_before_a_change() -> bool:
            # Ready before the tasks that wait.
            tasks.start_soon(change)
            return looks()

        feed._has_news = looks_before_a_change  # type: ignore[method-assign]
        async with aclosing(feed.events()) as texts:
            found = [await anext(texts) for _ in range(3)]
    assert b"event: mail\n" in found[2]
