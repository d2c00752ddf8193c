"""The requests and subscriptions that the owner of sessions in a cluster serves to a client.

They go back to the home daemon when the owner has no connection in time, refuses them, or is
silent: then it is greeted first.
"""

from collections.abc import Callable, Sequence
from itertools import count
from math import inf
from typing import TYPE_CHECKING, Final

from steno._sansio.exchange import Exchange
from steno._sansio.pending import Pending
from steno._sansio.repairs import Repairs
from steno._sansio.requests import encode_header
from steno_protocol import limits
from steno_protocol.commands import Command, Hello
from steno_protocol.errors import ErrorCode
from steno_protocol.messages import OutgoingRequest
from steno_protocol.replies import ErrorReply, Welcome

if TYPE_CHECKING:
    from steno._sansio.follower import Follower

_first_numbers: Final = count(1 << 32, 1 << 32)
"""An id that moves between exchanges means nothing in the others."""


class OwnerExchange(Exchange):
    """All requests and subscriptions that an owner serves to a client.

    Args:
        hello: the greeting.
        endpoint: the address that another daemon named.
        on_stale: as for `Exchange`.
        repairs: as for `Exchange`.
    """

    endpoint: str | None
    trouble: str | None

    def __init__(
        self,
        hello: Hello,
        endpoint: str,
        on_stale: Callable[[], None] | None = None,
        repairs: Repairs | None = None,
    ) -> None:
        super().__init__(hello, on_stale, repairs)
        self.endpoint = endpoint
        self._number = next(_first_numbers)
        # Since when it is watched, when its silence is noticed, and whether it was greeted because
        # of that.
        self._watch_from = -inf
        self._watch_due = inf
        self._is_suspect = False

    def submit(
        self,
        command: Command,
        records: Sequence[bytes],
        wake: Callable[[], None] | None,
        now: float,
        timeout_s: float,
    ) -> Pending:
        """As `Exchange.submit`; the owner is watched from then on."""
        pending = super().submit(command, records, wake, now, timeout_s)
        self._carry(pending, now)
        return pending

    def follow(self, follower: "Follower", now: float, timeout_s: float) -> None:
        """As `Exchange.follow`; the owner is watched from then on."""
        super().follow(follower, now, timeout_s)
        self._carry(follower, now)

    def adopt(self, item: "Pending | Follower", now: float, due: float) -> None:
        """As `Exchange.adopt`; the owner is watched from then on."""
        super().adopt(item, now, due)
        self._carry(item, now)

    def connected(self, welcome: Welcome, now: float) -> None:
        """As `Exchange.connected`; the owner is watched from then on."""
        super().connected(welcome, now)
        self._watch(now)

    def turn_back(self, why: str) -> None:
        """Redirect everything to the home daemon: the owner does not serve it."""
        self.trouble = why
        for item in self._all():
            self.redirected.append((item, None))

    def _carry(self, item: "Pending | Follower", now: float) -> None:
        """Bound the time that an item waits for an owner without a connection."""
        if self.is_connected:
            self._watch(now)
        else:
            item.due = now + limits.OWNER_CONNECT_S
            self._arm(item.due)

    def _watch(self, now: float) -> None:
        """Begin to watch the owner, unless that has begun."""
        if self._watch_due == inf and (self._pending or self._followers):
            self._watch_anew(now)
        self._arm(self._watch_due)

    def _watch_anew(self, now: float) -> None:
        # A slow connection may carry requests for so long.
        under_way_s = (self._asked_bytes - self._answered_bytes) / limits.SLOW_BYTES_S
        self._watch_from = now
        self._watch_due = now + limits.OWNER_SILENCE_S + under_way_s

    def _tick_due(self, now: float) -> None:
        self._tick_owner(now)
        super()._tick_due(now)

    def _tick_owner(self, now: float) -> None:
        """Greet an owner that has been silent, and give up one that stays silent."""
        if not self.is_connected or not (self._pending or self._followers):
            self._watch_due = inf
            return
        if now >= self._watch_due:
            if self._heard_at >= self._watch_from:
                self._is_suspect = False
            elif self._is_suspect:
                self.turn_back(f"it did not answer a greeting for {now - self._watch_from:.1f} s")
                self._watch_due = inf
                return
            else:
                self._is_suspect = True
                greeting = OutgoingRequest(self._next_id(b"h"), encode_header(self._hello))
                self.outbox.append(greeting)
            self._watch_anew(now)
        self._arm(self._watch_due)

    def _tick_request(self, pending: Pending, now: float) -> None:
        if not self._is_given_up(pending, now):
            super()._tick_request(pending, now)

    def _tick_follower(self, request_id: bytes, follower: "Follower", now: float) -> None:
        if not self._is_given_up(follower, now):
            super()._tick_follower(request_id, follower, now)

    def _is_given_up(self, item: "Pending | Follower", now: float) -> bool:
        """Whether it waited long enough for the connection to an owner, and goes home."""
        if self.is_connected or not item.due <= now < item.deadline:
            return False
        self.trouble = self.trouble or "no connection yet"
        self.redirected.append((item, None))
        item.due = inf
        return True

    def _is_redirect(self, body: ErrorReply) -> bool:
        return body.code in (ErrorCode.HELD, ErrorCode.SHUTTING_DOWN)

    def _go_on_elsewhere(self, follower: "Follower", now: float) -> None:
        del now
        follower.name = None
        self.redirected.append((follower, None))
