"""The daemon's socket for other machines: TCP, CURVE, and nobody in whose key is not listed."""

import asyncio
from collections.abc import Callable
from typing import Final

import zmq
from zmq.utils import z85

from steno_protocol import limits, places
from steno_protocol.credentials import KeyPair
from steno_protocol.errors import StorageFailed
from stenod.transport import Handle, Transport

_NOW: Final = int(zmq.DONTWAIT)
_DOMAIN: Final = b"steno"
_ZAP: Final = "inproc://zeromq.zap.01"
_ZAP_VERSION: Final = b"1.0"
_USER: Final = "User-Id"

HasRoomBeside = Callable[[int], bool]
"""Tells whether a connection from another machine may stay, beside so many others."""

Admits = Callable[[str], str | None]
"""The name of the client that has a public key, None when it is not let in."""


class RemoteTransport(Transport):
    """A ROUTER socket that is bound to a TCP address.

    Each connection shows a key before it may say anything, and libzmq asks the handler here (ZAP,
    RFC 27 of ZeroMQ) whether to let it in. Without a handler's yes nobody comes in: the domain is
    enforced, so that a handler which died lets nobody pass.

    Whoever reaches the address may connect, and holds a handle until the handshake fails or is not
    ended in time: so connections are counted, and the room for them is a part of the daemon's.

    Args:
        own: the daemon's key.
        admits: tells whose key is let in.
        has_room: tells whether a connection that was just taken in may stay.
        tell: tells the operator something, as an event with fields.

    Attributes:
        user: the public key of whoever sent the message that is being handled.
    """

    _DOOR = zmq.EVENT_ACCEPTED | zmq.EVENT_DISCONNECTED

    def __init__(
        self, own: KeyPair, admits: Admits, has_room: HasRoomBeside, tell: Callable[..., None]
    ) -> None:
        super().__init__(lambda: has_room(len(self._connections)))
        self._connections: set[int] = set()
        self.user = ""
        self._admits = admits
        self._tell = tell
        self._zap = self._context.socket(zmq.ROUTER)
        self._zap.set(zmq.LINGER, 0)
        self._zap.bind(_ZAP)
        self._socket.set(zmq.ZAP_DOMAIN, _DOMAIN)
        self._socket.set(zmq.ZAP_ENFORCE_DOMAIN, 1)
        self._socket.set(zmq.CURVE_SERVER, 1)
        self._socket.set(zmq.CURVE_PUBLICKEY, own.public.encode())
        self._socket.set(zmq.CURVE_SECRETKEY, own.secret.encode())
        self._socket.set(zmq.HANDSHAKE_IVL, limits.HANDSHAKE_MS)
        self._socket.set(zmq.HEARTBEAT_IVL, limits.HEARTBEAT_MS)
        self._socket.set(zmq.HEARTBEAT_TIMEOUT, limits.HEARTBEAT_TIMEOUT_MS)

    def listen(self, endpoint: str) -> str:
        """Listen at `tcp://address:port`; returns the endpoint, its port chosen if it was 0.

        Raises:
            StorageFailed: the address cannot be had.
        """
        # Only for an address that is one: a name would then mean another address than before.
        self._socket.set(zmq.IPV6, int(places.is_ipv6(endpoint)))
        try:
            self._socket.bind(endpoint)
        except zmq.ZMQError as error:
            raise StorageFailed(
                f"cannot listen at {endpoint}: {error.strerror}; choose another network.listen"
            ) from None
        return self._socket.get_string(zmq.LAST_ENDPOINT).rstrip("\0")

    async def serve(self, handle: Handle, end_burst: Callable[[], None]) -> None:
        """As `Transport.serve`, and answer whether to let somebody in."""
        loop = asyncio.get_running_loop()
        loop.add_reader(self._zap.fileno(), self._answer_zap)
        try:
            self._answer_zap()
            await super().serve(handle, end_burst)
        finally:
            loop.remove_reader(self._zap.fileno())

    def close(self) -> None:
        """Stop listening."""
        self._zap.close(linger=0)
        super().close()

    def _may_stay(self, what: int, handle: int) -> bool:
        if what == zmq.EVENT_DISCONNECTED:
            self._connections.discard(handle)
            return True
        if super()._may_stay(what, handle):
            self._connections.add(handle)
            return True
        return False

    def _drain(self, handle: Handle) -> bool:
        """Take in one burst; True when nothing is left."""
        taken = 0
        while taken < limits.BURST_REQUESTS_MAX:
            try:
                identity, *frames = self._socket.recv_multipart(_NOW, copy=False)
            except zmq.Again:
                return True
            if frames:
                self._frame = frames[-1]
                self.user = str(self._frame.get(_USER))
                taken += handle(identity.bytes, [frame.bytes for frame in frames])
        return False

    def _answer_zap(self) -> None:
        """Answer every question that is there; the FD tells of new ones only when none is left."""
        while True:
            try:
                asker, empty, *question = self._zap.recv_multipart(_NOW)
            except zmq.Again:
                return
            self._zap.send_multipart([asker, empty, *self._verdict(question)], _NOW)

    def _verdict(self, question: list[bytes]) -> list[bytes]:
        match question:
            case [version, request, domain, address, _, mechanism, key] if (
                version == _ZAP_VERSION and domain == _DOMAIN and mechanism == b"CURVE"
            ):
                public = z85.encode(key).decode()
                name = self._admits(public)
                who = {"address": address.decode(errors="replace"), "key": public}
                if name is not None:
                    self._tell("admitted", name=name, **who)
                    return [_ZAP_VERSION, request, b"200", b"OK", public.encode(), b""]
                self._tell("not_admitted", **who)
                return [_ZAP_VERSION, request, b"400", b"not let in", b"", b""]
            case [_, request, *_]:
                return [_ZAP_VERSION, request, b"400", b"not let in", b"", b""]
            case _:
                return [_ZAP_VERSION, b"", b"500", b"no question", b"", b""]
