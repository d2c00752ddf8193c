"""The followers behind one subscription, one a file, and the order in which they are taken from."""

from collections.abc import Callable, Sequence

from steno._follower import Follower
from steno.values import File, SubscriptionEvent
from steno_protocol.errors import StenoError


class Following:
    """What a subscription to one or both of a session's files has received.

    Each file's events keep their order. Between the files it is taken in turn, so that a long
    backlog of one does not hide what happens in the other.

    Args:
        session: the session that is followed.
        starts: where to begin in each file.
        wake: called after each event.
    """

    def __init__(
        self, session: str, starts: Sequence[tuple[File, str]], wake: Callable[[], None]
    ) -> None:
        self.followers = [Follower(session, after, wake, file=file) for file, after in starts]

    @property
    def has_events(self) -> bool:
        """True when there is something to pop."""
        return any(follower.inbox for follower in self.followers)

    @property
    def error(self) -> StenoError | None:
        """Why the subscription is over, if it is; what was received before is still there."""
        errors = [follower.error for follower in self.followers if follower.error is not None]
        return errors[0] if errors else None

    def pop(self) -> tuple[SubscriptionEvent, Follower]:
        """The next event, and the follower to which it came."""
        follower = next(each for each in self.followers if each.inbox)
        # Its turn comes again after the others'.
        self.followers.remove(follower)
        self.followers.append(follower)
        return follower.pop(), follower

    def clear(self) -> None:
        """Forget what was received."""
        for follower in self.followers:
            follower.inbox.clear()
