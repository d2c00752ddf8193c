"""One client of this machine: what comes from it, and what has not gone to it yet."""

import asyncio
import os
import socket
import struct
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from typing import Final

from steno_protocol import limits
from steno_protocol.zmtp import Inbound, Outbound
from stenod.api.clients import InFlightFrames
from stenod.net.transport import Sent

_CREDENTIALS: Final = struct.Struct("=iII")
"""What the kernel tells of who connected: pid, uid and gid."""

_LEAST_BYTES: Final = limits.GATHERED_BYTES_MAX
_MOST_BYTES: Final = limits.RECEIVED_BYTES_MAX
_ASIDE_BYTES: Final = limits.ASIDE_BYTES
_NOW: Final = socket.MSG_DONTWAIT | socket.MSG_NOSIGNAL


class LocalConnection:
    """A stream socket on which ZMTP is spoken.

    Args:
        accepted: the socket; it is this object's to close.

    Attributes:
        handle: of the socket.
        identity: what the daemon calls the client. What the client calls itself does not count: two
            that took one name would take each other's answers.
        is_own: the client is a process of the daemon's user.
        sender: uid:gid:pid of who connected, as the kernel knows them.
        stands: False once it has ended.
        until: the timer that ends it unless the handshake is over by then.
        is_watched: it is noticed when more can be sent.
        is_aside: it is looked at only now and then, because what it sends ends no message.
        debt: what it cost since its last message, in calls of the kernel, less what its bytes pay.
        waiting: messages that were received and not yet handled.
        counted: bytes of what is unfinished by it, as they were counted last.
    """

    def __init__(self, accepted: socket.socket, identity: bytes) -> None:
        self._socket = accepted
        accepted.setblocking(False)
        accepted.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, limits.SOCKET_BYTES)
        found = accepted.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
        pid, uid, gid = _CREDENTIALS.unpack(found)
        self.handle = accepted.fileno()
        self.identity = identity
        self.is_own = uid == os.getuid()
        self.sender = f"{uid}:{gid}:{pid}"
        self.stands = True
        self.until: asyncio.TimerHandle | None = None
        self.is_watched = False
        self.is_aside = False
        self.debt = 0
        self.waiting: deque[list[bytes]] = deque()
        self.counted = 0
        self._inbound = Inbound(b"ROUTER")
        self._outbound = Outbound()
        self._pay()

    @property
    def is_ready(self) -> bool:
        """The handshake is over."""
        return self._inbound.is_ready

    @property
    def unfinished(self) -> int:
        """Bytes that are kept of a message whose end did not come yet."""
        return self._inbound.unfinished

    @property
    def has_unsent(self) -> bool:
        """Something is queued that has not gone."""
        return bool(self._outbound)

    @property
    def unsent(self) -> int:
        """Bytes that are queued and have not gone."""
        return self._outbound.unsent

    def receive(self) -> None:
        """Put those messages behind the waiting that are complete by what has come; never waits.

        Raises:
            OSError, ForeignWire: nothing can come any more.
        """
        if self.is_aside:
            size = _ASIDE_BYTES
        else:
            size = max(_LEAST_BYTES, min(self._inbound.wanted, _MOST_BYTES))
        try:
            data = self._socket.recv(size)
        except BlockingIOError:
            return
        if not data:
            raise ConnectionResetError
        before = self._inbound.taken
        messages = self._inbound.feed(data)
        if messages:
            self.waiting.extend(messages)
            self.debt = 0
        else:
            cost = 1 + (self._inbound.taken - before) // limits.FRAMES_OF_A_CALL_MAX
            self.debt = max(0, self.debt + cost - len(data) // limits.CALL_BYTES)
        if self._inbound.owed:
            self._pay()

    def send(self, frames: Sequence[bytes], in_flight: InFlightFrames) -> Sent:
        """Queue a message, or drop it."""
        if self._outbound and self._is_full:
            self.flush()
            if self._is_full:
                return Sent.FULL
        end = self._outbound.put(frames)
        size = len(frames[-1])
        if in_flight.is_lent(size):
            in_flight.add(_InFlightFrame(self, end), size)
        else:
            in_flight.copied(size)
        return Sent.OK

    def flush(self) -> None:
        """Send what is queued, as far as the client takes it; its end is noticed by `receive`."""
        queued = self._outbound
        try:
            while queued:
                queued.went(self._socket.send(queued.next_piece(), _NOW))
        except BlockingIOError:
            return
        except OSError:
            # It takes nothing any more, and the kernel would tell for ever that it can be sent to.
            self._outbound = Outbound()
            # What it said before is still received, and then the end.
            with suppress(OSError):
                self._socket.shutdown(socket.SHUT_RD)

    def has_taken(self, end: int) -> bool:
        """Whether so many bytes have gone to it since it came, or nobody waits for them."""
        return self._outbound.gone >= end or not self.stands

    def close(self) -> None:
        """Hang up; who keeps this object, to know that it ended, keeps nothing that was queued."""
        self.stands = False
        if self.until is not None:
            self.until.cancel()
        self._socket.close()
        self._inbound, self._outbound = Inbound(b"ROUTER"), Outbound()
        self.waiting.clear()

    @property
    def _is_full(self) -> bool:
        """As much waits for the client as may."""
        queued = self._outbound
        return (
            queued.messages >= limits.SEND_QUEUE_MESSAGES
            or queued.unsent >= limits.SEND_QUEUE_BYTES
        )

    def _pay(self) -> None:
        """Send what the wire itself asks for, unless the client takes nothing anyway."""
        owed = self._inbound.owed
        if not self._outbound:
            self._outbound.put_raw(bytes(owed))
            self.flush()
        owed.clear()


class _InFlightFrame:
    """See `peers.Loan`."""

    __slots__ = ("_connection", "_end")

    def __init__(self, connection: LocalConnection, end: int) -> None:
        self._connection = connection
        self._end = end

    @property
    def done(self) -> bool:
        """See `peers.Loan`."""
        return self._connection.has_taken(self._end)
