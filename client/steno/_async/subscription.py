"""A session's events for an `async for` loop."""

from collections.abc import AsyncIterator, Callable, Sequence
from typing import TYPE_CHECKING, Self
from weakref import WeakMethod

import anyio
import anyio.lowlevel

from steno._sansio.event_merge import Following
from steno._sansio.mirror import Mirror
from steno._sansio.view import NotPicklable
from steno.values import File, SubscriptionEvent
from steno_protocol.errors import Busy

if TYPE_CHECKING:
    from steno._async.link import Link


class Subscription(AsyncIterator[SubscriptionEvent], NotPicklable):
    """A session's events in order, across rewrites, reconnects and restarts of the daemon.

    RecordsEvent, Live once at the end of the backlog, Reset for each rewrite. No record is missed
    and none is delivered twice. A slow reader costs neither the daemon nor this process more than
    one window of bytes. Used with `async for`; `async with` or `aclose` end it at once. It belongs
    to one task: of two that wait for its next event the second gets Busy.

    A subscription from `now` has begun once `async with` was entered: every later acknowledged
    change is delivered. With `async for` alone it begins with the daemon's answer, some time after
    the call.

    Example:
        >>> async with session.subscribe("now") as events:
        ...     ack = await session.append_message({"role": "assistant", "content": "Hello"})
        ...     async for event in events:
        ...         if isinstance(event, steno.RecordsEvent):
        ...             print(event.records()[0].record["content"])
        ...             break
        Hello
    """

    def __init__(
        self,
        link: "Link",
        session: str,
        starts: Sequence[tuple[File, str]],
        incarnation: str | None = None,
        mirror_of: Callable[[], Mirror | None] | None = None,
        pace: float = 0.0,
    ) -> None:
        self._link = link
        self._event: anyio.Event | None = None
        self._is_closed = False
        # Weak, so that a loop that ended by `break` ends its subscription.
        wake = WeakMethod(self._wake)
        self._following = Following(
            session, starts, lambda: _call(wake), incarnation, mirror_of, pace
        )
        for follower in self._following.followers:
            link.follow(follower)

    @property
    def incarnation(self) -> str | None:
        """The incarnation of the session that the events so far belong to.

        Save it beside the position after an event, and give both to `subscribe`. None before the
        daemon's first answer. With both files it changes once both have reported it.

        Example:
            >>> async with session.subscribe("0:1") as events:
            ...     event = await anext(events)
            ...     events.incarnation == session.incarnation
            True
        """
        return self._following.incarnation

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> SubscriptionEvent:
        """Return the next event.

        Raises:
            NotFound: the session cannot be followed any longer.
            Busy: another task waits for it.
            BadRequest: this is not the client's event loop.
        """
        await anyio.lowlevel.checkpoint()
        self._link.check_loop()
        while not self._following.has_events:
            if self._is_closed:
                raise StopAsyncIteration
            await self._next_news()
        event, follower = self._following.pop()
        self._link.consumed(follower)
        return event

    async def aclose(self) -> None:
        """End the subscription.

        Example:
            >>> events = session.subscribe("start")
            >>> await events.aclose()
        """
        self._close()
        await anyio.lowlevel.checkpoint()

    async def __aenter__(self) -> Self:
        """Wait until the start of each file is known.

        Raises:
            NotFound, Unreachable: the daemon did not answer with the position of `now`; the
                subscription is over.
            Busy: another task waits for it.
        """
        await anyio.lowlevel.checkpoint()
        try:
            while not (self._following.has_begun or self._is_closed):
                await self._next_news()
        except Busy:
            # The other task keeps the subscription.
            raise
        except BaseException:
            self._close()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    def __del__(self) -> None:
        if not self._is_closed:
            for follower in self._following.followers:
                self._link.abandon(follower)

    async def _next_news(self) -> None:
        """Wait for an event; raise the error that ended the subscription."""
        if self._following.error is not None:
            raise self._following.error
        if self._event is not None:
            raise Busy(
                "another task waits for the next event of this subscription: give each task a"
                " subscription of its own"
            )
        self._event = anyio.Event()
        try:
            await self._event.wait()
        finally:
            self._event = None

    def _close(self) -> None:
        self._is_closed = True
        self._following.clear()
        for follower in self._following.followers:
            self._link.unfollow(follower)
        self._wake()

    def _wake(self) -> None:
        if self._event is not None:
            self._event.set()


def _call(reference: WeakMethod[Callable[[], None]]) -> None:
    function = reference()
    if function is not None:
        function()
