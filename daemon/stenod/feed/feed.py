"""The subscribers of a session's file: their positions, credit and events.

A subscriber has a position and a credit in bytes. A subscriber close to the head gets each commit
as it becomes durable, from memory; for any other subscriber a pump reads the file. A subscriber
without credit stays at its position: no event is dropped, because the file is the buffer, and no
subscriber takes more memory than its credit.

A few subscribers get each commit at once. Many subscribers get their commits in rounds,
`FANOUT_MAX` subscribers per turn of the event loop and with a pause after each round: commits of
the meantime are sent together. So the number of subscribers hardly slows the writer.

A paced subscriber gets a commit at once, and the commits of the next `pace_s` together. They stay
in memory up to one block per file; with more of them, or before a rewrite, a D-Mail event or the
end, the subscriber gets them early.
"""

from collections.abc import Callable
from math import inf
from typing import Final, Protocol

import anyio
import anyio.lowlevel
import msgspec

from steno_protocol import limits, timeline_entries
from steno_protocol.blocks import Block, read_block
from steno_protocol.errors import BadRequest
from steno_protocol.events import DmailEvent, Event, Gone, Lagged, Live, Records, Reset
from steno_protocol.positions import Position
from stenod.core.machine import FileMachine, Machine
from stenod.core.stream_machine import StreamMachine
from stenod.feed.recent_commits import CommitRun, RecentCommits
from stenod.feed.rewrite_history import RewriteEffect, RewriteHistory, read_rewrites
from stenod.runtime.executor import Blocking, Spawn
from stenod.store.log import View

STREAM_DELETED: Final = "stream_deleted"
"""The reason of a reset to the generation of a stream that follows a deletion."""


class FollowedLog(Protocol):
    """The log interface of a feed."""

    def view(self, generation: int) -> View:
        """Returns a view of a generation's durable bytes, which the caller releases."""
        ...

    def timeline(self) -> bytes:
        """Returns the session's timeline."""
        ...


class _NoFile:
    """The log of a stream or wire file that does not exist yet; nothing in it can be read."""

    def view(self, generation: int) -> View:
        """Raises FileNotFoundError."""
        raise FileNotFoundError(f"there is no generation {generation}")

    def timeline(self) -> bytes:
        """Returns an empty timeline."""
        return b""


class Subscriber(msgspec.Struct, eq=False):
    """One subscription.

    Attributes:
        send: sends an event; returns False if the peer's queue is full.
        position: the position of the next record to send.
        credit: bytes that may still be sent.
        offset: byte offset of the position; None if unknown.
        accepts: returns whether the peer accepts a block; if not, the peer calls `Feed.resume` when
            it does.
        reading: limits the blocks that are read at a time for all subscriptions of the peer.
        pace_s: shortest time between two events with new commits.
        quiet_until: monotonic time until when new commits are put together.
        is_collecting: a task sends the commits that are put together, at `quiet_until`.
        lost: the file of its position was replaced; a reset is the next event.
        sent_live: the event `live` was sent.
        mail_seen: the number of the feed's D-Mail events that need not be sent to it any more.
        pumping: a pump reads the file for it.
        gone: the subscription has ended.
        stalled_since: monotonic time since when no event could be sent; None while it can.
        end_event: the event that ends the subscription, until it was sent.
        forget: called with the subscriber once `end_event` was sent.
    """

    send: Callable[[Event, bytes | None], bool]
    position: Position
    credit: int
    offset: int | None = None
    accepts: Callable[[], bool] = lambda: True
    reading: anyio.Semaphore = msgspec.field(
        default_factory=lambda: anyio.Semaphore(1, fast_acquire=True)
    )
    pace_s: float = 0.0
    quiet_until: float = -inf
    is_collecting: bool = False
    lost: bool = False
    sent_live: bool = False
    mail_seen: int = 0
    pumping: bool = False
    gone: bool = False
    stalled_since: float | None = None
    end_event: Event | None = None
    forget: Callable[["Subscriber"], None] = lambda _: None

    def send_end(self) -> None:
        """Send the subscription's last event, if it ended and the peer's queue has room."""
        if self.end_event is not None and self.send(self.end_event, None):
            self.end_event = None
            self.forget(self)


class Feed:
    """The subscribers of one file of a session.

    Args:
        spawn: starts a pump.
        run: runs the pumps' reads, which block.
        clock: returns monotonic seconds.

    Attributes:
        head: the file's durable head.
        incarnation: the session's incarnation; empty until the session is opened.
        checkpoint_floor: the next checkpoint's id while the present generation has none.
    """

    def __init__(self, spawn: Spawn, run: Blocking, clock: Callable[[], float]) -> None:
        self.head = Position(0, 0)
        self.incarnation = ""
        self.checkpoint_floor = 0
        self._mail: DmailEvent | None = None
        self._mail_count = 0
        self._spawn = spawn
        self._run = run
        self._clock = clock
        self._log: FollowedLog | None = None
        self._subscribers: list[Subscriber] = []
        self._rewrites = RewriteHistory()
        self._recent = RecentCommits()
        self._is_round = False
        self._round_at = clock() - limits.FANOUT_PAUSE_S_MAX

    def __len__(self) -> int:
        return len(self._subscribers)

    def attach(
        self, log: FollowedLog, head: Position, incarnation: str, *, is_same: bool = True
    ) -> None:
        """Begin to read a log: the session was opened, or opened again.

        Args:
            log: the session's log.
            head: the log's durable head.
            incarnation: the session's incarnation.
            is_same: True when the bytes that were durable before are unchanged, or are kept as a
                past generation.
        """
        self._end_quiet()
        is_recreated = self.incarnation not in {"", incarnation}
        self._log = log
        self.incarnation = incarnation
        self.head = head
        self._recent.clear()
        self._rewrites.clear()
        for subscriber in tuple(self._subscribers):
            # Another program may have changed the files: offsets are invalid, and so are positions
            # in bytes that changed.
            subscriber.offset = None
            subscriber.lost |= is_recreated or subscriber.position > head
            has_some = subscriber.position > Position(head.generation, 0)
            subscriber.lost |= has_some and not is_same
            self._advance(subscriber)

    def load_state(self, machine: FileMachine) -> None:
        """Load the state that no line of a context holds; called right after `attach`.

        Args:
            machine: the state of the file. A stream's generations follow its deletions.
        """
        if isinstance(machine, StreamMachine):
            self._load_deletions(machine.head.generation)
        if not isinstance(machine, Machine):
            return
        self.checkpoint_floor = machine.checkpoint_floor
        last, mail = self._mail, machine.mail
        if mail is not None:
            if last is None or last.id != mail.id:
                self.mailed(DmailEvent(state="sent", id=mail.id, checkpoint_id=mail.checkpoint_id))
        elif last is not None and last.state == "sent":
            # The D-Mail ended while the files were closed: by a rewrite of unknown outcome, or by
            # another program.
            is_delivered = last.id == machine.delivered
            self.mailed(
                msgspec.structs.replace(last, state="delivered" if is_delivered else "expired")
            )

    def attach_missing(self, head: Position, incarnation: str) -> None:
        """Begin without a file: subscribers are at its first record, which will create it.

        Args:
            head: the position of that record.
            incarnation: the session's incarnation.
        """
        self.attach(_NoFile(), head, incarnation)
        self._load_deletions(head.generation)

    def _load_deletions(self, generation: int) -> None:
        """Load the resets of a stream, whose generations follow its deletions."""
        for made in range(1, generation + 1)[-limits.REWRITE_HISTORY_MAX :]:
            self._rewrites.add(made, RewriteEffect(0, STREAM_DELETED, 0))

    def mailed(self, event: DmailEvent) -> None:
        """Publish a change of a D-Mail's state."""
        self._end_quiet()
        self._mail = event
        self._mail_count += 1
        for subscriber in tuple(self._subscribers):
            self._advance(subscriber)

    def detach(self) -> None:
        """Stop reads: the session's files were closed."""
        self._end_quiet()
        self._log = None
        self._recent.clear()

    def check(self, position: Position) -> None:
        """Refuse a position beyond the head.

        Raises:
            BadRequest: the position is beyond the head.
        """
        if position > self.head:
            raise BadRequest(
                f"the session ends at {self.head}, before {position}: subscribe after a position"
                " that exists, or after start or now"
            )

    def add(self, subscriber: Subscriber) -> None:
        """Begin to send events to a subscriber; a block is read for it in a task."""
        is_pending = self._mail is not None and self._mail.state == "sent"
        subscriber.mail_seen = self._mail_count - is_pending
        self._subscribers.append(subscriber)
        self._advance(subscriber)

    def remove(self, subscriber: Subscriber) -> None:
        """Stop sending events to a subscriber."""
        subscriber.gone = True
        if subscriber in self._subscribers:
            self._subscribers.remove(subscriber)

    def grant(self, subscriber: Subscriber, size: int) -> None:
        """Add `size` bytes to a subscriber's credit."""
        subscriber.credit = min(subscriber.credit + size, limits.SUBSCRIPTION_WINDOW_BYTES_MAX)
        subscriber.stalled_since = None
        self._advance(subscriber)

    def resume(self, subscriber: Subscriber) -> None:
        """Continue a subscriber whose peer accepts blocks again."""
        if subscriber.credit > 0:
            subscriber.stalled_since = None
        self._advance(subscriber)

    def publish(self, head: Position, block: bytes) -> None:
        """Send a durable commit to the subscribers.

        Args:
            head: the head after the commit.
            block: the commit's lines.
        """
        if not self._recent.has_room(block):
            self._end_quiet()
        first, self.head = self.head, head
        if self._subscribers:
            self._recent.add(first, head, block)
            if len(block) >= limits.BLOCK_BYTES:
                self._end_quiet()
            self._fan_out()

    def reset(self, head: Position, kept: int, why: str, checkpoint_floor: int = 0) -> None:
        """Send a rewrite to the subscribers.

        Args:
            head: the head after the rewrite.
            kept: the number of first lines that the new generation shares with the one before.
            why: the kind of the rewrite.
            checkpoint_floor: the next checkpoint's id while the new generation has none.
        """
        self._end_quiet()
        self.head = head
        self._recent.clear()
        self.checkpoint_floor = checkpoint_floor
        self._rewrites.add(head.generation, RewriteEffect(kept, why, checkpoint_floor))
        for subscriber in tuple(self._subscribers):
            self._advance(subscriber)

    def end(self, why: str, new_session: str | None = None, *, is_moved: bool = False) -> None:
        """End all subscriptions with an event.

        Args:
            why: the reason.
            new_session: the new id of a renamed session.
            is_moved: another daemon owns the session now.
        """
        self._end_quiet()
        for subscriber in tuple(self._subscribers):
            gone = Gone(why=why, new_session=new_session, moved=is_moved)
            self._end_subscription(subscriber, gone)

    def end_stalled(self) -> int:
        """End subscriptions that have been stalled for too long; returns their number."""
        now, ended = self._clock(), 0
        for subscriber in tuple(self._subscribers):
            since = subscriber.stalled_since
            if since is not None and now - since > limits.SUBSCRIBER_STALL_S:
                self._end_subscription(subscriber, _lagged(subscriber.position))
                ended += 1
        return ended

    def _end_subscription(self, subscriber: Subscriber, event: Event) -> None:
        """End a subscription with a last event, which is sent later if the queue is full now."""
        subscriber.end_event = event
        subscriber.send_end()
        self.remove(subscriber)

    def _advance(self, subscriber: Subscriber) -> None:
        """Send a subscriber the next events, by a pump if the file must be read."""
        if subscriber.pumping or subscriber.gone or self._log is None:
            return
        if not self._is_behind(subscriber):
            if self._send_live(subscriber) and self._send_mail(subscriber):
                subscriber.stalled_since = None
            else:
                # Without the stall nothing would send the event again.
                self._stall(subscriber)
        elif subscriber.credit <= 0:
            self._stall(subscriber)
        elif self._is_quiet(subscriber):
            self._collect(subscriber)
        elif self._is_fan_out_target(subscriber) and self._is_round:
            # The round will serve it from memory, so reading the file would be wasted.
            return
        else:
            subscriber.pumping = True
            self._spawn(lambda: self._pump(subscriber))

    def _fan_out(self) -> None:
        """Send the recent commits to the subscribers: to a few at once, to many in rounds."""
        if self._is_round:
            return
        receivers = [each for each in self._subscribers if not each.is_collecting]
        if len(receivers) <= limits.FANOUT_MAX:
            for subscriber in receivers:
                self._send_recent(subscriber)
            self._clear_recent()
        else:
            self._is_round = True
            self._spawn(self._fan_out_in_rounds)

    async def _fan_out_in_rounds(self) -> None:
        try:
            while any(map(self._is_fan_out_target, self._subscribers)):
                await self._pause()
                self._round_at = self._clock()
                for number, subscriber in enumerate(tuple(self._subscribers)):
                    if number and number % limits.FANOUT_MAX == 0:
                        await anyio.lowlevel.checkpoint()
                    self._send_recent(subscriber)
        finally:
            self._is_round = False
            self._clear_recent()
        # A pump reads the file for a subscriber that missed more commits than memory keeps.
        for subscriber in tuple(self._subscribers):
            if subscriber.stalled_since is None:
                self._advance(subscriber)

    async def _pause(self) -> None:
        """Wait `FANOUT_EVENT_S` for each event of the round before, since its start."""
        pause_s = min(len(self._subscribers) * limits.FANOUT_EVENT_S, limits.FANOUT_PAUSE_S_MAX)
        left_s = self._round_at + pause_s - self._clock()
        if left_s > 0:
            await anyio.sleep(left_s)

    def _collect(self, subscriber: Subscriber) -> None:
        """Send a subscriber its commits at the end of its quiet time."""
        if not subscriber.is_collecting:
            subscriber.is_collecting = True
            self._spawn(lambda: self._send_collected(subscriber))

    async def _send_collected(self, subscriber: Subscriber) -> None:
        try:
            while not subscriber.gone and self._is_quiet(subscriber):
                await anyio.sleep(subscriber.quiet_until - self._clock())
        finally:
            subscriber.is_collecting = False
        if not subscriber.gone and self._is_behind(subscriber):
            self._send_recent(subscriber)
        if not self._is_round:
            self._clear_recent()

    def _end_quiet(self) -> None:
        """Send the commits that were put together: another event follows, or memory is full."""
        for subscriber in tuple(self._subscribers):
            if subscriber.pace_s:
                subscriber.quiet_until = -inf
                if self._missed_commits(subscriber) is not None:
                    self._send_recent(subscriber)
                subscriber.quiet_until = -inf

    def _is_quiet(self, subscriber: Subscriber) -> bool:
        return subscriber.quiet_until != -inf and self._clock() < subscriber.quiet_until

    def _begin_quiet(self, subscriber: Subscriber) -> None:
        """Put the next commits together; the backlog is not paced."""
        if subscriber.pace_s and subscriber.sent_live:
            subscriber.quiet_until = self._clock() + subscriber.pace_s

    def _clear_recent(self) -> None:
        """Forget the commits in memory, unless they are put together for a subscriber."""
        if not any(each.is_collecting for each in self._subscribers):
            self._recent.clear()

    def _is_fan_out_target(self, subscriber: Subscriber) -> bool:
        """True for a subscriber that a round serves; a stalled one is left out."""
        return subscriber.stalled_since is None and self._missed_commits(subscriber) is not None

    def _send_recent(self, subscriber: Subscriber) -> None:
        commits = self._missed_commits(subscriber)
        if commits is None:
            self._advance(subscriber)
        elif self._send_block(subscriber, commits.event, commits.block, commits.after):
            self._begin_quiet(subscriber)

    def _missed_commits(self, subscriber: Subscriber) -> CommitRun | None:
        """Returns the commits that a subscriber misses, if they are in memory and can be sent."""
        is_live = subscriber.sent_live and not (subscriber.lost or subscriber.gone)
        # A D-Mail event that was not sent goes first, which `_advance` does at the head.
        has_mail = subscriber.mail_seen < self._mail_count
        if not is_live or has_mail or subscriber.pumping or subscriber.credit <= 0:
            return None
        if self._is_quiet(subscriber):
            return None
        return self._recent.since(subscriber.position)

    def _is_behind(self, subscriber: Subscriber) -> bool:
        return subscriber.lost or subscriber.position != self.head

    async def _pump(self, subscriber: Subscriber) -> None:
        try:
            while self._may_pump(subscriber):
                head = self.head
                async with subscriber.reading:
                    if not await self._send_if_possible(subscriber):
                        self._stall(subscriber)
                        return
                if subscriber.position >= head:
                    # What became durable meanwhile is put together.
                    self._begin_quiet(subscriber)
        finally:
            subscriber.pumping = False
        self._advance(subscriber)

    def _may_pump(self, subscriber: Subscriber) -> bool:
        is_followed = self._log is not None and not subscriber.gone
        return is_followed and self._is_behind(subscriber) and not self._is_quiet(subscriber)

    async def _send_if_possible(self, subscriber: Subscriber) -> bool:
        """Send the next event, if any; returns False if the subscriber cannot get one now."""
        log = self._log
        if subscriber.gone or log is None:
            return True
        if subscriber.credit <= 0 or not subscriber.accepts():
            return False
        return await self._send_from_file(subscriber, log)

    async def _send_from_file(self, subscriber: Subscriber, log: FollowedLog) -> bool:
        """Send the next event; returns False if it was not sent."""
        try:
            if subscriber.lost:
                return self._start_over(subscriber, timeline_entries.FOREIGN)
            block = await self._read(subscriber, log)
            if self._log is not log:
                # The files were opened again during the read, so the block may be outdated.
                return True
            return await self._send_next(subscriber, log, block)
        except BadRequest:
            # Another program cut the file, so the offset is wrong: count the lines instead.
            subscriber.offset = None
            return True
        except OSError as error:
            is_past = subscriber.position.generation < self.head.generation
            if isinstance(error, FileNotFoundError) and is_past:
                # The generation was removed by gc: continue with the present one.
                return self._start_over(subscriber, timeline_entries.COLLECTED)
            if self._log is log:
                self._end_subscription(subscriber, Gone(why=f"its files cannot be read: {error}"))
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
        # Lines can be durable in the file before their commit is published.
        until = self.head.line if generation == self.head.generation else None

        def read() -> Block:
            # The view is made here, too, because a compressed generation takes long to expand.
            view = log.view(generation)
            try:
                return read_block(view, line, offset, size, until)
            finally:
                view.release()

        return await self._run(read)

    async def _send_next(self, subscriber: Subscriber, log: FollowedLog, block: Block) -> bool:
        """Send a block that was read, or the reset at the end of a generation."""
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
            # The file ends before the head, so another program must have cut it.
            return False
        rewrite = await self._rewrite_of(generation, log)
        if self._log is not log:
            return True
        event = Reset(
            generation=generation,
            kept=rewrite.kept,
            why=rewrite.why,
            incarnation=self.incarnation,
            head=str(self.head),
            checkpoint_floor=rewrite.checkpoint_floor,
        )
        if not subscriber.send(event, None):
            return False
        subscriber.position, subscriber.offset = Position(generation, rewrite.kept), None
        return True

    async def _rewrite_of(self, generation: int, log: FollowedLog) -> RewriteEffect:
        known = self._rewrites.get(generation)
        if known is not None:
            return known
        found = await self._run(lambda: read_rewrites(log.timeline(), generation))
        if self._log is log:
            self._rewrites.add_all(found)
        return found[generation]

    def _send_block(
        self, subscriber: Subscriber, event: Records, block: bytes, after: Position
    ) -> bool:
        if not subscriber.accepts() or not subscriber.send(event, block):
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
        event, count = self._mail, self._mail_count
        if event is not None and subscriber.mail_seen < count:
            if not subscriber.send(event, None):
                return False
            subscriber.mail_seen = count
        return True

    def _stall(self, subscriber: Subscriber) -> None:
        if subscriber.stalled_since is None:
            subscriber.stalled_since = self._clock()


def _lagged(position: Position) -> Lagged:
    return Lagged(
        next=str(position), why=f"the client read no event for {limits.SUBSCRIBER_STALL_S:g} s"
    )
