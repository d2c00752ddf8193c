"""One subscription to one or both of a session's files."""

from collections.abc import Callable, Sequence
from itertools import islice
from typing import Literal

from steno._sansio.argument_checks import pace_ms_of
from steno._sansio.follower import Follower
from steno._sansio.mirror import Mirror
from steno._sansio.requests import PositionLike, position_text
from steno.values import File, Reset, SubscriptionEvent
from steno_protocol.errors import BadRequest, StenoError

Followed = Literal["context", "wire", "both"]
"""The files of a session that a subscription follows."""


class Following:
    """The followers of one subscription, one for each file, and the order of their events.

    Each file's events keep their order. The files take turns, so that a long backlog of one file
    does not delay the events of the other.

    Args:
        session: the session that is followed.
        starts: where to begin in each file.
        wake: called after each event.
        incarnation: of the session that the positions in `starts` belong to, if it is known.
        mirror_of: returns the mirror of the session in this process, or None. An event of the
            context is not delivered before the mirror contains it.
        pace: shortest time in seconds between two events with new lines of a file.

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
        pace: float = 0.0,
    ) -> None:
        self._wake = wake
        self._mirror_of = mirror_of
        pace_ms = pace_ms_of(pace)
        self.followers = [
            Follower(session, after, self._woken, file=file, pace_ms=pace_ms)
            for file, after in starts
        ]
        self.incarnation = incarnation
        self._incarnations: dict[File, str] = {}
        if incarnation is not None:
            for follower in self.followers:
                follower.incarnation = self._incarnations[follower.file] = incarnation

    @property
    def has_begun(self) -> bool:
        """True once the start of each file is known; for `now` the daemon's first reply has it."""
        return all(each.after != "now" or each.position is not None for each in self.followers)

    @property
    def has_events(self) -> bool:
        """True when there is something to pop."""
        return any(self._is_ready(follower) for follower in self.followers)

    @property
    def error(self) -> StenoError | None:
        """The error that ended the subscription, if any; received events are still there."""
        errors = [follower.error for follower in self.followers if follower.error is not None]
        return errors[0] if errors else None

    def pop(self) -> tuple[SubscriptionEvent, Follower]:
        """The next event, and the follower to which it came."""
        follower = next(each for each in self.followers if self._is_ready(each))
        # Its next turn comes after the others'. In one assignment, because of interrupts.
        self.followers = [each for each in self.followers if each is not follower] + [follower]
        event = follower.inbox[0]
        if isinstance(event, Reset):
            self._note(event.file, event.incarnation)
        return follower.pop(), follower

    def clear(self) -> None:
        """Drop all received events."""
        for follower in self.followers:
            follower.inbox.clear()

    def mirror_changed(self) -> None:
        """Wake the reader: an event that waited for the mirror may be ready."""
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
        # Another thread may have taken it in meanwhile.
        return self._is_in(mirror, follower)

    def _is_in(self, mirror: Mirror, follower: Follower) -> bool:
        event = follower.inbox[0]
        known = self._incarnations.get(follower.file, follower.incarnation)
        incarnation = event.incarnation if isinstance(event, Reset) else known
        if mirror.has_taken_in(event, incarnation):
            return True
        # A disconnected mirror may miss a session that was created and deleted meanwhile.
        later = islice(follower.inbox, 1, None)
        makings = (each.incarnation for each in later if isinstance(each, Reset))
        return mirror.incarnation != incarnation and any(
            each == mirror.incarnation for each in makings
        )

    def _woken(self) -> None:
        if len(self._incarnations) < len(self.followers):
            for follower in self.followers:
                # From the first reply, before a waiting reset changes it.
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


def start_of(after: PositionLike) -> str:
    """Return the `after` of a subscription: `start`, `now`, or the text of a position."""
    return after if after in ("start", "now") and isinstance(after, str) else position_text(after)


def starts_of(
    records: Followed, after: PositionLike, wire_after: PositionLike | None
) -> list[tuple[File, str]]:
    """Return the start of a subscription in each of its files.

    Raises:
        BadRequest: a start is neither `start`, `now` nor a position, or one file has none.
    """
    match records:
        case "context":
            return [("context", start_of(after))]
        case "wire":
            return [("wire", start_of(after if wire_after is None else wire_after))]
        case "both":
            return [("context", start_of(after)), ("wire", _start_beside(after, wire_after))]
        case _:
            raise BadRequest(f"records is {records!r}: it has to be context, wire or both")


def _start_beside(after: PositionLike, wire_after: PositionLike | None) -> str:
    if wire_after is None and after not in ("start", "now"):
        raise BadRequest(
            f"{after} is a position of the context, and the wire file has positions of its own:"
            " give wire_after, too"
        )
    return start_of(after if wire_after is None else wire_after)
