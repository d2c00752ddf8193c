"""The repairs of session files that daemons reported to a client."""

from collections import OrderedDict
from collections.abc import Callable

from steno_protocol import limits
from steno_protocol.replies import RepairedFile


class Repairs:
    """The latest repairs of each session, as the replies of this client reported them.

    Args:
        on_repair: called at each reported repair.
    """

    def __init__(self, on_repair: Callable[[RepairedFile], None] | None = None) -> None:
        self._sessions: OrderedDict[str, tuple[RepairedFile, ...]] = OrderedDict()
        self._on_repair = on_repair

    def add(self, repaired: tuple[RepairedFile, ...]) -> None:
        """Keep the repairs that a reply reported; the oldest ones go when there are too many."""
        for each in repaired:
            kept = (*self._sessions.pop(each.session, ()), each)
            self._sessions[each.session] = kept[-limits.REPAIRS_OF_SESSION_MAX :]
            if self._on_repair is not None:
                self._on_repair(each)
        while len(self._sessions) > limits.REPAIRED_SESSIONS_MAX:
            self._sessions.popitem(last=False)

    def of(self, session: str) -> tuple[RepairedFile, ...]:
        """Return the repairs of a session, the oldest first."""
        return self._sessions.get(session, ())
