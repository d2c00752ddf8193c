"""Requests for which the daemon looks at files: a bounded number is under way, the rest waits here.

The daemon serves so many of one client at a time and refuses the others as `busy`. A client that
asked for thousands together would ask most of them again and again, and keep it from its work.
"""

from typing import Final

from steno._sansio.pending import Pending
from steno_protocol import limits
from steno_protocol.commands import SlowCommand
from steno_protocol.errors import Busy

# Each request asks for it, and a union would be gone through from its beginning.
_SLOW: Final = frozenset(SlowCommand.__args__)


class Lookups:
    """Requests that are admitted, and those that wait for earlier replies.

    What ends in the middle of a call, by an interrupt, is made good by `forget_all`.

    Attributes:
        waiting: by their ids, the oldest first.
    """

    def __init__(self) -> None:
        self._under_way: set[bytes] = set()
        self.waiting: dict[bytes, Pending] = {}

    def admits(self, pending: Pending) -> bool:
        """Whether a request may be sent now; if not, `next` returns it once it may."""
        if type(pending.command) not in _SLOW or pending.id in self._under_way:
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
        """A request is over, however it ended; safe in a finaliser."""
        self._under_way.discard(pending.id)

    def next(self) -> Pending | None:
        """The oldest waiting request, if one more may be sent; it is admitted until it ends."""
        if not self.waiting or len(self._under_way) >= limits.CLIENT_LOOKUPS_MAX:
            return None
        pending = self.waiting.pop(next(iter(self.waiting)))
        self._under_way.add(pending.id)
        return pending

    def forget_all(self) -> None:
        """Nothing is under way any more: all are to be admitted anew."""
        for pending in self.waiting.values():
            # It is not for the others any more that it waits.
            pending.refusal = None
        self._under_way.clear()
        self.waiting.clear()
