"""The daemon's socket for other machines: TCP, CURVE, and nobody in whose key is not listed."""

import asyncio
import contextlib
import os
import socket
import struct
from collections.abc import Callable, Sequence
from typing import Final, cast

import msgspec
import zmq
from zmq.utils import z85

from steno_protocol import limits, paths
from steno_protocol.credentials import KeyPair
from steno_protocol.errors import StorageFailed
from stenod.api.clients import InFlightFrame, InFlightFrames
from stenod.net.transport import Handle, Sent

# As plain integers: an enum member costs more, in each call, than the message that is moved.
_NOW: Final = int(zmq.DONTWAIT)
_MORE: Final = int(zmq.DONTWAIT | zmq.SNDMORE)
_POLLIN: Final = int(zmq.POLLIN)

_HANDLE: Final = int(zmq.SRCFD)
"""What a message tells of the connection that it came by."""

_MONITORED: Final = struct.Struct("=Hi")
"""The first frame of a monitor's message: which event, and the connection's handle."""

_DOOR_NEWS: Final = "inproc://door"
_DOMAIN: Final = b"steno"
_ZAP: Final = "inproc://zeromq.zap.01"
_ZAP_VERSION: Final = b"1.0"
_USER: Final = "User-Id"

HasRoomBeside = Callable[[int], bool]
"""Tells whether a connection from another machine may stay, beside so many others."""

Admits = Callable[[str], str | None]
"""The name of the client that has a public key, None when it is not let in."""


class SocketLink(msgspec.Struct, frozen=True):
    """A connection that libzmq has: its handle, and the inode that tells it from later ones.

    libzmq closes the handle when the connection has ended. To look at that costs the other end
    nothing, while each message by which one could learn it would lie in the memory of a client that
    takes none for days.
    """

    handle: int
    inode: int | None

    @property
    def stands(self) -> bool:
        """See `peers.Link`."""
        return self.inode is not None and _inode_of(self.handle) == self.inode


class RemoteTransport:
    """A ROUTER socket that is bound to a TCP address.

    Each connection shows a key before it may say anything, and libzmq asks the handler here (ZAP,
    RFC 27 of ZeroMQ) whether to let it in. Without a handler's yes nobody comes in: the domain is
    enforced, so that a handler which died lets nobody pass.

    Whoever reaches the address may connect, and holds a handle until the handshake fails or is not
    ended in time: so connections are counted, and the room for them is a part of the daemon's.
    libzmq takes them in by itself, and ends the process when it has no handle for one: so those for
    which there is no room are ended as soon as they are seen.

    The socket's FD is edge-triggered, and sending takes edges away too: so it is drained until it
    is empty, and looked at again after every burst of sends.

    Args:
        own: the daemon's key.
        admits: tells whose key is let in.
        has_room: tells whether a connection that was just taken in may stay.
        tell: tells the operator something, as an event with fields.

    Attributes:
        user: the public key of whoever sent the message that is being handled.
    """

    def __init__(
        self, own: KeyPair, admits: Admits, has_room: HasRoomBeside, tell: Callable[..., None]
    ) -> None:
        self.user = ""
        self._admits = admits
        self._has_room = has_room
        self._tell = tell
        self._connections: set[int] = set()
        self._frame: zmq.Frame | None = None
        self._handle: Handle | None = None
        self._end_burst: Callable[[], None] = _nothing
        self._is_look_due = False
        self._failed: asyncio.Future[None] | None = None
        self._context = zmq.Context()
        self._socket = self._context.socket(zmq.ROUTER)
        # Without the layer for drafts of the protocol: as expensive, four times a message, as what
        # it stands on.
        self._send: Callable[..., object] = super(zmq.Socket, self._socket).send
        # Looked at by a poll that does not wait: to ask for the option with the same news costs
        # twice as much, because pyzmq looks the option up first.
        self._arrivals = [(self._socket, _POLLIN)]
        self._accepted = self._context.socket(zmq.PAIR)
        self._zap = self._context.socket(zmq.ROUTER)
        self._set_up(own)

    def _set_up(self, own: KeyPair) -> None:
        # What is to be lent is for the loans to say.
        self._socket.copy_threshold = 0
        self._socket.set(zmq.LINGER, 0)
        self._socket.set(zmq.ROUTER_MANDATORY, 1)
        self._socket.set(zmq.SNDHWM, limits.SEND_QUEUE_MESSAGES)
        self._socket.set(zmq.RCVHWM, limits.SEND_QUEUE_MESSAGES)
        self._socket.set(zmq.MAXMSGSIZE, limits.FRAME_BYTES_MAX)
        # No bound: at one libzmq's thread stops until somebody looks, with a lock that `close` has
        # to have, and a flood of connections would keep a daemon from ending.
        self._accepted.set(zmq.RCVHWM, 0)
        self._socket.monitor(_DOOR_NEWS, zmq.EVENT_ACCEPTED | zmq.EVENT_DISCONNECTED)
        self._accepted.connect(_DOOR_NEWS)
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
        self._socket.set(zmq.IPV6, int(paths.is_ipv6(endpoint)))
        try:
            self._socket.bind(endpoint)
        except zmq.ZMQError as error:
            raise StorageFailed(
                f"cannot listen at {endpoint}: {error.strerror}; choose another network.listen"
            ) from None
        return self._socket.get_string(zmq.LAST_ENDPOINT).rstrip("\0")

    async def serve(self, handle: Handle, end_burst: Callable[[], None]) -> None:
        """See `Transport`; and answer whether to let somebody in."""
        self._handle, self._end_burst = handle, end_burst
        loop = asyncio.get_running_loop()
        self._failed = loop.create_future()
        watched = {
            self._zap.fileno(): self._answer_zap,
            self._accepted.fileno(): self._keep_door,
            self._socket.fileno(): self._take_in,
        }
        for fd, act in watched.items():
            loop.add_reader(fd, act)
        try:
            self._answer_zap()
            self._keep_door()
            self.look_soon()
            await self._failed
        finally:
            for fd in watched:
                loop.remove_reader(fd)
            self._handle = None

    def send(self, identity: bytes, frames: Sequence[bytes], in_flight: InFlightFrames) -> Sent:
        """See `Transport`."""
        send = self._send
        *firsts, last = frames
        try:
            send(identity, _MORE)
            for frame in firsts:
                send(frame, _MORE)
            if in_flight.is_lent(len(last)) and (in_flight_frame := self._lend(last)) is not None:
                in_flight.add(in_flight_frame, len(last))
            else:
                send(last, _NOW)
                in_flight.copied(len(last))
        except zmq.Again:
            return Sent.FULL
        except zmq.ZMQError as error:
            if error.errno == zmq.EHOSTUNREACH:
                return Sent.GONE
            self._fail(error)
            raise
        except Exception as error:
            self._fail(error)
            raise
        return Sent.OK

    def link(self) -> SocketLink | None:
        """See `Transport`."""
        try:
            handle = -1 if self._frame is None else int(self._frame.get(_HANDLE))
        except zmq.ZMQError:
            return None
        return SocketLink(handle, _inode_of(handle)) if handle >= 0 else None

    def after_sends(self) -> None:
        """Look at the socket again: sends may have swallowed the edge of an arrival."""
        if zmq.zmq_poll(self._arrivals, 0):
            self.look_soon()

    def look_soon(self) -> None:
        """See `Transport`."""
        if not self._is_look_due:
            self._is_look_due = True
            asyncio.get_running_loop().call_soon(self._look)

    def close(self) -> None:
        """Stop listening."""
        # First, because libzmq's thread stops for ever at an event that it can give to nobody.
        self._socket.disable_monitor()
        for each in (self._zap, self._accepted, self._socket):
            each.close(linger=0)
        self._context.term()

    # --- inside ----------------------------------------------------------------------------------

    def _lend(self, frame: bytes) -> InFlightFrame | None:
        """Send a frame without a copy of it; None if nothing was sent, and a copy has to be.

        pyzmq starts a thread for what is lent, and the system may have none left, or no memory.
        """
        try:
            return cast("InFlightFrame", self._send(frame, _NOW, False, True))
        except (RuntimeError, MemoryError):
            return None

    def _fail(self, error: Exception) -> None:
        """End `serve`: behind half a message, what is for the next peer would go to this one."""
        if self._failed is not None and not self._failed.done():
            self._failed.set_exception(error)

    def _keep_door(self) -> None:
        """End the new connections that may not stay; the FD tells of new ones once none is left."""
        while True:
            try:
                event, _ = self._accepted.recv_multipart(_NOW)
            except zmq.Again:
                return
            what, handle = _MONITORED.unpack(event)
            if what == zmq.EVENT_DISCONNECTED:
                self._connections.discard(handle)
            elif self._has_room(len(self._connections)):
                self._connections.add(handle)
            else:
                _hang_up(handle)

    def _look(self) -> None:
        self._is_look_due = False
        self._take_in()

    def _take_in(self) -> None:
        """Take in one burst, and come back for the rest."""
        handle = self._handle
        if handle is None:
            return
        try:
            is_empty = self._drain(handle)
            self._end_burst()
        except Exception as error:
            self._fail(error)
            return
        if not is_empty:
            self.look_soon()

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


def _nothing() -> None:
    """Before anybody listens, nothing is queued."""


def _inode_of(handle: int) -> int | None:
    """The inode of an open handle, None if it is closed."""
    try:
        return os.fstat(handle).st_ino
    except OSError:
        return None


def _hang_up(handle: int) -> None:
    """End a connection whose handle is libzmq's, which closes it then."""
    # It may have ended by itself, and its number may be another's; only one that came later.
    with contextlib.suppress(OSError):
        connection = socket.socket(fileno=handle)
        try:
            connection.shutdown(socket.SHUT_RDWR)
        finally:
            connection.detach()
