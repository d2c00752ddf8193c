"""The daemon's ZeroMQ sockets: one class, an instance for this machine and one for others.

This is the only module of the daemon that imports pyzmq.
"""

import asyncio
import contextlib
import os
import socket
import struct
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Final, cast

import msgspec
import zmq
from zmq.utils import z85

from steno_protocol import limits, paths
from steno_protocol.credentials import KeyPair
from steno_protocol.errors import StorageFailed
from stenod.api.clients import InFlightFrame, InFlightFrames, Sent
from stenod.net import socket_path
from stenod.net.socket_path import SocketPath

Handle = Callable[[bytes, list[bytes], str | None], int]
"""Takes the identity of a peer, the frames of one message and the peer's public key, which is None
on the local socket; returns the number of requests."""

HasRoom = Callable[[int], bool]
"""Whether a new connection may stay, given the number of others on the same socket."""

Admits = Callable[[str], str | None]
"""The name of the client that has a public key; None when the key is not admitted."""

# As plain integers: an enum member costs more, in each call, than the message that is moved.
_NOW: Final = int(zmq.DONTWAIT)
_MORE: Final = int(zmq.DONTWAIT | zmq.SNDMORE)
_POLLIN: Final = int(zmq.POLLIN)

_HANDLE: Final = int(zmq.SRCFD)
_USER: Final = "User-Id"
_ADDRESS: Final = "Peer-Address"
"""Properties of a received frame: the connection's handle, the key of its peer, and the peer's
address, which on a local socket is `:uid:gid:pid`."""

_EVENT: Final = struct.Struct("=Hi")
"""The first frame of a monitor's message: which event, and the connection's handle."""

_MONITOR: Final = "inproc://monitor"
_DOMAIN: Final = b"steno"
_ZAP: Final = "inproc://zeromq.zap.01"
_ZAP_VERSION: Final = b"1.0"


class SocketLink(msgspec.Struct, frozen=True):
    """A connection that libzmq has: its handle, and the inode that tells it from later ones.

    libzmq closes the handle when the connection has ended. Looking at it costs the peer nothing,
    while a message sent to find out would stay in the memory of a peer that reads nothing for days.
    """

    handle: int
    inode: int | None

    @property
    def stands(self) -> bool:
        """See `clients.Link`."""
        return self.inode is not None and _inode_of(self.handle) == self.inode


class Transport:
    """A ROUTER socket: bursts of messages in, replies out, and never a wait for a peer.

    The event loop calls the drain itself: a task that waits for the socket anew after each burst
    would cost two system calls and a wake-up more. That ties this class, alone in the daemon, to
    asyncio. The socket's FD is edge-triggered, and a send consumes edges too: so a burst goes on
    until the socket is empty, and every send is followed by another look at it.

    libzmq accepts connections by itself, and ends the process when it has no handle for one: so
    connections for which there is no room are ended as soon as their event arrives. A connection
    holds a handle until its handshake fails or `HANDSHAKE_MS` is over, so all are counted.

    Args:
        has_room: decides whether a connection that was just accepted may stay.
        on_end: called when a connection has ended.
    """

    def __init__(self, has_room: HasRoom, on_end: Callable[[], None] = lambda: None) -> None:
        self._has_room = has_room
        self._on_end = on_end
        self._connections: set[int] = set()
        self._frame: zmq.Frame | None = None
        self._is_skipping = False
        self._handle: Handle | None = None
        self._end_burst: Callable[[], None] = _nothing
        self._is_look_due = False
        self._is_in_burst = False
        self._failed: asyncio.Future[None] | None = None
        self._path: SocketPath | None = None
        self._zap: ZapHandler | None = None
        self._context = zmq.Context()
        self._socket = self._context.socket(zmq.ROUTER)
        # Without the layer for drafts of the protocol: as expensive, four times a message, as what
        # it stands on.
        self._send: Callable[..., object] = super(zmq.Socket, self._socket).send
        # A poll that does not wait: to ask for the option with the same news costs twice as much,
        # because pyzmq looks the option up first.
        self._arrivals = partial(zmq.zmq_poll, [(self._socket, _POLLIN)], 0)
        # `InFlightFrames` decides which frames are sent without a copy.
        self._socket.copy_threshold = 0
        self._socket.set(zmq.LINGER, 0)
        self._socket.set(zmq.ROUTER_MANDATORY, 1)
        self._socket.set(zmq.SNDHWM, limits.SEND_QUEUE_MESSAGES)
        self._socket.set(zmq.RCVHWM, limits.SEND_QUEUE_MESSAGES)
        self._socket.set(zmq.MAXMSGSIZE, limits.FRAME_BYTES_MAX)
        self._socket.set(zmq.HANDSHAKE_IVL, limits.HANDSHAKE_MS)
        self._socket.set(zmq.BACKLOG, limits.CONNECTIONS_WAITING_MAX)
        self._monitor = self._context.socket(zmq.PAIR)
        # No bound: at one libzmq's thread stops until somebody looks, with a lock that `close` has
        # to have, and a flood of connections would keep a daemon from ending.
        self._monitor.set(zmq.RCVHWM, 0)
        self._socket.monitor(_MONITOR, zmq.EVENT_ACCEPTED | zmq.EVENT_DISCONNECTED)
        self._monitor.connect(_MONITOR)

    def bind_ipc(self, path: Path, listening: int | None = None) -> None:
        """Listen at `path`, for processes of the daemon's user; needs the root's lock.

        Args:
            path: of the socket.
            listening: a handle that listens there already; the service manager keeps the path.

        Raises:
            StorageFailed: something else lies there, or no socket can be made there.
            Unauthorized: another user could put a socket of their own there.
        """
        if listening is None:
            # libzmq removes whatever lies at the path.
            socket_path.prepare(path)
        else:
            self._socket.set(zmq.USE_FD, listening)
        # The folder keeps other users out; the filter does even where somebody opened it to them.
        self._socket.set(zmq.IPC_FILTER_UID, os.getuid())
        try:
            self._socket.bind(f"ipc://{path}")
        except zmq.ZMQError as error:
            raise StorageFailed(
                f"cannot listen at {path}: {error.strerror}; choose another --socket"
            ) from None
        self._path = SocketPath(path, is_lent=listening is not None)

    def bind_tcp(
        self, endpoint: str, own: KeyPair, admits: Admits, log: Callable[..., None]
    ) -> str:
        """Listen at `tcp://address:port`, for clients whose key is admitted.

        Each connection shows a key before its first message, and libzmq asks the ZAP handler
        whether the key is admitted. The domain is enforced, so that nothing passes while no handler
        answers.

        Args:
            endpoint: a port of 0 or `*` lets the system choose one.
            own: the daemon's key.
            admits: decides whose key is admitted.
            log: logs an event with fields.

        Returns:
            The endpoint, with the port that was chosen.

        Raises:
            StorageFailed: the address cannot be had.
        """
        self._zap = ZapHandler(self._context, admits, log)
        options: dict[int, int | bytes] = {
            zmq.ZAP_DOMAIN: _DOMAIN,
            zmq.ZAP_ENFORCE_DOMAIN: 1,
            zmq.CURVE_SERVER: 1,
            zmq.CURVE_PUBLICKEY: own.public.encode(),
            zmq.CURVE_SECRETKEY: own.secret.encode(),
            zmq.HEARTBEAT_IVL: limits.HEARTBEAT_MS,
            zmq.HEARTBEAT_TIMEOUT: limits.CLIENT_SILENCE_MS,
            # Only for an address that is one: a name would then mean another address than before.
            zmq.IPV6: int(paths.is_ipv6(endpoint)),
        }
        for option, value in options.items():
            self._socket.set(option, value)
        try:
            self._socket.bind(endpoint)
        except zmq.ZMQError as error:
            raise StorageFailed(
                f"cannot listen at {endpoint}: {error.strerror}; choose another network.listen"
            ) from None
        return self._socket.get_string(zmq.LAST_ENDPOINT).rstrip("\0")

    @property
    def is_reachable(self) -> bool:
        """False when the path of the local socket was removed or replaced."""
        return self._path is None or self._path.is_reachable

    async def serve(self, handle: Handle, end_burst: Callable[[], None]) -> None:
        """Hand every message to `handle`, burst by burst; `end_burst` follows each burst.

        Runs until it is cancelled, or `handle` raises.
        """
        self._handle, self._end_burst = handle, end_burst
        loop = asyncio.get_running_loop()
        self._failed = loop.create_future()
        watched = {
            self._monitor.fileno(): self._watch_connections,
            self._socket.fileno(): self._take_in,
        }
        if self._zap is not None:
            watched[self._zap.fileno()] = self._zap.answer
        for fd, act in watched.items():
            loop.add_reader(fd, act)
        try:
            for act in watched.values():
                act()
            await self._failed
        finally:
            for fd in watched:
                loop.remove_reader(fd)
            self._handle = None

    def send(self, identity: bytes, frames: Sequence[bytes], in_flight: InFlightFrames) -> Sent:
        """Queue one message for a peer, or drop it; never waits.

        Args:
            identity: of the peer.
            frames: the message.
            in_flight: where frames that are sent without a copy are registered.
        """
        if not (self._is_in_burst or self._is_look_due):
            self._look_soon()
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

    def sender(self) -> str:
        """The sender of the message that is being handled: its key, or `uid:gid:pid`."""
        if self._frame is None:
            return ""
        if self._zap is not None:
            return str(self._frame.get(_USER))
        try:
            return str(self._frame.get(_ADDRESS)).partition(":")[2]
        except zmq.ZMQError:
            return ""

    def link(self) -> SocketLink | None:
        """The connection of the message that is being handled; None if it is unknown."""
        try:
            handle = -1 if self._frame is None else int(self._frame.get(_HANDLE))
        except zmq.ZMQError:
            return None
        return SocketLink(handle, _inode_of(handle)) if handle >= 0 else None

    def close(self) -> None:
        """Stop listening, end the connections, and remove the local socket if it still is ours."""
        if self._path is not None:
            self._path.remove()
        # First, because libzmq's thread stops for ever at an event that no socket takes.
        self._socket.disable_monitor()
        if self._zap is not None:
            self._zap.close()
        self._monitor.close(linger=0)
        self._socket.close(linger=0)
        self._context.term()

    # --- inside ----------------------------------------------------------------------------------

    def _lend(self, frame: bytes) -> InFlightFrame | None:
        """Send a frame without a copy of it; None if nothing was sent, and a copy has to be.

        pyzmq starts a thread for such frames, and the system may have no thread or memory left.
        """
        try:
            return cast("InFlightFrame", self._send(frame, _NOW, False, True))
        except (RuntimeError, MemoryError):
            return None

    def _fail(self, error: Exception) -> None:
        """End `serve`: after half a message, the next peer's message would go to this one."""
        if self._failed is not None and not self._failed.done():
            self._failed.set_exception(error)

    def _watch_connections(self) -> None:
        """Count the connections and end new ones without room, until no event is left."""
        while True:
            try:
                event, _ = self._monitor.recv_multipart(_NOW)
            except zmq.Again:
                return
            what, handle = _EVENT.unpack(event)
            if what == zmq.EVENT_DISCONNECTED:
                self._connections.discard(handle)
                self._on_end()
            elif self._has_room(len(self._connections)):
                self._connections.add(handle)
            else:
                _hang_up(handle)

    def _look_soon(self) -> None:
        """Take in a burst once the tasks that are ready had their turn."""
        self._is_look_due = True
        asyncio.get_running_loop().call_soon(self._look)

    def _look(self) -> None:
        self._is_look_due = False
        if self._arrivals():
            self._take_in()

    def _take_in(self) -> None:
        """Take in one burst, and come back for the rest."""
        handle = self._handle
        if handle is None:
            return
        self._is_in_burst = True
        try:
            self._drain(handle)
            self._end_burst()
            has_more = self._arrivals()
        except Exception as error:
            self._fail(error)
            return
        finally:
            self._is_in_burst = False
        if has_more and not self._is_look_due:
            self._look_soon()

    def _drain(self, handle: Handle) -> None:
        """Take in one burst: all that has arrived, up to a limit."""
        taken = 0
        while taken < limits.BURST_REQUESTS_MAX:
            # The exception for an empty socket costs as much as three polls; most bursts are of
            # one message, or of many.
            if taken == 1 and not self._arrivals():
                return
            try:
                if self._is_skipping:
                    self._skip()
                    taken += limits.BURST_REQUESTS_MAX
                    continue
                identity, frames = self._receive()
            except zmq.Again:
                return
            user = None if self._zap is None else self.sender()
            taken += handle(identity, frames, user)

    def _receive(self) -> tuple[bytes, list[bytes]]:
        """The next message: the peer's identity and its frames, as many as a message may have.

        Raises:
            zmq.Again: there is none.
        """
        receive = self._socket.recv
        identity = receive(_NOW)
        # A frame knows whether more follow; asking the socket costs ten times as much. An identity
        # is always followed by a frame.
        self._frame = frame = receive(_NOW, False)
        frames = [frame.bytes]
        while frame.more and len(frames) < limits.MESSAGE_FRAMES_MAX:
            frame = receive(_NOW, False)
            frames.append(frame.bytes)
        self._is_skipping = frame.more
        return identity, frames

    def _skip(self) -> None:
        """Drop the frames that a message has too many, a part of them in one burst."""
        for _ in range(limits.MESSAGE_FRAMES_MAX):
            if not self._socket.recv(_NOW, False).more:
                self._is_skipping = False
                return


class ZapHandler:
    """Answers libzmq's questions whether a connection is admitted (RFC 27 of ZeroMQ).

    Args:
        context: of the socket whose connections are decided.
        admits: decides whose key is admitted.
        log: logs an event with fields.
    """

    def __init__(
        self,
        context: "zmq.Context[zmq.Socket[bytes]]",
        admits: Admits,
        log: Callable[..., None],
    ) -> None:
        self._admits = admits
        self._log = log
        self._socket = context.socket(zmq.ROUTER)
        self._socket.set(zmq.LINGER, 0)
        self._socket.bind(_ZAP)

    def fileno(self) -> int:
        """Readable, edge-triggered, when a question may have come."""
        return self._socket.fileno()

    def answer(self) -> None:
        """Answer every question that is there."""
        while True:
            try:
                asker, empty, *question = self._socket.recv_multipart(_NOW)
            except zmq.Again:
                return
            self._socket.send_multipart([asker, empty, *self._verdict(question)], _NOW)

    def close(self) -> None:
        """Answer nothing any more: the domain is enforced, so no connection passes."""
        self._socket.close(linger=0)

    def _verdict(self, question: list[bytes]) -> list[bytes]:
        match question:
            case [version, request, domain, address, _, mechanism, key] if (
                version == _ZAP_VERSION and domain == _DOMAIN and mechanism == b"CURVE"
            ):
                public = z85.encode(key).decode()
                name = self._admits(public)
                peer = {"address": address.decode(errors="replace"), "key": public}
                if name is not None:
                    self._log("admitted", name=name, **peer)
                    return [_ZAP_VERSION, request, b"200", b"OK", public.encode(), b""]
                self._log("not_admitted", **peer)
                return [_ZAP_VERSION, request, b"400", b"not admitted", b"", b""]
            case [_, request, *_]:
                return [_ZAP_VERSION, request, b"400", b"not admitted", b"", b""]
            case _:
                return [_ZAP_VERSION, b"", b"500", b"not a question", b"", b""]


def _nothing() -> None:
    """Before `serve`, nothing is queued."""


def _inode_of(handle: int) -> int | None:
    """The inode of an open handle, None if it is closed."""
    try:
        return os.fstat(handle).st_ino
    except OSError:
        return None


def _hang_up(handle: int) -> None:
    """End a connection whose handle is libzmq's; libzmq closes the handle then."""
    # It may have ended by itself, and its number may be another's; only one that came later.
    with contextlib.suppress(OSError):
        connection = socket.socket(fileno=handle)
        try:
            connection.shutdown(socket.SHUT_RDWR)
        finally:
            connection.detach()
