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
    """

    def __init__(
        self, link: "BlockingLink", session: str, starts: Sequence[tuple[File, str]]
    ) -> None:
        self._link = link
        self._is_closed = False
        self._following = Following(session, starts, _nothing)
        for follower in self._following.followers:
            link.follow(follower)

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
        self._link.consumed(follower)
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

    def _has_news(self) -> bool:
        return self._following.has_events or self._following.error is not None or self._is_closed


def _nothing() -> None:
    """Nobody sleeps on a subscription of the blocking client: it looks for itself."""
