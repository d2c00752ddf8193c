"""The daemon's socket for this machine, served beside a test that plays its clients."""

import socket
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager, closing
from pathlib import Path

import anyio

from steno._connect.local_connection import LocalConnection
from steno_protocol import limits
from stenod.api.clients import InFlightFrames
from stenod.net import local_connection
from stenod.net.local import LocalTransport
from stenod.net.transport import Sent

LARGE = b"x" * limits.LENT_FRAME_BYTES
FAULT = b"what makes the handler fail"


async def until(is_true: Callable[[], bool]) -> None:
    """Return once it is."""
    with anyio.fail_after(10):
        while not is_true():
            await anyio.lowlevel.checkpoint()


class Served:
    """A socket that is served, and what came to it.

    Attributes:
        messages: what came, in order, and from whom.
        bursts: how many messages had come at the end of each burst.
        links: the connections of those who said something, by what they said first.
        has_room: whether anybody may come.
        cost: how many requests each message is.
        after_burst: called behind each burst.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.has_room = True
        self.cost = 1
        self.after_burst: Callable[[], object] = lambda: None
        self.transport = LocalTransport(lambda: self.has_room)
        self.transport.bind(path)
        self.messages: list[tuple[bytes, list[bytes]]] = []
        self.bursts: list[int] = []
        self.links: dict[bytes, local_connection.LocalConnection | None] = {}

    def take(self, identity: bytes, frames: list[bytes]) -> int:
        """Remember what came."""
        if frames == [FAULT]:
            raise RuntimeError("a fault of ours")
        self.messages.append((identity, frames))
        self.links.setdefault(frames[0], self.transport.link())
        return self.cost

    def end_burst(self) -> None:
        """Remember what had come."""
        self.bursts.append(len(self.messages))
        self.after_burst()

    async def come(self, name: bytes) -> tuple[LocalConnection, bytes]:
        """Have somebody connect and say a name; returns what the socket calls it, too."""
        peer = self.connect()
        await until(lambda: is_connected(peer))
        assert peer.send([name])
        await until(lambda: name in self.links)
        return peer, next(identity for identity, frames in self.messages if frames == [name])

    def connect(self) -> LocalConnection:
        """A connection that has not shaken hands yet."""
        return LocalConnection(f"ipc://{self.path}", str(self.path))

    def say(self, identity: bytes, *frames: bytes, in_flight: InFlightFrames | None = None) -> Sent:
        """Send a message at once."""
        sent = self.transport.send(identity, frames, in_flight or InFlightFrames())
        self.transport.after_sends()
        return sent


def is_connected(peer: LocalConnection) -> bool:
    """Take in what came, and tell whether hands are shaken."""
    return not peer.has_messages and peer._inbound.is_ready


def heard(one: socket.socket) -> bytes:
    """What has come."""
    try:
        return one.recv(4096)
    except BlockingIOError:
        return b""


@asynccontextmanager
async def served(root: Path) -> AsyncGenerator[Served]:
    """A socket that is served in the block."""
    one = Served(root / "stenod.sock")
    with closing(one.transport):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(one.transport.serve, one.take, one.end_burst)
            yield one
            tasks.cancel_scope.cancel()
