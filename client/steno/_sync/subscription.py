"""A session's events for a `for` loop."""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from math import inf
from typing import TYPE_CHECKING, Self

from steno._sansio.argument_checks import given_seconds
from steno._sansio.event_merge import Following
from steno._sansio.follower import Follower
from steno._sansio.mirror import Mirror
from steno._sansio.view import NotPicklable
from steno._sync.connection_lock import ConnectionLock
from steno.values import File, SubscriptionEvent
from steno_protocol.errors import Busy

if TYPE_CHECKING:
    from steno._sync.link import BlockingLink


class BlockingSubscription(Iterator[SubscriptionEvent], NotPicklable):
    """A session's events in order, across rewrites, reconnects and restarts of the daemon.

    RecordsEvent, Live once at the end of the backlog, Reset for each rewrite. No record is missed
    and none is delivered twice. A slow reader costs neither the daemon nor this process more than
    one window of bytes. A `for` loop waits for ever for the next event; `next_event` has a timeout.
    Threads can share one subscription: each event goes to one of them.

    A subscription from `now` has begun when it is made: every later acknowledged change is
    delivered.

    Example:
        >>> with session.subscribe("now") as events:
        ...     ack = session.append_message({"role": "assistant", "content": "Hello"})
        ...     for event in events:
        ...         if isinstance(event, steno.RecordsEvent):
        ...             print(event.records()[0].record["content"])
        ...             break
        Hello
    """

    def __init__(
        self,
        link: "BlockingLink",
        session: str,
        starts: Sequence[tuple[File, str]],
        incarnation: str | None = None,
        mirror_of: Callable[[], Mirror | None] | None = None,
        pace: float = 0.0,
    ) -> None:
        self._is_closed = True
        self._link = link
        # Nothing is woken: each call looks for events itself.
        self._following = Following(session, starts, lambda: None, incarnation, mirror_of, pace)
        # Apart from the turns of the connection, because taking an event waits for no answer.
        self._turns = ConnectionLock()
        self._is_closed = False
        for follower in self._following.followers:
            link.follow(follower)
        if not self._following.has_begun:
            self._begin()

    @property
    def incarnation(self) -> str | None:
        """The incarnation of the session that the events so far belong to.

        Save it beside the position after an event, and give both to `subscribe`. None before the
        daemon's first answer. With both files it changes once both have reported it.

        Example:
            >>> with session.subscribe("0:1") as events:
            ...     event = next(events)
            ...     events.incarnation == session.incarnation
            True
        """
        return self._following.incarnation

    def __next__(self) -> SubscriptionEvent:
        event = self.next_event()
        if event is None:
            raise StopIteration
        return event

    def next_event(self, timeout: float | None = None) -> SubscriptionEvent | None:
        """Return the next event; None when there was none in time, or at the end.

        Args:
            timeout: seconds to wait; None is no limit.

        Returns:
            The event, or None.

        Raises:
            NotFound: the session cannot be followed any longer.

        Example:
            >>> with session.subscribe("now") as events:
            ...     [event := events.next_event(timeout=10), events.next_event(timeout=0.01)]
            [Live(head=Position(generation=0, line=2), file='context'), None]
        """
        given_seconds(timeout, "timeout")
        deadline = inf if timeout is None else time.monotonic() + timeout
        while not self._is_closed and self._link.wait_until(self._has_news, timeout):
            taken = None
            self._turns.take_before(inf)
            try:
                try:
                    taken = self._take()
                finally:
                    self._turns.give_back()
                if taken is not None:
                    self._link.consumed(taken[1])
                    return taken[0]
            except BaseException:
                if taken is not None:
                    # An interrupt: the event does not reach the caller, so the next call gets it.
                    taken[1].put_back(taken[0])
                raise
            # Another thread took the event.
            timeout = None if timeout is None else deadline - time.monotonic()
        return None

    def close(self) -> None:
        """End the subscription.

        Example:
            >>> events = session.subscribe("start")
            >>> events.close()
            >>> events.next_event() is None
            True
        """
        self._is_closed = True
        # A signal handler in the middle of `_take` must not clear it.
        with suppress(Busy):
            self._turns.take_before(inf)
            try:
                self._following.clear()
            finally:
                self._turns.give_back()
        for follower in self._following.followers:
            self._link.unfollow(follower)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __del__(self) -> None:
        if not self._is_closed:
            for follower in self._following.followers:
                self._link.abandon(follower)

    def _take(self) -> tuple[SubscriptionEvent, Follower] | None:
        """The next event and its follower; None when there is none."""
        if self._is_closed:
            return None
        if self._following.has_events:
            return self._following.pop()
        if self._following.error is not None:
            raise self._following.error
        return None

    def _begin(self) -> None:
        """Wait until the daemon has answered with the position of `now`."""
        try:
            self._link.wait_until(self._is_answered)
            if self._following.error is not None:
                raise self._following.error
        except BaseException:
            self.close()
            raise

    def _is_answered(self) -> bool:
        return self._following.has_begun or self._following.error is not None

    def _has_news(self) -> bool:
        return self._following.has_events or self._following.error is not None or self._is_closed
