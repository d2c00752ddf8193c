"""A transport that serves plain libzmq sockets of a test."""

import struct
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager, closing
from pathlib import Path

import anyio
import zmq

from steno._connect.connection import new_key_pair
from steno_protocol import limits
from steno_protocol.credentials import KeyPair
from stenod.api.peers import InFlightFrames, Sent
from stenod.net.transport import SocketLink, Transport

LARGE = b"x" * limits.TRACKED_FRAME_BYTES
REFUSED = b"no room for "
FAULT = b"a message that makes the handler fail"

GREETING = b"\xff" + bytes(8) + b"\x7f\x03\x00NULL" + bytes(48)
READY_OF_DEALER = b"\x04\x1c\x05READY\x0bSocket-Type\x00\x00\x00\x06DEALER"
"""The first two messages of a client's handshake (ZMTP 3.0, RFC 23 of ZeroMQ)."""


def large_frame(size: int, *, more: bool = True) -> bytes:
    """The head of a ZMTP frame of so many bytes."""
    return struct.pack(">BQ", 0x03 if more else 0x02, size)


async def until(is_true: Callable[[], bool]) -> None:
    """Let other tasks run until a condition is true."""
    with anyio.fail_after(60):
        while not is_true():
            await anyio.lowlevel.checkpoint()


def ignore(*_: object, **__: object) -> None:
    """Drop a log event."""


class Served:
    """A running transport, and the messages of its peers.

    Attributes:
        transport: for local clients, or for the relay of remote ones.
        endpoint: of the socket.
        messages: received, in order, each with the identity of its sender.
        bursts: number of messages received by the end of each burst.
        links: the connections of the peers, by the first frame of their first message.
        keys: their public keys, likewise.
        senders: their names in the log, likewise.
        has_room: whether a new connection may stay.
        counts: number of other connections at each new one.
        cost: number of requests that each message counts as.
        waiting: the identities of the peers with commands that are not answered yet.
    """

    def __init__(self, kind: str, folder: Path) -> None:
        self.has_room = True
        self.counts: list[int] = []
        self.cost = 1
        self.waiting: set[bytes] = set()
        self.own, self.client = KeyPair(*new_key_pair()), KeyPair(*new_key_pair())
        self.is_remote = kind == "remote"
        self.transport = Transport(self._decide_room)
        if self.is_remote:
            made = self.transport.bind_for_relay(folder, self.own, lambda _: "name", ignore)
            self.path = Path(made.path)
            self.endpoint = f"ipc://{self.path}"
        else:
            self.path = folder / "stenod.sock"
            self.transport.bind_ipc(self.path)
            self.endpoint = f"ipc://{self.path}"
        self.messages: list[tuple[bytes, list[bytes]]] = []
        self.bursts: list[int] = []
        self.links: dict[bytes, SocketLink | None] = {}
        self.keys: dict[bytes, str | None] = {}
        self.senders: dict[bytes, str] = {}
        self._context = zmq.Context()
        self._peers: list[zmq.Socket[bytes]] = []

    def _decide_room(self, others: int) -> bool:
        self.counts.append(others)
        return self.has_room

    def take(self, identity: bytes, frames: list[bytes], user: str | None) -> int:
        """Record a message."""
        if frames == [FAULT]:
            raise RuntimeError("a fault of ours")
        self.messages.append((identity, frames))
        self.links.setdefault(frames[0], self.transport.link())
        self.senders.setdefault(frames[0], self.transport.sender())
        self.keys[frames[0]] = user
        return self.cost

    def is_waiting(self, identity: bytes) -> bool:
        """Whether a peer has commands without an answer."""
        return identity in self.waiting

    def refusal(self, identity: bytes, frames: list[bytes]) -> list[bytes]:
        """Return the refusal of a message: its first frame, marked."""
        return [REFUSED + frames[0]]

    def end_burst(self) -> None:
        """Record the end of a burst."""
        self.bursts.append(len(self.messages))

    def connect(self) -> "zmq.Socket[bytes]":
        """Connect a peer; its handshake may not be finished."""
        peer = self._context.socket(zmq.DEALER)
        self._peers.append(peer)
        peer.set(zmq.LINGER, 0)
        peer.set(zmq.RCVTIMEO, 60_000)
        if self.is_remote:
            peer.set(zmq.CURVE_SERVERKEY, self.own.public.encode())
            peer.set(zmq.CURVE_PUBLICKEY, self.client.public.encode())
            peer.set(zmq.CURVE_SECRETKEY, self.client.secret.encode())
        peer.connect(self.endpoint)
        return peer

    async def connect_named(self, name: bytes) -> "tuple[zmq.Socket[bytes], bytes]":
        """Connect a peer and receive its name; returns the peer and its identity."""
        peer = self.connect()
        peer.send(name)
        await until(lambda: name in self.links)
        return peer, next(identity for identity, frames in self.messages if frames == [name])

    def send(
        self, identity: bytes, *frames: bytes, in_flight: InFlightFrames | None = None
    ) -> Sent:
        """Send a message at once."""
        return self.transport.send(identity, frames, in_flight or InFlightFrames())

    def close(self) -> None:
        """Close the peers and the transport."""
        self._context.destroy(linger=0)
        self.transport.close()


@asynccontextmanager
async def served(kind: str, folder: Path) -> AsyncGenerator[Served]:
    """A transport that runs during the block."""
    one = Served(kind, folder)
    with closing(one):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(
                one.transport.serve, one.take, one.refusal, one.end_burst, one.is_waiting
            )
            yield one
            tasks.cancel_scope.cancel()
