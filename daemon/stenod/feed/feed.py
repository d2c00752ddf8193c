"""The subscribers of a file and their positions: the backlog first, then every commit.

A subscriber is a position and a credit in bytes. While it is near the head it is handed the commits
as they become durable; else a pump reads the file for it. Without credit it simply stays where it
is: nothing is dropped, the file is the buffer, and no subscriber costs more than its credit.

A few subscribers are handed each commit at once. Many get theirs in rounds, so many at a turn of
the event loop, with a pause after each round: what is committed meanwhile travels together. So the
writer is hardly slower for them, however many there are.
"""

from collections.abc import Callable
from typing import Protocol

import anyio
import anyio.lowlevel
import msgspec

from steno_protocol import limits, timeline_entries
from steno_protocol.blocks import Block, read_block
from steno_protocol.errors import BadRequest
from steno_protocol.events import DmailEvent, Event, Gone, Lagged, Live, Records, Reset
from steno_protocol.positions import Position
from stenod.core.machine import Machine
from stenod.core.speculation import Speculation
from stenod.feed.recent_commits import RecentCommits, Stretch
from stenod.feed.rewrite_history import Resets, Rewritten, read_resets
from stenod.runtime.executor import Blocking, Spawn
from stenod.store.log import View


class FollowedLog(Protocol):
    """What a feed reads: the log of its session."""

    def view(self, generation: int) -> View:
        """The durable bytes of a generation as a view, which the reader releases."""
        ...

    def timeline(self) -> bytes:
        """The session's timeline."""
        ...


def _always() -> bool:
    return True


def _nobody(_: "Subscriber") -> None:
    """Do nothing: the default for a subscription without a registry."""


class Subscriber(msgspec.Struct, eq=False):
    """One subscription.

    Attributes:
        send: sends an event and says whether it went out; False when the peer's queue is full.
        takes: whether the peer takes a block; when it does again, `Feed.resume` has to be called.
        reading: held while a block is read for it: a few at a time for all of a peer's.
        position: the next record that it gets.
        credit: bytes that may still be sent.
        offset: byte offset of the position, once it is known.
        lost: its position is of a file that is there no more; a reset comes before anything else.
        mail_seen: how many of the feed's D-Mail events it does not need any more.
        end_event: how it ended, while its peer had no room to be last.
        forget: called with it once its end was sent to the peer.
    """

    send: Callable[[Event, bytes | None], bool]
    position: Position
    credit: int
    offset: int | None = None
    takes: Callable[[], bool] = _always
    reading: anyio.Semaphore = msgspec.field(
        default_factory=lambda: anyio.Semaphore(1, fast_acquire=True)
    )
    lost: bool = False
    sent_live: bool = False
    mail_seen: int = 0
    pumping: bool = False
    gone: bool = False
    stalled_since: float | None = None
    end_event: Event | None = None
    forget: Callable[["Subscriber"], None] = _nobody

    def send_end(self) -> None:
        """Send the end of the subscription, if it ended and the peer has room."""
        if self.end_event is not None and self.send(self.end_event, None):
            self.end_event = None
            self.forget(self)


class Feed:
    """The subscribers of one session.

    Args:
        spawn: starts a pump.
        run: runs the pumps' reads.
        clock: monotonic seconds.
    """

    def __init__(self, spawn: Spawn, run: Blocking, clock: Callable[[], float]) -> None:
        self.head = Position(0, 0)
        self.incarnation = ""
        self.checkpoint_floor = 0
        self._mail: DmailEvent | None = None
        self._mails = 0
        self._spawn = spawn
        self._run = run
        self._clock = clock
        self._log: FollowedLog | None = None
        self._subscribers: list[Subscriber] = []
        self._resets = Resets()
        self._recent = RecentCommits()
        self._is_round = False
        self._round_at = clock() - limits.FANOUT_PAUSE_S_MAX

    def __len__(self) -> int:
        return len(self._subscribers)

    def attach(
        self, log: FollowedLog, head: Position, incarnation: str, *, is_same: bool = True
    ) -> None:
        """The session was opened, or opened again.

        Args:
            log: what is read.
            head: what is durable now.
            incarnation: the session's.
            is_same: what was durable before is still there, or is a generation of its own.
        """
        is_another = self.incarnation not in {"", incarnation}
        self._log = log
        self.incarnation = incarnation
        self.head = head
        self._recent.clear()
        self._resets.clear()
        for subscriber in tuple(self._subscribers):
            # Another program may have changed the files, so no offset holds, and a position only
            # if it is still there.
            subscriber.offset = None
            subscriber.lost |= is_another or subscriber.position > head
            has_some = subscriber.position > Position(head.generation, 0)
            subscriber.lost |= has_some and not is_same
            self._advance(subscriber)

    def begin_with(self, machine: Speculation) -> None:
        """Take in the state that is not in a context's lines; right after `attach`, also for a wire
        file."""
        if not isinstance(machine, Machine):
            return
        self.checkpoint_floor = machine.checkpoint_floor
        last, mail = self._mail, machine.mail
        if mail is not None:
            if last is None or last.id != mail.id:
                self.mailed(DmailEvent(state="sent", id=mail.id, checkpoint_id=mail.checkpoint_id))
        elif last is not None and last.state == "sent":
            # It ended while the files were closed: by a rewrite of unknown outcome, or by another
            # program.
            is_delivered = last.id == machine.delivered
            self.mailed(
                msgspec.structs.replace(last, state="delivered" if is_delivered else "expired")
            )

    def mailed(self, event: DmailEvent) -> None:
        """Publish a change of a D-Mail's state."""
        self._mail = event
        self._mails += 1
        for subscriber in tuple(self._subscribers):
            self._advance(subscriber)

    def detach(self) -> None:
        """Stop reads: the session's files were closed."""
        self._log = None
        self._recent.clear()

    def check(self, position: Position) -> None:
        """Refuse a position beyond the head.

        Raises:
            BadRequest: it lies beyond the head.
        """
        if position > self.head:
            raise BadRequest(
                f"the session ends at {self.head}, before {position}: subscribe after a position"
                " that exists, or after start or now"
            )

    def add(self, subscriber: Subscriber) -> None:
        """Begin to send; the first event goes out after this returns."""
        is_waiting = self._mail is not None and self._mail.state == "sent"
        subscriber.mail_seen = self._mails - is_waiting
        self._subscribers.append(subscriber)
        self._advance(subscriber)

    def remove(self, subscriber: Subscriber) -> None:
        """Send no more."""
        subscriber.gone = True
        if subscriber in self._subscribers:
            self._subscribers.remove(subscriber)

    def grant(self, subscriber: Subscriber, size: int) -> None:
        """The subscriber can take `size` bytes more."""
        subscriber.credit = min(subscriber.credit + size, limits.SUBSCRIPTION_WINDOW_BYTES_MAX)
        subscriber.stalled_since = None
        self._advance(subscriber)

    def resume(self, subscriber: Subscriber) -> None:
        """The peer of a subscriber takes blocks again: it took something."""
        if subscriber.credit > 0:
            subscriber.stalled_since = None
        self._advance(subscriber)

    def publish(self, head: Position, block: bytes) -> None:
        """A commit became durable: `block` are its lines, up to the new head."""
        first, self.head = self.head, head
        if self._subscribers:
            self._recent.add(first, head, block)
            self._hand_out()

    def reset(self, head: Position, kept: int, why: str, checkpoint_floor: int = 0) -> None:
        """A rewrite took place: the first `kept` lines live on in the new generation."""
        self.head = head
        self._recent.clear()
        self.checkpoint_floor = checkpoint_floor
        self._resets.add(head.generation, Rewritten(kept, why, checkpoint_floor))
        for subscriber in tuple(self._subscribers):
            self._advance(subscriber)

    def end(self, why: str) -> None:
        """End all subscriptions with an event."""
        for subscriber in tuple(self._subscribers):
            self._dismiss(subscriber, Gone(why=why))

    def end_stalled(self) -> int:
        """Forget the subscribers that have not taken anything for too long; says how many."""
        now, ended = self._clock(), 0
        for subscriber in tuple(self._subscribers):
            since = subscriber.stalled_since
            if since is not None and now - since > limits.SUBSCRIBER_STALL_S:
                self._dismiss(subscriber, _lagged(subscriber.position))
                ended += 1
        return ended

    def _dismiss(self, subscriber: Subscriber, event: Event) -> None:
        """Send no more but how it ended: later, if the peer's queue is full now."""
        subscriber.end_event = event
        subscriber.send_end()
        self.remove(subscriber)

    def _advance(self, subscriber: Subscriber) -> None:
        """Bring a subscriber forward, by a pump if anything has to be read."""
        if subscriber.pumping or subscriber.gone or self._log is None:
            return
        if not self._is_behind(subscriber):
            if self._send_live(subscriber) and self._send_mail(subscriber):
                subscriber.stalled_since = None
            else:
                # Nothing else may ever happen here that would have it tried again.
                self._stall(subscriber)
        elif subscriber.credit <= 0:
            self._stall(subscriber)
        elif self._is_handed(subscriber) and self._is_round:
            # Its turn comes, and until then reading the file for it would be work for nothing.
            return
        else:
            subscriber.pumping = True
            self._spawn(lambda: self._pump(subscriber))

    def _hand_out(self) -> None:
        """Send the last commits to the subscribers close to the head: to a few now, to many in
        rounds."""
        if self._is_round:
            return
        if len(self._subscribers) <= limits.FANOUT_MAX:
            for subscriber in tuple(self._subscribers):
                self._hand(subscriber)
            self._recent.clear()
        else:
            self._is_round = True
            self._spawn(self._rounds)

    async def _rounds(self) -> None:
        try:
            while any(map(self._is_handed, self._subscribers)):
                await self._pause()
                self._round_at = self._clock()
                for number, subscriber in enumerate(tuple(self._subscribers)):
                    if number and number % limits.FANOUT_MAX == 0:
                        await anyio.lowlevel.checkpoint()
                    self._hand(subscriber)
        finally:
            self._is_round = False
            self._recent.clear()
        # A subscriber that missed more than memory keeps reads the file.
        for subscriber in tuple(self._subscribers):
            if subscriber.stalled_since is None:
                self._advance(subscriber)

    async def _pause(self) -> None:
        """Wait until so many events as the round before had may follow it."""
        pause_s = min(len(self._subscribers) * limits.FANOUT_EVENT_S, limits.FANOUT_PAUSE_S_MAX)
        left_s = self._round_at + pause_s - self._clock()
        if left_s > 0:
            await anyio.sleep(left_s)

    def _is_handed(self, subscriber: Subscriber) -> bool:
        """True for a subscriber that a round serves; a stalled one is left out."""
        return subscriber.stalled_since is None and self._stretch_for(subscriber) is not None

    def _hand(self, subscriber: Subscriber) -> None:
        stretch = self._stretch_for(subscriber)
        if stretch is None:
            self._advance(subscriber)
        else:
            self._send_block(subscriber, stretch.event, stretch.block, stretch.after)

    def _stretch_for(self, subscriber: Subscriber) -> Stretch | None:
        """The commits that a subscriber misses, if memory holds them all and they can be sent
        now."""
        is_live = subscriber.sent_live and not (subscriber.lost or subscriber.gone)
        # `_advance` sends a D-Mail event that found no room, once the subscriber is at the head.
        has_mail = subscriber.mail_seen < self._mails
        if not is_live or has_mail or subscriber.pumping or subscriber.credit <= 0:
            return None
        return self._recent.since(subscriber.position)

    def _is_behind(self, subscriber: Subscriber) -> bool:
        return subscriber.lost or subscriber.position != self.head

    async def _pump(self, subscriber: Subscriber) -> None:
        try:
            while not subscriber.gone and self._log and self._is_behind(subscriber):
                async with subscriber.reading:
                    if not await self._take_turn(subscriber):
                        self._stall(subscriber)
                        return
        finally:
            subscriber.pumping = False
        self._advance(subscriber)

    async def _take_turn(self, subscriber: Subscriber) -> bool:
        """Send the next event if there still is one; False if the subscriber has to wait."""
        log = self._log
        if subscriber.gone or log is None:
            return True
        if subscriber.credit <= 0 or not subscriber.takes():
            return False
        return await self._step(subscriber, log)

    async def _step(self, subscriber: Subscriber, log: FollowedLog) -> bool:
        """Send the next event; False if it did not go."""
        try:
            if subscriber.lost:
                return self._start_over(subscriber, timeline_entries.FOREIGN)
            block = await self._read(subscriber, log)
            if self._log is not log:
                # The files were opened again meanwhile: what was read may not be there any more.
                return True
            return await self._send_next(subscriber, log, block)
        except BadRequest:
            # Another program cut the file: find the line by counting.
            subscriber.offset = None
            return True
        except OSError as error:
            is_past = subscriber.position.generation < self.head.generation
            if isinstance(error, FileNotFoundError) and is_past:
                # Its generation was given up; the present one does not need it.
                return self._start_over(subscriber, timeline_entries.COLLECTED)
            if self._log is log:
                self._dismiss(subscriber, Gone(why=f"its files cannot be read: {error}"))
            return True

    def _start_over(self, subscriber: Subscriber, why: str) -> bool:
        generation = self.head.generation
        event = Reset(
            generation=generation,
            kept=0,
            why=why,
            incarnation=self.incarnation,
            head=str(self.head),
            checkpoint_floor=self.checkpoint_floor,
        )
        if not subscriber.send(event, None):
            return False
        subscriber.position, subscriber.offset = Position(generation, 0), None
        subscriber.lost = False
        return True

    async def _read(self, subscriber: Subscriber, log: FollowedLog) -> Block:
        generation, line = subscriber.position
        offset, size = subscriber.offset, min(subscriber.credit, limits.BLOCK_BYTES)
        # Durable lines are not published before their commit.
        until = self.head.line if generation == self.head.generation else None
        view = log.view(generation)
        try:
            return await self._run(lambda: read_block(view, line, offset, size, until))
        finally:
            view.release()

    async def _send_next(self, subscriber: Subscriber, log: FollowedLog, block: Block) -> bool:
        """Send what was read, or the reset at the end of a generation."""
        generation, line = subscriber.position
        after = Position(generation, block.next)
        if block.next <= line:
            return await self._next_generation(subscriber, log)
        if not block.data:
            subscriber.position, subscriber.offset = after, block.offset
            return True
        event = Records(first=str(Position(generation, block.first)), next=str(after))
        subscriber.offset = block.offset - len(block.data)
        return self._send_block(subscriber, event, block.data, after)

    async def _next_generation(self, subscriber: Subscriber, log: FollowedLog) -> bool:
        generation = subscriber.position.generation + 1
        if generation > self.head.generation:
            # The file is shorter than its head: only a foreign program can have cut it.
            return False
        rewritten = await self._reset_of(generation, log)
        if self._log is not log:
            return True
        event = Reset(
            generation=generation,
            kept=rewritten.kept,
            why=rewritten.why,
            incarnation=self.incarnation,
            head=str(self.head),
            checkpoint_floor=rewritten.floor,
        )
        if not subscriber.send(event, None):
            return False
        subscriber.position, subscriber.offset = Position(generation, rewritten.kept), None
        return True

    async def _reset_of(self, generation: int, log: FollowedLog) -> Rewritten:
        known = self._resets.get(generation)
        if known is not None:
            return known
        found = await self._run(lambda: read_resets(log.timeline(), generation))
        if self._log is log:
            self._resets.add_all(found)
        return found[generation]

    def _send_block(
        self, subscriber: Subscriber, event: Records, block: bytes, after: Position
    ) -> bool:
        if not subscriber.takes() or not subscriber.send(event, block):
            self._stall(subscriber)
            return False
        subscriber.stalled_since = None
        subscriber.credit -= len(block) + limits.EVENT_COST_BYTES
        subscriber.position = after
        if subscriber.offset is not None:
            subscriber.offset += len(block)
        return True

    def _send_live(self, subscriber: Subscriber) -> bool:
        if not subscriber.sent_live:
            subscriber.sent_live = subscriber.send(Live(head=str(self.head)), None)
        return subscriber.sent_live

    def _send_mail(self, subscriber: Subscriber) -> bool:
        event, count = self._mail, self._mails
        if event is not None and subscriber.mail_seen < count:
            if not subscriber.send(event, None):
                return False
            subscriber.mail_seen = count
        return True

    def _stall(self, subscriber: Subscriber) -> None:
        if subscriber.stalled_since is None:
            subscriber.stalled_since = self._clock()


def _lagged(position: Position) -> Lagged:
    return Lagged(next=str(position), why=f"nothing was taken for {limits.SUBSCRIBER_STALL_S:g} s")
