"""The other end of a local connection, played by hand, and a connection whose calls are watched."""

import gc
import select
import socket
import time
from contextlib import suppress
from pathlib import Path

from steno._connect.local_connection import LocalConnection
from steno_protocol import limits
from steno_protocol.zmtp import Inbound, Outbound

GREETING = bytes(Inbound(b"DEALER").owed)
READY_OF_DEALER = b"\x04\x1c\x05READY\x0bSocket-Type\x00\x00\x00\x06DEALER"
"""What a client says first, and when it is greeted."""

MORE_THAN_FITS = b"x" * (4 * limits.MIB)
"""A message of which the kernel holds a small part."""


def written(*messages: bytes) -> bytes:
    """Messages of one frame, as they go over the socket."""
    outbound = Outbound()
    for message in messages:
        outbound.put([message])
    pieces: list[bytes] = []
    while outbound:
        pieces.append(bytes(outbound.next_piece()))
        outbound.went(len(pieces[-1]))
    return b"".join(pieces)


def is_readable(handle: int) -> bool:
    """Whether something is to be noticed by who waits for it."""
    return bool(select.select([handle], [], [], 0)[0])


def handles() -> int:
    """How many files and sockets this process has open, but for what nobody can reach."""
    gc.collect()
    return len(list(Path("/proc/self/fd").iterdir()))


def fill(connection: LocalConnection) -> None:
    """Send until the kernel takes no more."""
    assert connection.send([MORE_THAN_FITS])
    assert not connection.can_send


class Door:
    """A socket that somebody listens at, and the last who came.

    Args:
        path: of the socket.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._listener.bind(str(path))
        self._listener.listen()
        self.peer = self._listener

    def connect(self) -> LocalConnection:
        """Have somebody connect, to whom nothing is said."""
        connection = LocalConnection("ipc", str(self.path))
        self.accept()
        return connection

    def accept(self) -> None:
        """Let in who connected."""
        self.peer, _ = self._listener.accept()

    def let_in(self) -> LocalConnection:
        """Have somebody connect, and end the handshake."""
        connection = self.connect()
        inbound = Inbound(b"ROUTER")
        while not inbound.is_ready or inbound.owed:
            self.peer.sendall(bytes(inbound.owed))
            inbound.owed.clear()
            if not inbound.is_ready:
                connection.wait(time.monotonic() + 1)
                inbound.feed(self.peer.recv(4096))
        assert connection.wait_until_ready(time.monotonic() + 30)
        return connection

    def say(self, *messages: bytes) -> None:
        """Send messages of one frame."""
        self.peer.sendall(written(*messages))

    def heard(self) -> bytes:
        """What has come until now."""
        came = bytearray()
        with suppress(BlockingIOError):
            while data := self.peer.recv(limits.MIB, socket.MSG_DONTWAIT):
                came += data
        return bytes(came)

    def close(self) -> None:
        """Hang up, and let nobody in any more."""
        self.peer.close()
        self._listener.close()


class Failing:
    """A socket or an epoll whose calls of one name fail."""

    def __init__(self, inner: object, name: str, error: Exception) -> None:
        self._inner = inner
        self._name = name
        self._error = error

    def __getattr__(self, name: str) -> object:
        return self._fail if name == self._name else getattr(self._inner, name)

    def _fail(self, *_: object) -> None:
        raise self._error


class DrivenClock:
    """A clock that goes on only while somebody waits, and an epoll that is told of nothing.

    Attributes:
        now: what it shows.
        waits: how long somebody waited, in order.
    """

    def __init__(self) -> None:
        self.now = 1000.0
        self.waits: list[float] = []

    def monotonic(self) -> float:
        """As the one of `time`."""
        return self.now

    def poll(self, timeout: float) -> list[tuple[int, int]]:
        """As the one of an epoll that watches something silent."""
        assert timeout >= 0, "without an end"
        self.waits.append(timeout)
        self.now += timeout
        return []
