"""The blocking client's link: one connection, mended during calls, and what is under way on it.

An interrupt (an exception of a signal handler, as KeyboardInterrupt) may end a call anywhere. One
that comes while the connection is used costs the connection: half a message may have gone or come.
The next call makes another one, on which requests are sent again with their keys and followers go
on from what they have.
"""

import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from math import inf

from steno._connect import fork_guard
from steno._connect.absence import StartFailed, not_there
from steno._connect.connect import connect, is_killed, log_restart
from steno._connect.connection import Connection
from steno._connect.probe import Attempt, Ready, hello_of, probe_deadline
from steno._connect.target import Target
from steno._sansio.exchange import Exchange
from steno._sansio.follower import Follower
from steno._sansio.pending import Pending
from steno._sansio.request_builders import ReplyT, expected, seconds
from steno._sync.connection_lock import ConnectionLock
from steno_protocol import commands, limits, replies
from steno_protocol.errors import BadRequest, Busy, Incompatible, StenoError, Unreachable


class BlockingLink:
    """A connection to a daemon that mends itself during calls; it stands when this is made.

    Threads take turns on it. A request has the turn until it has its answer; what only waits for
    something to come (`wait_until`) holds it for a short check now and then, and delays no other
    thread.

    Attributes:
        name: the author of changes.
        timeout: seconds that one request may take, and that it may wait for its turn.
        welcome: what the daemon said of itself.
        is_inherited: this process was forked from the one that made the link.
        close_requests: sent before the connection closes, so that no other client waits in vain.
    """

    def __init__(self, target: Target, timeout: float) -> None:
        self.name = target.name
        self.timeout = seconds(timeout)
        self.is_inherited = False
        self.close_requests: set[commands.Command] = set()
        self._target = target.resolved()
        self._exchange = Exchange(hello_of(target))
        self._turns = ConnectionLock()
        self._unpaid: deque[Follower] = deque()
        self._connection: Connection | None = None
        self._attempt: Attempt | None = None
        self._began = 0.0
        self._is_open = True
        self._pause_s = limits.RECONNECT_S
        self._retry_at = 0.0
        self.welcome = self._adopt(connect(self._target, time.monotonic() + self.timeout))
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
            # Otherwise a daemon might be started for it.
            for command in list(self.close_requests):
                with suppress(StenoError):
                    self.ask(command, replies.Done, limits.COMPACTION_ABORT_S)
        self._turns.take(self.timeout)
        try:
            self._turns.ring()
            self._is_open = False
            self._exchange.fail(Unreachable("the client was closed"), for_ever=True)
            self._hang_up("the client was closed")
        finally:
            self._turns.give_back()

    def inherit(self) -> None:
        """See `_fork.Inherited`."""
        self.is_inherited = True
        if self._connection is not None:
            self._connection.let_go()

    def check_open(self) -> None:
        """Raise BadRequest if the client cannot be used any more."""
        if self.is_inherited:
            raise fork_guard.inherited_error()
        if not self._is_open:
            raise BadRequest("the client is closed: connect again")

    def ask(
        self,
        command: commands.Command,
        kind: type[ReplyT],
        timeout: float | None = None,
        *,
        check: Callable[[], None] | None = None,
    ) -> ReplyT:
        """Send a command and wait for its reply, which has to be of this kind."""
        return self.request(command, kind, timeout=timeout, check=check)[0]

    def request(
        self,
        command: commands.Command,
        kind: type[ReplyT],
        records: Sequence[bytes] = (),
        timeout: float | None = None,
        *,
        check: Callable[[], None] | None = None,
        is_event_due: Callable[[replies.AnyReply], bool] | None = None,
    ) -> tuple[ReplyT, bytes]:
        """As `ask`, with records that go with the command and the block that comes back.

        Args:
            is_event_due: whether an event of this change is still to come; it mostly follows the
                reply at once, and is taken in in the same turn then.
            check: called before it is sent, once all is taken in that has arrived; what it raises
                keeps the command from being sent.

        Raises:
            Busy: other threads' requests left no turn for this one, or this is a signal handler in
                the middle of one; it was not sent.
        """
        timeout_s = self.timeout if timeout is None else timeout
        timeout_s -= self._take_turn(timeout_s)
        try:
            pending = self._begin(command, records, timeout_s, check)
            self._finish(pending)
            answer = pending.reply
            if is_event_due is not None and answer is not None and is_event_due(answer):
                self._take_in_soon()
        finally:
            self._turns.give_back()
        reply, block = pending.result()
        return expected(reply, kind), block

    def begin(
        self,
        command: commands.Command,
        records: Sequence[bytes] = (),
        timeout: float | None = None,
    ) -> Pending:
        """Send a command without waiting for its reply: `finish` or `forget` has to follow."""
        timeout_s = self.timeout if timeout is None else timeout
        timeout_s -= self._take_turn(timeout_s)
        try:
            return self._begin(command, records, timeout_s)
        finally:
            self._turns.give_back()

    def finish(self, pending: Pending, kind: type[ReplyT]) -> tuple[ReplyT, bytes]:
        """Wait for the answer to what was begun, which has to be of this kind."""
        try:
            self._take_turn(self.timeout)
        except Busy as error:
            self._exchange.forget(pending)
            # It was sent before: the outcome of a change is unknown.
            raise pending.outcome(error) from None
        try:
            self._turns.ring()
            self._finish(pending)
        finally:
            self._turns.give_back()
        reply, block = pending.result()
        return expected(reply, kind), block

    def forget(self, pending: Pending) -> None:
        """Forget a request that `begin` sent; safe in a finaliser."""
        self._exchange.forget(pending)

    def follow(self, follower: Follower) -> None:
        """Begin a subscription."""
        self._take_turn(self.timeout)
        try:
            self.check_open()
            self._exchange.follow(follower, time.monotonic(), self.timeout)
        finally:
            self._turns.give_back()

    def unfollow(self, follower: Follower) -> None:
        """End a subscription; a little later when another thread's request takes too long."""
        if self.is_inherited:
            return
        try:
            self._turns.take(self.timeout)
        except Busy:
            self._exchange.abandon(follower)
            self._turns.ring()
            return
        try:
            self._turns.ring()
            self._exchange.unfollow(follower)
            if self._connection is not None:
                self._flush(self._connection)
        finally:
            self._turns.give_back()

    def abandon(self, follower: Follower) -> None:
        """End a subscription a little later; safe in a finaliser."""
        self._exchange.abandon(follower)

    def consumed(self, follower: Follower) -> None:
        """Grant credit for popped events at the next turn of any thread; this never waits."""
        if self.is_inherited:
            return
        # Not to be refused: the event that was popped would be lost with the error.
        self._unpaid.append(follower)
        if self._turns.take_before(0.0):
            try:
                self._pay()
                if self._exchange.outbox and self._connection is not None:
                    self._turns.ring()
                    self._flush(self._connection)
            finally:
                self._turns.give_back()

    def take_in(self, follower: Follower) -> None:
        """Take in what has arrived, without waiting.

        On a connection that was made for it nothing has: what was missed is waited for.
        """
        self._take_turn(self.timeout)
        try:
            self.check_open()
            self._turns.ring()
            before = self._connection
            self._step(0.0)
            while self._attempt is not None:
                self._step(0.0)
            self._take_in_rest()
            is_new = self._connection is not before
        finally:
            self._turns.give_back()
        if is_new:
            self.wait_until(lambda: follower.is_current or self._connection is None, self.timeout)

    def wait_until(self, is_true: Callable[[], bool], timeout: float | None = None) -> bool:
        """Take in what comes until `is_true`; False when that took longer than `timeout` s.

        Other threads' requests go on meanwhile, and what they take in counts too.
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
                    if self._step(0.0):
                        # Perhaps it is for another thread; and more may be there.
                        self._turns.ring(but=wakeup)
                        continue
                    if is_true():
                        # Its own time was over: that came from the clock, and rings no bell.
                        return True
                    descriptors, until = self._signs()
                finally:
                    self._turns.give_back()
                wakeup.sleep(descriptors, min(deadline, until))
        finally:
            try:
                self._turns.put_away(wakeup)
            except BaseException:
                self._turns.forget(wakeup)
                raise
        # Another thread's request has the turn: what it took in so far is to be seen without one.
        return is_true()

    # --- inside ----------------------------------------------------------------------------------

    def _take_turn(self, timeout_s: float) -> float:
        # Before the turn: in a child the thread that had it at the fork does not exist.
        self.check_open()
        return self._turns.take(timeout_s)

    def _begin(
        self,
        command: commands.Command,
        records: Sequence[bytes],
        timeout_s: float,
        check: Callable[[], None] | None = None,
    ) -> Pending:
        self.check_open()
        self._turns.ring()
        if check is not None:
            self._take_in_arrived()
            check()
        now = time.monotonic()
        pending = self._exchange.submit(command, records, _nothing, now, timeout_s)
        if self._connection is not None:
            self._flush(self._connection)
        return pending

    def _take_in_arrived(self) -> None:
        for _ in range(limits.CLIENT_TURNS_MAX):
            if self._connection is None or not self._is_stirred(self._connection):
                return
            self._step(0.0)

    def _take_in_rest(self) -> None:
        """Take in what is there."""
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
            while not pending.is_done:
                self._step(inf)
        finally:
            self._exchange.forget(pending)

    def _take_in_soon(self) -> None:
        """Take in one message, if it comes at once."""
        try:
            if self._connection is not None:
                self._receive_soon(self._connection, inf)
        except BaseException:
            self._break_off()
            raise

    def _step(self, deadline: float) -> bool:
        """Wait for something to happen, at most until `deadline`, and deal with it.

        Returns:
            True when something came.
        """
        try:
            return self._go_on(min(deadline, self._exchange.alarm))
        except BaseException:
            self._break_off()
            raise

    def _go_on(self, until: float) -> bool:
        has_come = False
        connection = self._connection
        if self._unpaid:
            self._pay()
        if connection is None:
            connection = self._connect_again(until)
        if connection is not None:
            self._flush(connection)
            has_come = self._receive_soon(connection, until) or self._receive(connection, until)
        self._exchange.tick(time.monotonic())
        return has_come

    def _receive_soon(self, connection: Connection, until: float) -> bool:
        """Take in one message if it comes at once, as most answers do; True when it came."""
        if self._exchange.outbox or until - time.monotonic() < limits.ANSWER_SOON_MS / 1000:
            return False
        message = connection.receive_soon()
        if message is None:
            return False
        self._absorb(connection, [message])
        return True

    def _receive(self, connection: Connection, until: float) -> bool:
        """Take in what comes before `until`, or the connection's end; True when something came."""
        has_come, may_have_ended = connection.wait(until, to_send=bool(self._exchange.outbox))
        if has_come:
            self._absorb(connection, connection.receive(limits.CLIENT_TURN_MESSAGES))
        if may_have_ended and connection.is_lost():
            self._hang_up("the connection to the daemon was lost")
        return has_come

    def _signs(self) -> tuple[tuple[int, ...], float]:
        """What to sleep on after a step in which nothing came, and until when at most."""
        connection = self._connection
        if connection is None:
            return (), 0.0 if self._attempt else min(self._exchange.alarm, self._retry_at)
        until = self._exchange.alarm
        if self._exchange.outbox:
            # From the step's end, or what could not go before. To send may use up the sign of what
            # came meanwhile, so it is asked for once more.
            self._flush(connection)
            is_stirred = self._is_stirred(connection, to_send=bool(self._exchange.outbox))
            until = 0.0 if is_stirred else until
        return (connection.fd, connection.monitor_fd), until

    def _pay(self) -> None:
        try:
            while self._unpaid:
                self._exchange.consumed(self._unpaid.popleft(), time.monotonic())
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
        self._flush(connection)

    def _flush(self, connection: Connection) -> None:
        if not self._exchange.outbox:
            return
        try:
            self._exchange.flush(connection.send)
        except BaseException:
            self._break_off()
            raise

    def _connect_again(self, until: float) -> Connection | None:
        """Connect if a caller needs it, and start a daemon for waiting callers.

        For a follower alone only one that was killed: `steno stop` stops what is watched, too.
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
        except StartFailed as error:
            self._exchange.fail(error)
            self._pause()
        except Unreachable as error:
            self._exchange.trouble = error.message
            self._pause()
        return self._connection

    def _pause(self) -> None:
        self._retry_at = time.monotonic() + self._pause_s
        self._pause_s = min(2 * self._pause_s, limits.RECONNECT_S_MAX)

    def _go_on_connecting(self, now: float, until: float) -> Ready | None:
        """Connect, as far as that comes until then: another machine may take long to answer."""
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
            # An interrupt came while this hung up.
            self._exchange.disconnected("the connection was given up")
        self._connection = ready.connection
        self._pause_s = limits.RECONNECT_S
        self._retry_at = 0.0
        self._exchange.connected(ready.welcome, time.monotonic())
        return ready.welcome

    def _hang_up(self, why: str) -> None:
        # Closed at once: no thread uses it any more.
        connection, self._connection = self._connection, None
        # They sleep on descriptors that are about to be closed.
        self._turns.ring()
        self._give_up_attempt()
        self._exchange.disconnected(why)
        if connection is not None:
            connection.close()

    def _break_off(self) -> None:
        """Close the connection, which an interrupt left in an unknown state."""
        self._hang_up("a call on this client was interrupted")
        # What was about to be done at its time is looked for anew.
        self._exchange.alarm = 0.0


def _nothing() -> None:
    """Do nothing: the blocking client checks its requests itself."""
