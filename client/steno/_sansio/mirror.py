"""A session's context in this process, kept by the session's own events."""

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
        """It holds more than before, or has ended."""


class Mirror:
    """The history and the numbers of one session, as of `state.head`."""

    def __init__(self, session: str) -> None:
        self.state = ContextState()
        self.follower = Follower(session, "start", self.take_in, until_live=True)
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
        """Which making of the session `state` is of; None before its backlog came."""
        return self._incarnation

    def check(self) -> None:
        """Raise what ended the subscription, if anything did."""
        if self.follower.error is not None:
            raise self.follower.error

    def contains(self, position: Position) -> bool:
        """True when everything before `position` is here, and will be kept up to date."""
        return self.follower.error is None and self.state.head >= position

    def lacks(self, reply: AnyReply) -> bool:
        """True while the event of a change is still to come, whose reply this is."""
        return isinstance(reply, Ack) and not self.contains(Position.parse(reply.head))

    def has_taken_in(self, event: SubscriptionEvent, incarnation: str | None) -> bool:
        """True when `state` contains the records of an event of another subscription, or is beyond
        it.

        Also when it never will: the subscription of this one has ended.

        Args:
            incarnation: which making of the session the event is of.
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

    def tell_watchers(self) -> None:
        """Something has changed, or nothing will any more."""
        for watcher in list(self._watchers):
            watcher.mirror_changed()

    def arrival(self, position: Position | None) -> Callable[[], bool]:
        """A check whether everything before `position` has arrived; None is the first backlog.

        It raises what ended the subscription, and NotFound once the session was deleted and made
        again since: then the position is never reached.
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
        """The waiter of `wake_at` has gone."""
        self._waiters = [waiter for waiter in self._waiters if waiter[1] != wake]

    def take_in(self) -> None:
        """Apply the arrived events, and wake the callers that waited for them.

        An interrupt goes on to the caller only when the history is as before an event, or after it.
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
            self.tell_watchers()

    def _take_all(self) -> None:
        """Apply events; those of a rewrite only when all of them have come.

        Half a rewrite would show a history that never existed, after a compaction an empty one. An
        event is held from before it is popped until it is applied, so that a second call continues
        where an interrupted one ended.
        """
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
        if not self._held or not self._is_whole_with(self._held[-1]):
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
                    # An interrupt came when it was applied already.
                    return
                missing = event.first.line - self.state.head.line
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
    """The position after an event, None for one that has none."""
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
