"""One connection to a daemon, of whatever kind.

A connection lives and ends once. It does not reconnect by itself: after its end a new one is made,
so that nothing queued for an old daemon can reach a new one, and the address may change.
"""

from collections.abc import Sequence
from typing import Protocol

from steno_protocol.errors import Unreachable


class OutOfHandles(Unreachable):
    """This process may not open what a connection is made of; its daemon may well be there."""

    def __init__(self, why: str) -> None:
        super().__init__(
            f"this process has no file handles left for a connection ({why}): close some, or allow"
            " it more with `ulimit -n`"
        )


class Connection(Protocol):
    """A socket that is connected to one daemon, or was."""

    @property
    def endpoint(self) -> str:
        """The daemon's address."""
        ...

    @property
    def fd(self) -> int:
        """Readable when messages may have come or may go.

        It is only waited for after `receive` returned fewer messages than it was asked for.
        """
        ...

    @property
    def tells_once(self) -> bool:
        """`fd` is edge-triggered: it signals an arrival once, and a send consumes the signal."""
        ...

    @property
    def monitor_fd(self) -> int:
        """Readable when the connection may have ended."""
        ...

    @property
    def is_refused(self) -> bool:
        """The daemon refused the client's key."""
        ...

    @property
    def has_messages(self) -> bool:
        """True when `receive` would give something."""
        ...

    @property
    def expects_more(self) -> bool:
        """True when more is likely to come at once: part of a message came, or very much."""
        ...

    @property
    def can_send(self) -> bool:
        """True when the daemon's end takes messages."""
        ...

    @property
    def is_ready(self) -> bool:
        """True when `receive` would give something, or the daemon's end takes messages.

        Not the same as to ask for one and then for the other: each question may use up the sign on
        `fd` of what only the other would have told.
        """
        ...

    def is_lost(self) -> bool:
        """True once the connection has ended, or could not be made."""
        ...

    def wait_until_ready(self, deadline: float) -> bool:
        """Block until the connection stands; False when it cannot be made before `deadline`."""
        ...

    def send(self, frames: Sequence[bytes]) -> bool:
        """Queue one message; False when it cannot go now. Frame sizes were checked before."""
        ...

    def receive_soon(self) -> list[bytes] | None:
        """One message that is there or comes within `ANSWER_SOON_MS`, else None; blocks.

        None at once while a message is still queued, because no other call would send it meanwhile.
        """

    def receive(self, messages_max: int) -> list[list[bytes]]:
        """Messages that are there now; fewer than asked for means that there were no more."""
        ...

    def wait(self, deadline: float, *, to_send: bool = False) -> tuple[bool, bool]:
        """Block until something came, the connection ended, or it is `deadline`.

        Args:
            to_send: come back too when a message can go.

        Returns:
            Whether a message is there, and whether the connection may have ended, which `is_lost`
            checks.
        """
        ...

    def close(self) -> None:
        """End the connection; what was queued is dropped, and nothing waits."""
        ...

    def let_go(self) -> None:
        """In a child: have the connection end when the parent ends it, if that can be had."""
