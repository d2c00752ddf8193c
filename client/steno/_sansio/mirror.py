"""A session's context in this process, updated by events."""

from collections import deque
from collections.abc import Callable
from typing import Protocol, assert_never
from weakref import WeakSet

from steno._sansio.follower import Follower
from steno.values import DmailEvent, Live, RecordsEvent, Reset, SubscriptionEvent
from steno_protocol.context import ContextState, Message
from steno_protocol.errors import NotFound, StenoError
from steno_protocol.positions import Position
from steno_protocol.replies import Ack, AnyReply

_PASSED_OVER = b"a line too long for any reader\n"


class Watcher(Protocol):
    """A listener for changes of a mirror."""

    def mirror_changed(self) -> None:
        """The mirror has changed or ended."""


class Mirror:
    """The history and the numbers of one session, as of `state.head`."""

    def __init__(self, session: str) -> None:
        self.state: ContextState = ContextState()
        self.follower: Follower = Follower(session, "start", self.take_in, until_live=True)
        self._held: deque[SubscriptionEvent] = deque()
        self._whole_at: Position | None = None
        self._incarnation: str | None = None
        self._waiters: list[tuple[Callable[[], bool], Callable[[], None]]] = []
        self._makings = 0
        self._past = set[str]()
        self._watchers = WeakSet[Watcher]()

    @property
    def history(self) -> list[Message]:
        """The messages; each list belongs to the caller and does not change later."""
        return list(self.state.history)

    @property
    def incarnation(self) -> str | None:
        """The incarnation of the session that `state` belongs to; None before the backlog."""
        return self._incarnation

    def check(self) -> None:
        """Raise the error that ended the subscription, if any."""
        if self.follower.error is not None:
            raise self.follower.error

    def contains(self, position: Position) -> bool:
        """True when the mirror has everything before `position`, and still receives events."""
        return self.follower.error is None and self.state.head >= position

    def lacks(self, reply: AnyReply | None) -> bool:
        """True for the ack of a change whose event has not arrived yet."""
        return isinstance(reply, Ack) and not self.contains(Position.parse(reply.head))

    def has_taken_in(self, event: SubscriptionEvent, incarnation: str | None) -> bool:
        """True when `state` has passed an event of another subscription.

        True also when the mirror never will: its own subscription has ended.

        Args:
            event: the event.
            incarnation: the incarnation of the session that the event belongs to.
        """
        reached = _reached(event)
        if reached is None or incarnation is None or self.follower.error is not None:
            return True
        if incarnation == self._incarnation:
            return self.state.head >= reached
        return incarnation in self._past

    def watch(self, watcher: "Watcher") -> None:
        """Notify a watcher of each change for as long as it lives."""
        self._watchers.add(watcher)

    def notify_watchers(self) -> None:
        """Notify the watchers of a change, or of the end of this mirror."""
        for watcher in list(self._watchers):
            watcher.mirror_changed()

    def arrival(self, position: Position | None) -> Callable[[], bool]:
        """Return a check whether everything before `position` has arrived.

        The check raises the error that ended the subscription, and NotFound once the session was
        deleted and created again: then the position is never reached.

        Args:
            position: the head to reach; None is the end of the first backlog.
        """
        makings = self._makings

        def has_come() -> bool:
            self.check()
            if position is None:
                return self.follower.is_live
            if self.state.head >= position:
                return True
            if self._makings != makings:
                raise NotFound(
                    "the session was deleted and made again: its old positions are gone",
                    session=self.follower.session,
                )
            return False

        return has_come

    def wake_at(self, has_come: Callable[[], bool], wake: Callable[[], None]) -> None:
        """Call `wake` once when `has_come`, made by `arrival`, is true or raises."""
        self._waiters.append((has_come, wake))

    def forget(self, wake: Callable[[], None]) -> None:
        """Forget a waiter of `wake_at`."""
        self._waiters = [waiter for waiter in self._waiters if waiter[1] != wake]

    def take_in(self) -> None:
        """Apply the arrived events, and wake the callers that waited for them.

        An interrupt reaches the caller only when the history is as before or after a whole event.
        """
        try:
            self._take_all()
        except BaseException:
            self.state.roll_back()
            self._take_all()
            raise
        if self._waiters:
            self._wake()
        if self._watchers:
            self.notify_watchers()

    def _take_all(self) -> None:
        """Apply events; the events of a rewrite only after all of them have arrived.

        Half a rewrite would show a history that never existed, after a compaction an empty one. An
        event is held from before it is popped until it is applied, so that a second call continues
        where an interrupted one ended.
        """
        if self._held:
            self._apply_whole()
        while self.follower.inbox:
            event = self.follower.inbox[0]
            if isinstance(event, Reset):
                self._whole_at = event.head
            if not self._held or self._held[-1] is not event:
                self._held.append(event)
            self.follower.pop()
            self._apply_whole()

    def _apply_whole(self) -> None:
        if not self._is_whole_with(self._held[-1]):
            return
        while self._held:
            self._apply(self._held[0])
            self._held.popleft()

    def _is_whole_with(self, event: SubscriptionEvent) -> bool:
        if self._whole_at is None:
            return True
        reached = _reached(event)
        return reached is not None and reached >= self._whole_at

    def _apply(self, event: SubscriptionEvent) -> None:
        match event:
            case RecordsEvent():
                self._begin_at(event.first.generation)
                if self.state.head >= event.next:
                    # An interrupt came after it was applied.
                    return
                missing = event.first.line - self.state.head.line
                if missing:
                    self.state.apply_lines([_PASSED_OVER] * missing)
                self.state.apply_block(event.block)
            case Reset():
                self._follow_reset(event)
            case Live():
                self._begin_at(event.head.generation)
            case DmailEvent():
                # No line of the context changes by it.
                pass
            case _:
                assert_never(event)

    def _begin_at(self, generation: int) -> None:
        if self._incarnation is not None:
            return
        if self.state.is_empty:
            self.state = ContextState(generation, self.follower.checkpoint_floor)
        self._incarnation = self.follower.incarnation

    def _follow_reset(self, event: Reset) -> None:
        if self._incarnation not in (None, event.incarnation):
            self._makings += 1
            self._past.add(self._incarnation)
        self._incarnation = event.incarnation
        self.state.reset(event.generation, event.kept, event.checkpoint_floor)

    def _wake(self) -> None:
        waiting, self._waiters = self._waiters, []
        for has_come, wake in waiting:
            if _is_settled(has_come):
                wake()
            else:
                self._waiters.append((has_come, wake))


def _is_settled(has_come: Callable[[], bool]) -> bool:
    try:
        return has_come()
    except StenoError:
        return True


def _reached(event: SubscriptionEvent) -> Position | None:
    """The position after an event; None if the event has no position."""
    match event:
        case RecordsEvent():
            return event.next
        case Reset():
            return Position(event.generation, event.kept)
        case Live():
            return event.head
        case DmailEvent():
            return None
        case _:
            assert_never(event)
