"""The way of one request or subscription through the daemons of a cluster."""

import msgspec

from steno_protocol import limits


class Route(msgspec.Struct, eq=False):
    """The daemon that carries a request or subscription, and the owners that were named for it.

    Attributes:
        endpoint: the owner's daemon that carries it; None: the client's home daemon.
        named: the last address that a daemon named as the owner's; None before the first.
        trail: the addresses that were named since the last pause, each at most once.
        pause_s: the next pause before the home daemon is asked again.
        trouble: why the owner's daemon did not answer, for the error at the deadline.
    """

    endpoint: str | None = None
    named: str | None = None
    trail: tuple[str, ...] = ()
    pause_s: float = limits.OWNER_PAUSE_S
    trouble: str | None = None

    def allows(self, endpoint: str) -> bool:
        """Note a named owner; return False for a circle, or too many owners in a row."""
        self.named = endpoint
        if endpoint in self.trail:
            self.trouble = f"{' and '.join(self.trail)} name each other"
            return False
        if len(self.trail) >= limits.REDIRECTS_MAX:
            self.trouble = f"{len(self.trail)} daemons in a row named another one"
            return False
        self.trail += (endpoint,)
        return True

    def turn_back(self) -> float:
        """Begin again at the home daemon; return the pause before it is asked, in seconds."""
        self.endpoint = None
        self.trail = ()
        pause_s, self.pause_s = self.pause_s, min(2 * self.pause_s, limits.OWNER_PAUSE_S_MAX)
        return pause_s

    def arrived(self) -> None:
        """Note that the carrying daemon serves it."""
        self.trail = () if self.endpoint is None else (self.endpoint,)
        self.pause_s = limits.OWNER_PAUSE_S
        self.trouble = None

    def unanswered(self) -> str:
        """The text of the error at the deadline."""
        because = f" ({self.trouble})" if self.trouble else ""
        return (
            f"the daemon at {self.named} was named as the session's owner and did not serve it in"
            f" time{because}: `steno cluster status` shows the owner and the daemons that answer"
        )


def direct(endpoint: str) -> Route:
    """The route of an item that begins at the owner, known from an earlier redirect."""
    return Route(endpoint=endpoint, named=endpoint, trail=(endpoint,))
