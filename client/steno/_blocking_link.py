"""The blocking client's link: one connection, mended during calls, and what is under way on it."""

import threading
import time
from collections.abc import Callable, Sequence
from math import inf

from steno import _fork
from steno._connecting import StartFailed, connect
from steno._exchange import Exchange
from steno._follower import Follower
from steno._pending import Pending
from steno._probe import Ready, hello_of
from steno._target import Target
from steno._transport import Connection
from steno._verbs import ReplyT, expected
from steno_protocol import commands, limits, replies
from steno_protocol.errors import BadRequest, Incompatible, Unreachable


class BlockingLink:
    """A connection to a daemon that mends itself during calls; it stands when this is made.

    Attributes:
        name: who writes.
        timeout: seconds that one request may take.
        welcome: what the daemon said of itself.
        is_inherited: this process was forked from the one that made the link.
    """

    def __init__(self, target: Target, timeout: float) -> None:
        self.name = target.name
        self.timeout = timeout
        self.is_inherited = False
        self._target = target.resolved()
        self._exchange = Exchange(hello_of(target))
        self._lock = threading.RLock()
        self._connection: Connection | None = None
        self._is_open = True
        self._pause_s = limits.RECONNECT_S
        self._retry_at = 0.0
        self.welcome = self._adopt(connect(self._target, time.monotonic() + timeout))
        _fork.guard(self)

    def close(self) -> None:
        """Hang up; closing twice is harmless."""
        if self.is_inherited:
            return
        with self._lock:
            self._is_open = False
            self._exchange.fail(Unreachable("the client was closed"), for_ever=True)
            self._hang_up("the client was closed")

    def check_open(self) -> None:
        """Raise BadRequest if the client cannot be used any more."""
        if self.is_inherited:
            raise _fork.inherited_error()
        if not self._is_open:
            raise BadRequest("the client is closed: connect again")

    def ask(
        self, command: commands.Command, kind: type[ReplyT], timeout: float | None = None
    ) -> ReplyT:
        """Send a command and wait for its reply, which has to be of this kind."""
        return self.request(command, kind, timeout=timeout)[0]

    def request(
        self,
        command: commands.Command,
        kind: type[ReplyT],
        records: Sequence[bytes] = (),
        timeout: float | None = None,
    ) -> tuple[ReplyT, bytes]:
        """As `ask`, with records that go with the command and the block that comes back."""
        with self._lock:
            return self.finish(self.begin(command, records, timeout), kind)

    def begin(
        self,
        command: commands.Command,
        records: Sequence[bytes] = (),
        timeout: float | None = None,
    ) -> Pending:
        """Send a command whose answer is waited for later: `finish` has to follow, or `forget`."""
        timeout = self.timeout if timeout is None else timeout
        with self._lock:
            self.check_open()
            now = time.monotonic()
            pending = self._exchange.submit(command, records, _nothing, now, timeout)
            if self._connection is not None:
                self._flush(self._connection)
            return pending

    def finish(self, pending: Pending, kind: type[ReplyT]) -> tuple[ReplyT, bytes]:
        """Wait for the answer to what was begun, which has to be of this kind."""
        with self._lock:
            self.check_open()
            try:
                self._wait_for(pending)
            finally:
                self._exchange.forget(pending)
        reply, block = pending.result()
        return expected(reply, kind), block

    def forget(self, pending: Pending) -> None:
        """Nobody waits for what was begun any more; safe in a finaliser."""
        self._exchange.forget(pending)

    def follow(self, follower: Follower) -> None:
        """Begin a subscription."""
        with self._lock:
            self.check_open()
            self._exchange.follow(follower, time.monotonic(), self.timeout)

    def unfollow(self, follower: Follower) -> None:
        """End a subscription."""
        with self._lock:
            self._exchange.unfollow(follower)
            if self._connection is not None:
                self._flush(self._connection)

    def abandon(self, follower: Follower) -> None:
        """End a subscription a little later; safe in a finaliser."""
        self._exchange.abandon(follower)

    def consumed(self, follower: Follower) -> None:
        """Give credit for what was popped."""
        with self._lock:
            self._exchange.consumed(follower, time.monotonic())
            if self._connection is not None:
                self._flush(self._connection)

    def take_in(self) -> None:
        """Take in what has arrived, without waiting."""
        with self._lock:
            self.check_open()
            self._turn(0.0)

    def wait_until(self, is_true: Callable[[], bool], timeout: float | None = None) -> bool:
        """Take in what comes until `is_true`; False when that took longer than `timeout` s."""
        deadline = inf if timeout is None else time.monotonic() + timeout
        with self._lock:
            self.check_open()
            while not is_true():
                if time.monotonic() >= deadline:
                    return False
                self._turn(deadline)
        return True

    # --- inside ----------------------------------------------------------------------------------

    def _wait_for(self, pending: Pending) -> None:
        while not pending.is_done:
            self._turn(inf)

    def _turn(self, deadline: float) -> None:
        """Wait for something to happen, at most until `deadline`, and deal with it."""
        until = min(deadline, self._exchange.alarm)
        connection = self._connection
        if connection is None:
            connection = self._connect_again(until)
        if connection is not None:
            self._flush(connection)
            has_come, may_have_ended = connection.wait(until, to_send=bool(self._exchange.outbox))
            if has_come:
                self._receive(connection)
            if may_have_ended and connection.is_lost():
                self._hang_up("the connection to the daemon was lost")
        self._exchange.tick(time.monotonic())

    def _receive(self, connection: Connection) -> None:
        now = time.monotonic()
        try:
            for frames in connection.receive(limits.CLIENT_TURN_MESSAGES):
                self._exchange.receive(frames, now)
        except Incompatible as error:
            self._exchange.fail(error, for_ever=True)
        self._flush(connection)

    def _flush(self, connection: Connection) -> None:
        self._exchange.flush(connection.send)

    def _connect_again(self, until: float) -> Connection | None:
        """Connect if anybody needs it; only who waits for an answer starts a daemon.

        A follower alone starts none, else `steno stop` could not stop anything that is watched.
        """
        now = time.monotonic()
        if now < self._retry_at:
            time.sleep(max(0.0, min(self._retry_at, until) - now))
            return None
        may_spawn = self._target.spawn and self._exchange.needs_daemon
        target = self._target if may_spawn else self._target.without_spawn()
        deadline = min(self._exchange.deadline, now + self.timeout)
        try:
            self.welcome = self._adopt(connect(target, deadline))
        except StartFailed as error:
            self._exchange.fail(error)
        except Unreachable as error:
            self._exchange.trouble = error.message
            self._retry_at = time.monotonic() + self._pause_s
            self._pause_s = min(2 * self._pause_s, limits.RECONNECT_S_MAX)
        return self._connection

    def _adopt(self, ready: Ready) -> replies.Welcome:
        self._connection = ready.connection
        self._pause_s = limits.RECONNECT_S
        self._retry_at = 0.0
        self._exchange.connected(ready.welcome, time.monotonic())
        return ready.welcome

    def _hang_up(self, why: str) -> None:
        self._exchange.disconnected(why)
        if self._connection is not None:
            self._connection.close()
            self._connection = None


def _nothing() -> None:
    """Nobody sleeps on a request of the blocking client: it looks for itself."""
