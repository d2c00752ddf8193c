"""What the daemon's two sockets have in common, the local one and the one for other machines."""

import enum
from collections.abc import Callable, Sequence
from typing import Protocol

from stenod.api.clients import InFlightFrames, Link

Handle = Callable[[bytes, list[bytes]], int]
"""Takes the identity of a peer and the frames of one of its messages; tells how many requests."""

HasRoom = Callable[[], bool]
"""Tells whether one more connection may stay."""


class Sent(enum.Enum):
    """What became of a message."""

    OK = "ok"
    FULL = "full"
    """The peer does not read; the message was dropped."""

    GONE = "gone"
    """The peer is not connected any longer."""


class Transport(Protocol):
    """A socket with many peers: bursts of messages in, answers out, and never a wait for a peer.

    The event loop calls the drain itself: a task that waits for the socket anew after each burst
    would cost two system calls and a wake-up more. That ties the sockets, alone in the daemon, to
    asyncio.
    """

    async def serve(self, handle: Handle, end_burst: Callable[[], None]) -> None:
        """Hand every message to `handle`, burst by burst; `end_burst` follows each burst.

        Runs until it is cancelled, or `handle` raises.
        """

    def send(self, identity: bytes, frames: Sequence[bytes], in_flight: InFlightFrames) -> Sent:
        """Queue one message for a peer, or drop it; never waits. `after_sends` has to follow.

        Args:
            identity: of the peer.
            frames: the message.
            loans: where it is noted what is on its way.
        """
        ...

    def link(self) -> Link | None:
        """The connection of the message that is being handled; None if nobody can tell."""

    def after_sends(self) -> None:
        """What is queued is to go now."""

    def look_soon(self) -> None:
        """As `after_sends`, once those who are about to run had their turn."""

    def close(self) -> None:
        """Stop listening."""
