"""The followers behind one subscription, one a file, and the order in which they are taken from."""

from collections.abc import Callable, Sequence
from itertools import islice

from steno._sansio.follower import Follower
from steno._sansio.mirror import Mirror
from steno.values import File, Reset, SubscriptionEvent
from steno_protocol.errors import StenoError


class Following:
    """What a subscription to one or both of a session's files has received.

    Each file's events keep their order. Between the files it is taken in turn, so that a long
    backlog of one does not hide what happens in the other.

    Args:
        session: the session that is followed.
        starts: where to begin in each file.
        wake: called after each event.
        incarnation: of the session that positions in `starts` speak of, if that is known.
        mirror_of: the mirror of the session in this process, None while it has none. An event of
            the context is not handed out before the mirror has taken it in, too.

    Attributes:
        incarnation: of the session that the events popped so far are of; None before the daemon's
            first answer. With both files it changes once both have reported another one.
    """

    def __init__(
        self,
        session: str,
        starts: Sequence[tuple[File, str]],
        wake: Callable[[], None],
        incarnation: str | None = None,
        mirror_of: Callable[[], Mirror | None] | None = None,
    ) -> None:
        self._wake = wake
        self._mirror_of = mirror_of
        self.followers = [
            Follower(session, after, self._woken, file=file) for file, after in starts
        ]
        self.incarnation = incarnation
        self._incarnations: dict[File, str] = {}
        if incarnation is not None:
            for follower in self.followers:
                follower.incarnation = self._incarnations[follower.file] = incarnation

    @property
    def has_begun(self) -> bool:
        """True once it is known where each file is followed from.

        A position contains it; `now` is the position in the daemon's first reply.
        """
        return all(each.after != "now" or each.position is not None for each in self.followers)

    @property
    def has_events(self) -> bool:
        """True when there is something to pop."""
        return any(self._is_ready(follower) for follower in self.followers)

    @property
    def error(self) -> StenoError | None:
        """Why the subscription is over, if it is; what was received before is still there."""
        errors = [follower.error for follower in self.followers if follower.error is not None]
        return errors[0] if errors else None

    def pop(self) -> tuple[SubscriptionEvent, Follower]:
        """The next event, and the follower to which it came."""
        follower = next(each for each in self.followers if self._is_ready(each))
        # Its turn comes again after the others'. At once, lest an interrupt leave one out.
        self.followers = [each for each in self.followers if each is not follower] + [follower]
        event = follower.inbox[0]
        if isinstance(event, Reset):
            self._note(event.file, event.incarnation)
        return follower.pop(), follower

    def clear(self) -> None:
        """Forget what was received."""
        for follower in self.followers:
            follower.inbox.clear()

    def mirror_changed(self) -> None:
        """What waited for the mirror may be ready."""
        self._wake()

    def _is_ready(self, follower: Follower) -> bool:
        if not follower.inbox:
            return False
        mirror = self._mirror_of() if self._mirror_of is not None else None
        if mirror is None or follower.file != "context":
            return True
        if self._is_in(mirror, follower):
            return True
        mirror.watch(self)
        # It may have come in between, in another thread.
        return self._is_in(mirror, follower)

    def _is_in(self, mirror: Mirror, follower: Follower) -> bool:
        event = follower.inbox[0]
        known = self._incarnations.get(follower.file, follower.incarnation)
        incarnation = event.incarnation if isinstance(event, Reset) else known
        if mirror.has_taken_in(event, incarnation):
            return True
        # A mirror that was cut off may never hear of a session that was made and deleted meanwhile.
        later = islice(follower.inbox, 1, None)
        makings = (each.incarnation for each in later if isinstance(each, Reset))
        return mirror.incarnation != incarnation and any(
            each == mirror.incarnation for each in makings
        )

    def _woken(self) -> None:
        if len(self._incarnations) < len(self.followers):
            for follower in self.followers:
                # From the first reply, before an unpopped reset changes it.
                if follower.file not in self._incarnations and follower.incarnation is not None:
                    self._note(follower.file, follower.incarnation)
        self._wake()

    def _note(self, file: File, incarnation: str) -> None:
        self._incarnations[file] = incarnation
        if (
            len(self._incarnations) == len(self.followers)
            and len(set(self._incarnations.values())) == 1
        ):
            self.incarnation = incarnation
