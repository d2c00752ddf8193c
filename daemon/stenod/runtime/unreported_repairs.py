"""Repairs of files at their opening that no reply has reported yet."""

from collections import OrderedDict

from steno_protocol import limits
from steno_protocol.replies import RepairedFile


class UnreportedRepairs:
    """The repairs of one daemon, until the next reply about their session.

    Mostly that is the reply to the command that opened the session.

    Attributes:
        sessions: the repairs by session.
    """

    def __init__(self, sessions_max: int = limits.REPAIRED_SESSIONS_MAX) -> None:
        self.sessions: OrderedDict[str, tuple[RepairedFile, ...]] = OrderedDict()
        self._sessions_max = sessions_max

    def add(self, session: str, repaired: tuple[RepairedFile, ...]) -> None:
        """Keep repairs for the next reply; the oldest ones go when there are too many."""
        kept = (*self.sessions.pop(session, ()), *repaired)
        self.sessions[session] = kept[-limits.REPAIRS_OF_SESSION_MAX :]
        while len(self.sessions) > self._sessions_max:
            self.sessions.popitem(last=False)

    def take(self, session: str) -> tuple[RepairedFile, ...]:
        """Return the repairs of a session, which the caller reports."""
        return self.sessions.pop(session, ())
