"""A session's events for a `for` loop."""

from collections.abc import Iterator, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Self

from steno._following import Following
from steno.values import File, SubscriptionEvent

if TYPE_CHECKING:
    from steno._blocking_link import BlockingLink


class BlockingSubscription(Iterator[SubscriptionEvent]):
    """A session's events in order, across rewrites, reconnects and restarts of the daemon.

    As `Subscription`, for a `for` loop, which waits for ever for the next event; `next_event` waits
    as long as it is told.

    One from `now` on has begun when it is made: what is acknowledged later is delivered.
    """

    def __init__(
        self,
        link: "BlockingLink",
        session: str,
        starts: Sequence[tuple[File, str]],
        incarnation: str | None = None,
    ) -> None:
        self._is_closed = True
        self._link = link
        self._following = Following(session, starts, _nothing, incarnation)
        self._is_closed = False
        for follower in self._following.followers:
            link.follow(follower)
        if not self._following.has_begun:
            self._begin()

    @property
    def incarnation(self) -> str | None:
        """Which making of the session the events taken so far are of.

        To be saved beside the position after an event, and given with it to `subscribe`. None
        before the daemon's first answer. With both files it changes once both were told so.
        """
        return self._following.incarnation

    def __next__(self) -> SubscriptionEvent:
        event = self.next_event()
        if event is None:
            raise StopIteration
        return event

    def next_event(self, timeout: float | None = None) -> SubscriptionEvent | None:
        """The next event; None when there was none within `timeout` seconds, or at the end.

        Raises:
            NotFound: the session cannot be followed any longer.
        """
        if self._is_closed or not self._link.wait_until(self._has_news, timeout):
            return None
        if self._is_closed:
            # By another thread, while this one waited.
            return None
        if not self._following.has_events:
            assert self._following.error is not None
            raise self._following.error
        event, follower = self._following.pop()
        try:
            self._link.consumed(follower)
        except BaseException:
            # An interrupt: the event does not reach the caller, the next call has it.
            follower.put_back(event)
            raise
        return event

    def close(self) -> None:
        """End the subscription."""
        self._is_closed = True
        self._following.clear()
        for follower in self._following.followers:
            self._link.unfollow(follower)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def __del__(self) -> None:
        if not self._is_closed:
            for follower in self._following.followers:
                self._link.abandon(follower)

    def _begin(self) -> None:
        """Wait until the daemon has said where `now` is."""
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


def _nothing() -> None:
    """Nobody sleeps on a subscription of the blocking client: it looks for itself."""
