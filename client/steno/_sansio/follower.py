"""One subscription in the client: its position, events and credit."""

from collections import deque
from collections.abc import Callable
from math import inf
from typing import TYPE_CHECKING, assert_never

import msgspec

from steno._sansio.pending import RETRIED
from steno.values import DmailEvent, File, Live, RecordsEvent, Reset, SubscriptionEvent
from steno_protocol import events, limits
from steno_protocol.commands import Subscribe
from steno_protocol.errors import ErrorCode, Held, NotFound, StenoError, Unreachable
from steno_protocol.positions import Position
from steno_protocol.replies import Subscribed

if TYPE_CHECKING:
    from steno._sansio.route import Route


class Follower(msgspec.Struct, eq=False):
    """A session's events in order, without gap or duplicate, across reconnects.

    An event is in the inbox exactly when `position` is behind it, and out of it exactly when the
    caller has it, wherever an interrupt comes. An interrupt, as another thread, comes where a call
    begins or returns, so there is none between the statements that change the two.

    Attributes:
        session: the session that is followed.
        file: which of its files.
        after: where to begin, until the first answer says where that is.
        position: everything before it was received; a resumption continues here.
        incarnation: the incarnation of the session that `position` belongs to.
        checkpoint_floor: ids below it were assigned before the lines after the beginning contain
            any.
        inbox: received and not yet consumed; the window bounds its bytes.
        is_live: the first backlog was received.
        has_caught_up: the backlog of the present attempt was received.
        error: the error that ended the subscription, if any.
        pace_ms: shortest time between two events with new records.
        name: of the present attempt, None while there is none.
        asked_at: when the present attempt was made.
        due: when the next attempt is made unless an answer came, on the clock of the exchange.
        interval_s: how long the next attempt waits for its answer.
        deadline: when it times out, while the beginning is awaited.
        until_live: the beginning is awaited until the backlog is there, not only until the answer.
        waiters: callers that wait for more events.
        stalled: the daemon stopped sending, or was lost, while events were in the inbox; the next
            attempt follows once they are consumed, so that the inbox never exceeds one window.
        route: its way through the daemons of a cluster; None: it never left the home daemon.
    """

    session: str
    after: str
    wake: Callable[[], None]
    file: File = "context"
    window: int = limits.SUBSCRIPTION_WINDOW_BYTES
    pace_ms: int = 0
    until_live: bool = False
    position: Position | None = None
    incarnation: str | None = None
    checkpoint_floor: int = 0
    inbox: deque[SubscriptionEvent] = msgspec.field(default_factory=deque[SubscriptionEvent])
    is_live: bool = False
    has_caught_up: bool = False
    error: StenoError | None = None
    name: str | None = None
    asked_at: float = -inf
    due: float = inf
    interval_s: float = limits.RESEND_S
    backoff_s: float = limits.BUSY_RETRY_S
    deadline: float = inf
    timeout_s: float = limits.REQUEST_TIMEOUT_S
    waiters: int = 0
    stalled: bool = False
    owed_bytes: int = 0
    route: "Route | None" = None

    @property
    def is_awaited(self) -> bool:
        """True while a caller waits for an answer or event of the daemon."""
        return self.deadline != inf or self.waiters > 0

    @property
    def is_current(self) -> bool:
        """True once the backlog of the present attempt was received, or nothing more will be."""
        return self.has_caught_up or self.error is not None

    @property
    def resume_after(self) -> str:
        """The `after` of the next attempt."""
        return self.after if self.position is None else str(self.position)

    def is_asked_again_after(self, code: ErrorCode) -> bool:
        """Whether another attempt may succeed after a refusal of this kind."""
        # A mirror that ended because of a short disk failure could not be renewed.
        is_mirror = self.until_live and self.is_live
        return code in RETRIED or (is_mirror and code is ErrorCode.STORAGE_FAILED)

    def timed_out(self, trouble: str | None) -> StenoError:
        """The error at the deadline; `trouble` is why there is no connection."""
        if self.route is not None and self.route.named is not None:
            return Held(self.route.unanswered(), session=self.session, endpoint=self.route.named)
        because = f" ({trouble})" if trouble else ""
        return Unreachable(
            f"the subscription was not answered in time{because}: see `steno status`",
            session=self.session,
        )

    def asked_as(self, name: str, pace_ms_max: int = 0) -> Subscribe:
        """The command that subscribes from the present position, under this name.

        Args:
            name: the name.
            pace_ms_max: the longest pace that the daemon accepts.
        """
        return Subscribe(
            session=self.session,
            subscription=name,
            file=self.file,
            after=self.resume_after,
            window=self.window,
            incarnation=self.incarnation,
            pace_ms=min(self.pace_ms, pace_ms_max),
        )

    def begin(self, reply: Subscribed) -> None:
        """Note the daemon's first answer, which contains the beginning."""
        self.due = inf
        self.interval_s = limits.RESEND_S
        self.owed_bytes = 0
        if not self.until_live:
            self.deadline = inf
        if self.position is None:
            self.incarnation = reply.incarnation
            self.checkpoint_floor = reply.checkpoint_floor
            self.position = _start(self.after, Position.parse(reply.head))

    def take(self, event: events.AnyEvent, block: bytes) -> bool:
        """Take one event in; return False when it does not follow the last one."""
        if self.position is None and not isinstance(event, events.Lagged | events.Gone):
            # The answer with the beginning was lost on the way.
            return False
        match event:
            case events.Records():
                return self._take_records(event, block)
            case events.Live():
                self._take_live(event)
            case events.Reset():
                self._take_reset(event)
            case events.DmailEvent():
                found = DmailEvent(event.state, event.id, event.checkpoint_id, self.file)
                self.inbox.append(found)
            case events.Lagged():
                self.stalled = True
                self.name = None
            case events.Gone():
                self.error = _gone(self.session, event)
            case _:
                assert_never(event)
        return True

    def pop(self) -> SubscriptionEvent:
        """Remove and return the oldest event; its bytes are then owed to the daemon."""
        event = self.inbox[0]
        # No `popleft`: an interrupt as it returns would take the event along.
        del self.inbox[0]
        try:
            self.owed_bytes += _cost_bytes(event)
        except BaseException:
            self.inbox.appendleft(event)
            raise
        return event

    def put_back(self, event: SubscriptionEvent) -> None:
        """Undo a `pop` if its event did not reach the caller."""
        self.inbox.appendleft(event)
        self.owed_bytes -= _cost_bytes(event)

    def _take_records(self, event: events.Records, block: bytes) -> bool:
        first = Position.parse(event.first)
        # A jump forward is a line too long for any reader, which the daemon skipped.
        if self.position is None or first < self.position or first[0] != self.position[0]:
            return False
        taken = RecordsEvent(first, Position.parse(event.next), block, self.file)
        self.position = taken.next
        self.inbox += (taken,)
        return True

    def _take_live(self, event: events.Live) -> None:
        self.backoff_s = limits.BUSY_RETRY_S
        self.deadline = inf
        self.has_caught_up = True
        if not self.is_live:
            taken = Live(Position.parse(event.head), self.file)
            self.is_live = True
            self.inbox += (taken,)

    def _take_reset(self, event: events.Reset) -> None:
        kept = event.kept
        if self.position is not None:
            kept = min(kept, self.position.line)
        position = Position(event.generation, kept)
        taken = Reset(
            event.generation,
            kept,
            event.why,
            event.incarnation,
            Position.parse(event.head),
            self.file,
            event.checkpoint_floor,
        )
        self.position = position
        self.incarnation = event.incarnation
        self.inbox += (taken,)


def _cost_bytes(event: SubscriptionEvent) -> int:
    """The bytes of the window that an event uses."""
    return len(event.block) + limits.EVENT_COST_BYTES if isinstance(event, RecordsEvent) else 0


def _gone(session: str, event: events.Gone) -> NotFound:
    remedy = "open it again" if event.new_session is None else "open it again under its new id"
    return NotFound(
        f"the session cannot be followed any longer ({event.why}): {remedy}",
        session=session,
        new_session=event.new_session,
    )


def _start(after: str, head: Position) -> Position:
    match after:
        case "start":
            return Position(head.generation, 0)
        case "now":
            return head
        case _:
            return Position.parse(after)
