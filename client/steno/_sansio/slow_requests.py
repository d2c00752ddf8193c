"""Slow requests: a bounded number under way, the others in a queue.

The daemon looks at files for a slow request. It serves a bounded number of one client at a time and
refuses the others as `busy`. A client that sent thousands together would send most of them again
and again, and keep the daemon from its work.
"""

from steno._sansio.pending import Pending
from steno_protocol import limits
from steno_protocol.errors import Busy


class SlowRequests:
    """Admitted slow requests, and those that wait for their answers.

    `forget_all` repairs what an interrupt left half-done.

    Attributes:
        waiting: by their ids, the oldest first.
    """

    def __init__(self) -> None:
        self._under_way: set[bytes] = set()
        self.waiting: dict[bytes, Pending] = {}

    def admits(self, pending: Pending) -> bool:
        """Whether a slow request may be sent now; if not, `next` returns it once it may."""
        if pending.id in self._under_way:
            return True
        if not self.waiting and len(self._under_way) < limits.CLIENT_LOOKUPS_MAX:
            self._under_way.add(pending.id)
            return True
        self.waiting[pending.id] = pending
        pending.refusal = Busy(
            f"{limits.CLIENT_LOOKUPS_MAX} requests of this client, behind which this one waited,"
            " were not answered in time: ask for less at a time",
            session=pending.session,
        )
        return False

    def end(self, pending: Pending) -> None:
        """Make room for another request after this one has ended; safe in a finaliser."""
        self._under_way.discard(pending.id)

    def release(self, pending: Pending) -> None:
        """Forget a request that another daemon gets, whether it was sent or waits."""
        self._under_way.discard(pending.id)
        if self.waiting.pop(pending.id, None) is not None:
            pending.refusal = None

    def next(self) -> Pending | None:
        """The oldest waiting request, if one more may be sent; it is admitted until it ends."""
        if not self.waiting or len(self._under_way) >= limits.CLIENT_LOOKUPS_MAX:
            return None
        pending = self.waiting.pop(next(iter(self.waiting)))
        self._under_way.add(pending.id)
        return pending

    def forget_all(self) -> None:
        """Admit all requests anew: the connection has ended, and none is under way."""
        for pending in self.waiting.values():
            # It waits for a connection now, and no longer for other requests.
            pending.refusal = None
        self._under_way.clear()
        self.waiting.clear()
