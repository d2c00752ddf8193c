"""The lock of a connection that threads share, and the wake-up of waiting threads.

A thread has the turn while it uses the connection. A thread that waits for messages sleeps beside
the lock, on the connection's descriptors and on a wakeup of its own, so that no other thread has to
move it out of the way. Another thread's turn may use up the signal of a descriptor (libzmq's
descriptors report a change once, to the first reader). So a thread that takes the turn to use the
connection rings the wakeups: each sleeping thread then queues for a turn, and checks again.

Rejected: one waiting thread that keeps the turn while it polls, and hands it over on request. Each
request would wait for two thread switches before it could send, and a second waiting thread, which
queues behind the first, would not be notified of messages that the first received for it.
"""

import sys
import threading
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from math import inf
from typing import Final

import steno_system as system
from steno_protocol.errors import Busy, Unreachable

_RING: Final = (1).to_bytes(8, sys.byteorder)
"""What rings a wakeup: the number that an eventfd adds, or any bytes in a pipe."""

_RINGS_BYTES: Final = 65_536
"""More than a pipe contains, so that one read empties it."""

_SLEEP_S_MAX: Final = 1000.0
"""A deadline may be infinite, and an integer of milliseconds may not: a woken thread checks
again."""


class ConnectionLock:
    """A lock that gives turns in order, and none to a thread that has the turn.

    Such a thread is in a signal handler or a finaliser, in the middle of sending or receiving a
    message.

    An interrupt anywhere leaves the lock free: the RLock itself ends a turn, because a function in
    Python can be interrupted before its first line.

    Attributes:
        give_back: ends a turn; once for each that was taken.
    """

    def __init__(self) -> None:
        # A waiting thread holds `next` until it has the turn. A thread that just gave the turn back
        # would win the race for it; so it has to wait for `next`, behind the first one. Both locks
        # know their owners, because a signal handler or a finaliser may run at any point.
        self._next = threading.RLock()
        self._turn = threading.RLock()
        self._owner = threading.Condition(self._turn)
        # Sets, not counts: adding to a set is one step, which threads cannot interleave.
        self._queued: set[object] = set()
        self._sleeping: set[Wakeup] = set()
        self._spare_wakeups: list[Wakeup] = []
        self.give_back: Callable[[], None] = self._turn.release

    def take(self, timeout_s: float) -> float:
        """Wait for a turn; return how many seconds that took.

        Raises:
            Busy: it took longer than `timeout_s`, or this thread is in the middle of a turn.
        """
        if self._take_now():
            return 0.0
        began = time.monotonic()
        waited_s = self._queue_up(began, began + timeout_s)
        if waited_s is None:
            raise Busy(
                "another thread was in a call on this client for all of the"
                f" {timeout_s:g} s that this one may take: give each thread a client of its own, or"
                " a longer timeout"
            )
        return waited_s

    def take_before(self, deadline: float) -> bool:
        """Wait for a turn, for ever when `deadline` is infinite; return False if none came in time.

        Raises:
            Busy: this thread is in the middle of a turn.
        """
        return self._take_now() or self._queue_up(time.monotonic(), deadline) is not None

    def wakeup(self) -> "Wakeup":
        """Return a wakeup that is rung from now on, until it is put away."""
        try:
            wakeup = self._spare_wakeups.pop()
        except IndexError:
            wakeup = Wakeup()
        try:
            self._sleeping.add(wakeup)
        except BaseException:
            # An interrupt: no other code would put it away.
            self.forget(wakeup)
            raise
        return wakeup

    def put_away(self, wakeup: "Wakeup") -> None:
        """Stop ringing a wakeup, and keep it for the next owner."""
        self._sleeping.discard(wakeup)
        self._spare_wakeups.append(wakeup)

    def forget(self, wakeup: "Wakeup") -> None:
        """Stop ringing a wakeup whose owner was interrupted in `put_away`."""
        self._sleeping.discard(wakeup)

    def ring(self, but: "Wakeup | None" = None) -> None:
        """Wake all sleeping threads but one, so that each checks again once it has the turn.

        A thread that is about to use the connection rings first: whatever happens then, they will
        check.
        """
        if self._sleeping:
            for wakeup in list(self._sleeping):
                if wakeup is not but:
                    wakeup.ring()

    # --- inside ----------------------------------------------------------------------------------

    def _take_now(self) -> bool:
        try:
            # It raises unless this thread has the turn, see `_is_ours`.
            self._owner.notify()
        except RuntimeError:
            pass
        else:
            raise Busy(
                "this thread is in the middle of a call on this client, so its signal handler or"
                " finaliser cannot use it: set a flag there and look at it after the call, raise an"
                " exception, or use a client of its own"
            )
        if self._queued:
            return False
        try:
            return self._turn.acquire(blocking=False)
        except BaseException:
            # An interrupt right after `acquire`, which had succeeded.
            if self._is_ours():
                self._turn.release()
            raise

    def _queue_up(self, now: float, deadline: float) -> float | None:
        """Return the seconds until this thread had the turn, None when it did not get it."""
        place = object()
        try:
            self._queued.add(place)
            try:
                if not _acquire(self._next.acquire, deadline):
                    return None
                if not _acquire(self._turn.acquire, deadline):
                    return None
            finally:
                try:  # noqa: SIM105 - an interrupt could come before `suppress` does anything
                    self._next.release()
                except RuntimeError:
                    # This thread did not get it before the deadline.
                    pass
            return time.monotonic() - now
        except BaseException:
            if self._is_ours():
                self._turn.release()
            raise
        finally:
            self._queued.discard(place)

    def _is_ours(self) -> bool:
        # The public way to check the owner of a lock. No thread waits, so none is notified.
        try:
            self._owner.notify()
        except RuntimeError:
            return False
        return True


class Wakeup:
    """The wakeup of a thread that sleeps beside the lock; it stays rung until it is hushed."""

    def __init__(self) -> None:
        self._is_heard = False
        try:
            self._fd, self._bell = system.wakeup_handles()
        except OSError as error:
            raise Unreachable(
                f"this process has no file handle left to wait with ({error.strerror}): close"
                " some, or allow it more with `ulimit -n`"
            ) from None

    def __del__(self) -> None:
        # In a child after a fork too: there it closes the child's copy only.
        with suppress(AttributeError):
            system.close_end(self._fd)
            if self._bell != self._fd:
                system.close_end(self._bell)

    def ring(self) -> None:
        """Wake its owner, now or when it goes to sleep; any thread may."""
        # One that is full is rung already.
        try:  # noqa: SIM105 - `suppress` is a call more
            system.write_end(self._bell, _RING)
        except BlockingIOError:
            pass

    def hush(self) -> None:
        """Reset it; its owner does so in its turn, before it checks for messages."""
        if self._is_heard:
            self._is_heard = False
            with suppress(BlockingIOError):
                system.read_end(self._fd, _RINGS_BYTES)

    def sleep(self, descriptors: Iterable[int], deadline: float) -> None:
        """Block until it is rung, a descriptor is readable, or it is `deadline`."""
        left_s = min(deadline - time.monotonic(), _SLEEP_S_MAX)
        # Rounded up, else it would wake a moment too early and find nothing to do.
        wait_ms = max(0, int(left_s * 1000) + 1)
        self._is_heard = self._fd in system.readable((self._fd, *descriptors), wait_ms)


def _acquire(acquire: Callable[[bool, float], bool], deadline: float) -> bool:
    if deadline == inf:
        return acquire(True, -1)
    left_s = min(deadline - time.monotonic(), threading.TIMEOUT_MAX)
    return acquire(True, left_s) if left_s > 0 else acquire(False, -1)
