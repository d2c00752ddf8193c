"""The blocking link: one connection, renewed during calls, with its requests.

An interrupt (an exception of a signal handler, as KeyboardInterrupt) may end a call anywhere. If it
comes while the connection is used, the connection is closed: half a message may have been sent or
received. The next call makes a new one, on which requests are sent again with their keys, and
followers continue from their positions.
"""

import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from math import inf
from typing import TYPE_CHECKING

from steno._connect import fork_guard
from steno._connect.connect import connect, is_killed, log_restart
from steno._connect.connection import Connection, Futile
from steno._connect.probe import Attempt, Ready, hello_of, not_there, probe_deadline
from steno._connect.safe_open import open_source
from steno._connect.target import Target
from steno._connect.write_masks import Masks, is_unknown, prepared, write_masks
from steno._sansio.argument_checks import given_timeout
from steno._sansio.exchange import Exchange
from steno._sansio.pending import Pending
from steno._sansio.reading import LineReader
from steno._sansio.repairs import Repairs
from steno._sansio.requests import ReplyT, not_contained, result_of
from steno._sync.connection_lock import ConnectionLock
from steno_protocol import commands, limits, replies
from steno_protocol.errors import BadRequest, Busy, Incompatible, StenoError, Unreachable
from steno_protocol.positions import Position
from steno_protocol.replies import RepairedFile

if TYPE_CHECKING:
    from steno._sansio.follower import Follower
    from steno._sansio.mirror import Mirror
    from steno._sansio.owners import Owners
    from steno._sync.owner_link import BlockingOwnerLink


class BlockingLink:
    """A connection to a daemon, made by the constructor; calls make a new one when it is lost.

    Threads take turns on it. A request has the turn until it has its answer; a thread that waits
    for events (`wait_until`) has it for a short check now and then, and delays no other thread.

    In a cluster that daemon is the home daemon: what it does not own goes by links to the owners,
    which are made when it first names one, and are used in the same turns.

    `Link` has methods of the same names, so that the verbs of both clients have one source.

    Attributes:
        name: the author of changes.
        timeout: seconds that one request may take, and that it may wait for its turn.
        welcome: the daemon's identity and limits.
        is_inherited: this process was forked from the one that made the link.
        on_stale: called at each reply that may be older than what other daemons have.
        repairs: the repairs of sessions that replies reported.
        close_requests: sent before the connection closes, so that no other client waits in vain.
    """

    def __init__(
        self,
        target: Target,
        timeout: float,
        home: "BlockingLink | None" = None,
        exchange: Exchange | None = None,
        on_stale: Callable[[], None] | None = None,
        on_repair: Callable[[RepairedFile], None] | None = None,
    ) -> None:
        self.name: str = target.name
        self.timeout: float = given_timeout(timeout)
        self.is_inherited: bool = False
        self.close_requests: set[commands.CompactAbort] = set()
        self._masks: Masks | None = None
        if home is None:
            self._target, self._masks = prepared(target)
        else:
            self._target = target.resolved()
        self.on_stale: Callable[[], None] | None = on_stale
        self.repairs: Repairs = Repairs(on_repair) if home is None else home.repairs
        self._exchange = exchange or Exchange(hello_of(target), on_stale, self.repairs)
        self._owners: Owners[BlockingOwnerLink] | None = None
        self._turns: ConnectionLock = ConnectionLock() if home is None else home._turns
        self._unpaid: deque[Follower] = deque() if home is None else home._unpaid
        self._connection: Connection | None = None
        self._attempt: Attempt | None = None
        self._began = 0.0
        self._is_open = True
        self._pause_s = limits.RECONNECT_S
        self._retry_at = 0.0
        self.welcome: replies.Welcome = (
            self._adopt(connect(self._target, time.monotonic() + self.timeout))
            if home is None
            else home.welcome
        )
        if home is None and is_unknown(self._target):
            self._masks = write_masks(self.welcome.root)
        fork_guard.guard(self)

    def close(self) -> None:
        """Close the connection; closing twice is harmless, and waiting callers get an error.

        Raises:
            Busy: another thread's request took longer than `timeout`, or this is a signal handler
                in the middle of one; the client is still open.
        """
        if self.is_inherited:
            return
        if self._connection is not None:
            # Otherwise the request might start a daemon.
            for command in list(self.close_requests):
                self.abort(command)
        self._turns.take(self.timeout)
        try:
            self._turns.ring()
            self._is_open = False
            for link in (*self._owner_links(), self):
                link._exchange.fail(Unreachable("the client was closed"), for_ever=True)
                link._hang_up("the client was closed")
        finally:
            self._turns.give_back()

    @property
    def target(self) -> Target:
        """The wanted daemon, and how this client introduces itself."""
        return self._target

    def inherit(self) -> None:
        """See `fork_guard.Inherited`."""
        self.is_inherited = True
        if self._connection is not None:
            self._connection.let_go()

    def check_open(self) -> None:
        """Raise BadRequest if the client cannot be used any more."""
        if self.is_inherited:
            raise fork_guard.inherited_error()
        if not self._is_open:
            raise BadRequest("the client is closed: connect again")

    def change(
        self, command: commands.Mutation, records: Sequence[bytes], mirror: "Mirror | None"
    ) -> replies.Ack:
        """Send a change of a session, and return its ack once the mirror contains the change.

        Args:
            command: the change.
            records: the records of the command.
            mirror: the mirror of the session, if it is followed.

        Raises:
            StenoError: the subscription of the mirror has ended; nothing was sent.
            OutcomeUnknown: the change was acknowledged and did not reach the mirror in time.
        """
        ack, _ = self.request(command, replies.Ack, records, mirror=mirror, has_event=True)
        if mirror is not None and mirror.lacks(ack):
            self._contain(mirror, command, ack)
        return ack

    def ask(
        self,
        command: commands.Command,
        kind: type[ReplyT],
        *,
        mirror: "Mirror | None" = None,
        timeout: float | None = None,
    ) -> ReplyT:
        """Send a command and return its reply, which has to be of this kind."""
        return self.request(command, kind, mirror=mirror, timeout=timeout)[0]

    def request(
        self,
        command: commands.Command,
        kind: type[ReplyT],
        records: Sequence[bytes] = (),
        *,
        mirror: "Mirror | None" = None,
        has_event: bool = False,
        timeout: float | None = None,
    ) -> tuple[ReplyT, bytes]:
        """Send a command with its records, and return its reply and the block of lines.

        Args:
            command: the command.
            kind: the type of the expected reply.
            records: the records of the command.
            mirror: the command is not sent if the subscription of this mirror has ended: the
                session was deleted, and another one may have its name now.
            has_event: the mirror gets an event of this change, which mostly follows the reply at
                once; it is then taken in in the same turn.
            timeout: seconds that the request may take, instead of the client's.

        Raises:
            Busy: other threads' requests left no turn for this one, or this is a signal handler in
                the middle of one; it was not sent.
        """
        timeout_s = self.timeout if timeout is None else timeout
        timeout_s -= self._take_turn(timeout_s)
        try:
            pending = self._begin(command, records, timeout_s, mirror)
            self._finish(pending)
            if has_event and mirror is not None and mirror.lacks(pending.reply):
                link = self if self._owners is None else self._carrier(mirror.follower)
                link._take_in_soon()
        finally:
            self._turns.give_back()
        return result_of(pending, kind)

    def abort(self, command: commands.CompactAbort) -> None:
        """Send the end of a compaction; errors are ignored."""
        with suppress(StenoError):
            self.ask(command, replies.Done, timeout=limits.COMPACTION_ABORT_S)

    def begin(self, command: commands.Command, records: Sequence[bytes] = ()) -> Pending:
        """Send a command without waiting for its reply: `finish` or `forget` has to follow."""
        timeout_s = self.timeout - self._take_turn(self.timeout)
        try:
            return self._begin(command, records, timeout_s)
        finally:
            self._turns.give_back()

    def finish(self, pending: Pending, kind: type[ReplyT]) -> tuple[ReplyT, bytes]:
        """Wait for the reply to a command of `begin`, which has to be of this kind."""
        try:
            self._take_turn(self.timeout)
        except Busy as error:
            self.forget(pending)
            # It was sent before: the outcome of a change is unknown.
            raise pending.outcome(error) from None
        try:
            self._turns.ring()
            self._finish(pending)
        finally:
            self._turns.give_back()
        return result_of(pending, kind)

    def forget(self, pending: Pending) -> None:
        """Forget a request that `begin` sent; safe in a finaliser."""
        self._carrier(pending)._exchange.forget(pending)

    def follow(self, follower: "Follower") -> None:
        """Begin a subscription."""
        self._take_turn(self.timeout)
        try:
            self.check_open()
            owners = self._owners
            link = self if owners is None else owners.link_of(follower.session) or self
            link._exchange.follow(follower, time.monotonic(), self.timeout)
            if owners is not None:
                owners.begin(follower, link._exchange)
        finally:
            self._turns.give_back()

    def unfollow(self, follower: "Follower") -> None:
        """End a subscription; a little later when another thread's request takes too long."""
        if self.is_inherited:
            return
        try:
            self._turns.take(self.timeout)
        except Busy:
            self.abandon(follower)
            self._turns.ring()
            return
        try:
            self._turns.ring()
            link = self._carrier(follower)
            link._exchange.unfollow(follower)
            if link._connection is not None:
                link._flush(link._connection)
        finally:
            self._turns.give_back()

    def abandon(self, follower: "Follower") -> None:
        """End a subscription a little later; safe in a finaliser."""
        self._carrier(follower)._exchange.abandon(follower)

    def consumed(self, follower: "Follower") -> None:
        """Grant credit for popped events at the next turn of any thread; this never waits."""
        if self.is_inherited:
            return
        # Without an error: the popped event would be lost with it.
        self._unpaid.append(follower)
        if self._turns.take_before(0.0):
            try:
                self._pay()
                link = self if self._owners is None else self._carrier(follower)
                if link._exchange.outbox and link._connection is not None:
                    self._turns.ring()
                    link._flush(link._connection)
            finally:
                self._turns.give_back()

    def fetch(self, reader: LineReader, *, ahead: bool = False) -> bool:
        """Fetch the next block of lines; return False at the end.

        Args:
            reader: gets the block.
            ahead: request the block after it at once; a caller that stops early has to `forget` it.
        """
        self.check_open()
        if reader.has_file and reader.take_from_file(limits.FILE_BLOCK_BYTES):
            return True
        pending = reader.ahead or self._request_block(reader)
        reader.ahead = None
        if pending is None:
            return False
        reader.take(*self.finish(pending, replies.Lines))
        if reader.source is not None:
            reader.use(open_source(reader.source))
        if ahead and not reader.has_file:
            reader.ahead = self._request_block(reader)
        return True

    def reach(
        self,
        mirror: "Mirror",
        position: Position | None,
        timeout: float | None = None,
    ) -> bool:
        """Wait until the mirror contains everything before `position`.

        Args:
            mirror: the mirror of a session.
            position: the head to reach; None is the end of the first backlog.
            timeout: seconds to wait; None is no limit.

        Returns:
            False when that took longer than `timeout`.
        """
        return self.wait_until(mirror.arrival(position), timeout)

    def take_in(self, follower: "Follower") -> None:
        """Take in what has arrived, without waiting.

        Only on a new connection it waits, for the events that were missed before.
        """
        self._take_turn(self.timeout)
        try:
            self.check_open()
            self._turns.ring()
            link = self._carrier(follower)
            before = link._connection
            link._step(0.0)
            while link._attempt is not None and link is self._carrier(follower):
                link._step(0.0)
            link._take_in_rest()
            link = self._carrier(follower)
            is_new = link._connection is not before
        finally:
            self._turns.give_back()
        if is_new:
            self.wait_until(
                lambda: follower.is_current or self._carrier(follower)._connection is None,
                self.timeout,
            )

    def wait_until(self, is_true: Callable[[], bool], timeout: float | None = None) -> bool:
        """Take in messages until `is_true`; return False after `timeout` seconds.

        Other threads' requests go on meanwhile, and the messages that they take in count, too.
        """
        deadline = inf if timeout is None else time.monotonic() + timeout
        self.check_open()
        wakeup = self._turns.wakeup()
        try:
            while self._turns.take_before(deadline):
                try:
                    wakeup.hush()
                    if is_true():
                        return True
                    self.check_open()
                    if time.monotonic() >= deadline:
                        return False
                    if self._step(0.0) or (self._owners is not None and self._step_owners()):
                        # It may be for another thread, and more may be there.
                        self._turns.ring(but=wakeup)
                        continue
                    if is_true():
                        # A deadline of its own has passed, and rings no bell.
                        return True
                    descriptors, until = self._all_signs()
                finally:
                    self._turns.give_back()
                wakeup.sleep(descriptors, min(deadline, until))
        finally:
            try:
                self._turns.put_away(wakeup)
            except BaseException:
                self._turns.forget(wakeup)
                raise
        # Another thread's request has the turn: this check sees what it has taken in so far.
        return is_true()

    def drop_owner(self, link: "BlockingOwnerLink") -> None:
        """Take back what a link to an owner carried when its connection ended."""
        if self._owners is not None:
            self._owners.drop(link)
            link.exchange.turn_back(link.exchange.trouble or "it was lost")
            self._redirect(link.exchange)

    # --- inside ----------------------------------------------------------------------------------

    def _carrier(self, item: "Pending | Follower") -> "BlockingLink":
        """The link that carries a request or a subscription."""
        return self if self._owners is None else self._owners.carrier(item) or self

    def _redirect(self, ended: Exchange | None = None) -> None:
        """Give what another daemon has to serve to the link to that daemon."""
        if self._owners is None:
            # Imported late: most clients meet no other owner.
            from steno._sansio.owners import Owners  # noqa: PLC0415
            from steno._sync.owner_link import BlockingOwnerLink  # noqa: PLC0415

            self._owners = Owners(self._exchange, partial(BlockingOwnerLink, self))
        self._owners.redirect(time.monotonic(), ended)
        # A waiting thread may need the events of another connection now.
        self._turns.ring()

    def _owner_links(self) -> "list[BlockingOwnerLink]":
        return [] if self._owners is None else list(self._owners.links.values())

    def _step_owners(self) -> bool:
        """Take in what has arrived from owners; return True when something came."""
        has_come = False
        for link in self._owner_links():
            has_come |= link._step(0.0)
        return has_come

    def _all_signs(self) -> tuple[tuple[int, ...], float]:
        """As `_signs`, of all connections."""
        descriptors, until = self._signs()
        for link in self._owner_links():
            more, sooner = link._signs()
            descriptors += more
            until = min(until, sooner)
        return descriptors, until

    def _contain(self, mirror: "Mirror", command: commands.Mutation, ack: replies.Ack) -> None:
        mirror.follower.waiters += 1
        try:
            has_come = self.reach(mirror, Position.parse(ack.head), self.timeout)
        except StenoError:
            # The change is applied even if the mirror ends: a reader of the history gets the error.
            return
        finally:
            mirror.follower.waiters -= 1
        if not has_come:
            raise not_contained(command, ack)

    def _request_block(self, reader: LineReader) -> Pending | None:
        command = reader.next_command()
        return None if command is None else self.begin(command)

    def _take_turn(self, timeout_s: float) -> float:
        # Before the turn: in a child the thread that had it at the fork does not exist.
        self.check_open()
        return self._turns.take(timeout_s)

    def _begin(
        self,
        command: commands.Command,
        records: Sequence[bytes],
        timeout_s: float,
        mirror: "Mirror | None" = None,
    ) -> Pending:
        # Once more: another thread may have closed the client before this one got its turn.
        self.check_open()
        self._turns.ring()
        if self._masks is not None:
            command, records = self._masks(command, records)
        owners = self._owners
        if mirror is not None:
            link = self if owners is None else self._carrier(mirror.follower)
            link._take_in_arrived()
            mirror.check()
        link = self if owners is None else owners.link_for(command) or self
        now = time.monotonic()
        pending = link._exchange.submit(command, records, None, now, timeout_s)
        if owners is not None:
            owners.begin(pending, link._exchange)
        if link._connection is not None:
            link._flush(link._connection)
        return pending

    def _take_in_arrived(self) -> None:
        for _ in range(limits.CLIENT_TURNS_MAX):
            if self._connection is None or not self._is_stirred(self._connection):
                return
            self._step(0.0)

    def _take_in_rest(self) -> None:
        """Take in all messages that are there, within a bound."""
        end = time.monotonic() + limits.REFRESH_S_MAX
        while self._connection is not None and time.monotonic() < end and self._step(0.0):
            pass

    def _is_stirred(self, connection: Connection, *, to_send: bool = False) -> bool:
        """Whether a message has arrived or can be sent; the check receives bytes."""
        try:
            return connection.is_ready if to_send else connection.has_messages
        except BaseException:
            self._break_off()
            raise

    def _finish(self, pending: Pending) -> None:
        try:
            while pending.reply is None and pending.error is None:
                # Without a call where there is no cluster, here and elsewhere.
                link = self if self._owners is None else self._carrier(pending)
                link._step(inf)
        finally:
            link = self if self._owners is None else self._carrier(pending)
            link._exchange.forget(pending)

    def _take_in_soon(self) -> None:
        """Take in one message, if it comes at once."""
        try:
            if self._connection is not None:
                self._receive_soon(self._connection, inf)
        except BaseException:
            self._break_off()
            raise

    def _step(self, deadline: float) -> bool:
        """Wait until `deadline` at most for messages, and take them in.

        Returns:
            True when something came.
        """
        until = min(deadline, self._exchange.alarm)
        has_come = False
        try:
            if self._unpaid:
                self._pay()
            connection = self._connection
            if connection is None:
                connection = self._connect_again(until)
            if connection is not None:
                if self._exchange.outbox:
                    self._flush(connection)
                has_come = self._receive_soon(connection, until) or self._receive(connection, until)
            self._exchange.tick(time.monotonic())
            if self._exchange.redirected:
                self._redirect()
        except BaseException:
            self._break_off()
            raise
        return has_come

    def _receive_soon(self, connection: Connection, until: float) -> bool:
        """Take in one message if it comes at once, as most answers do; return whether it came."""
        if self._exchange.outbox or until - time.monotonic() < limits.ANSWER_SOON_MS / 1000:
            return False
        message = connection.receive_soon()
        if message is None:
            return False
        self._absorb(connection, [message])
        return True

    def _receive(self, connection: Connection, until: float) -> bool:
        """Take in messages, or the connection's end, before `until`; return whether some came."""
        has_come, may_have_ended = connection.wait(until, to_send=bool(self._exchange.outbox))
        if has_come:
            self._absorb(connection, connection.receive(limits.CLIENT_TURN_MESSAGES))
        if may_have_ended and connection.is_lost():
            self._hang_up("the connection to the daemon was lost")
            # A machine that vanished would be waited for in vain.
            self._target = self._target.rotated()
        return has_come

    def _signs(self) -> tuple[tuple[int, ...], float]:
        """The descriptors to sleep on after a step without messages, and the latest time."""
        connection = self._connection
        if connection is None:
            return (), 0.0 if self._attempt else min(self._exchange.alarm, self._retry_at)
        until = self._exchange.alarm
        if self._exchange.outbox:
            # Sending may use up the signal of messages that came meanwhile, so another check
            # follows.
            self._flush(connection)
            is_stirred = self._is_stirred(connection, to_send=bool(self._exchange.outbox))
            until = 0.0 if is_stirred else until
        return (connection.fd, connection.monitor_fd), until

    def _pay(self) -> None:
        try:
            while self._unpaid:
                follower = self._unpaid.popleft()
                link = self if self._owners is None else self._carrier(follower)
                link._exchange.consumed(follower, time.monotonic())
        except BaseException:
            self._break_off()
            raise

    def _absorb(self, connection: Connection, messages: Sequence[Sequence[bytes]]) -> None:
        now = time.monotonic()
        try:
            for frames in messages:
                self._exchange.receive(frames, now)
        except Incompatible as error:
            self._exchange.fail(error, for_ever=True)
        if self._exchange.redirected:
            self._redirect()
        if self._exchange.outbox:
            self._flush(connection)

    def _flush(self, connection: Connection) -> None:
        try:
            self._exchange.flush(connection.send)
        except BaseException:
            self._break_off()
            raise

    def _connect_again(self, until: float) -> Connection | None:
        """Connect if a caller needs it, and start a daemon for waiting callers.

        A follower alone restarts only a killed daemon: `steno stop` stops followed daemons, too.
        """
        now = time.monotonic()
        if now < self._retry_at:
            time.sleep(max(0.0, min(self._retry_at, until) - now))
            return None
        try:
            is_needed = self._exchange.needs_daemon
            is_revival = not is_needed and self._target.spawn and is_killed(self._target)
            if self._target.spawn and (is_needed or is_revival):
                self._give_up_attempt()
                deadline = min(self._exchange.deadline, now + self.timeout)
                started = connect(self._target, deadline)
                self.welcome = self._adopt(started)
                if is_revival:
                    log_restart(started)
            elif (ready := self._go_on_connecting(now, until)) is not None:
                self.welcome = self._adopt(ready)
        except Futile as error:
            self._exchange.fail(error)
            self._pause()
        except Unreachable as error:
            self._exchange.trouble = error.message
            self._target = self._target.rotated()
            self._pause()
        return self._connection

    def _pause(self) -> None:
        self._retry_at = time.monotonic() + self._pause_s
        self._pause_s = min(2 * self._pause_s, limits.RECONNECT_S_MAX)

    def _go_on_connecting(self, now: float, until: float) -> Ready | None:
        """Continue the attempt to connect until then: another machine may take long to answer."""
        target = self._target.without_spawn()
        if self._attempt is None:
            self._began = now
            self._attempt = Attempt(target, probe_deadline(target, now + self.timeout))
        outcome = self._attempt.go_on(max(until, now + limits.CONNECT_SLICE_S))
        if outcome is None:
            return None
        self._attempt = None
        if isinstance(outcome, Ready):
            return outcome
        raise not_there(target, outcome, self._began)

    def _give_up_attempt(self) -> None:
        attempt, self._attempt = self._attempt, None
        if attempt is not None:
            attempt.close()

    def _adopt(self, ready: Ready) -> replies.Welcome:
        if self._exchange.is_connected:
            # An interrupt ended `_hang_up` half-way.
            self._exchange.disconnected("the connection was given up")
        self._connection = ready.connection
        self._pause_s = limits.RECONNECT_S
        self._retry_at = 0.0
        self._exchange.connected(ready.welcome, time.monotonic())
        return ready.welcome

    def _hang_up(self, why: str) -> None:
        # Closed at once: no thread uses it any more.
        connection, self._connection = self._connection, None
        # The waiting threads sleep on descriptors that are about to be closed.
        self._turns.ring()
        self._give_up_attempt()
        self._exchange.disconnected(why)
        if connection is not None:
            connection.close()
        if self._owners is not None and self._is_open:
            self._owners.leave_home()
            self._redirect()

    def _break_off(self) -> None:
        """Close the connection, which an interrupt left in an unknown state."""
        self._hang_up("a call on this client was interrupted")
        # The next tick looks for due work anew.
        self._exchange.alarm = 0.0
