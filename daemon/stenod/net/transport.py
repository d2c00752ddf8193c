"""The daemon's ZeroMQ sockets, for this machine and for other machines.

This is the only module of the daemon that imports pyzmq. One instance of `Transport` serves the
local socket, another one the network.
"""

import asyncio
import contextlib
import errno
import os
import select
import socket
import struct
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Final, cast

import msgspec
import zmq
from zmq.utils import z85

import steno_system as system
from steno_protocol import limits
from steno_protocol.credentials import KeyPair
from steno_protocol.errors import StorageFailed
from steno_system.relay import RelaySocket
from stenod.api.peers import InFlightFrame, InFlightFrames, Sent
from stenod.net import socket_path
from stenod.net.socket_path import SocketPath
from stenod.net.turns import Turns

Handle = Callable[[bytes, list[bytes], str | None], int]
"""Handles one message, given the identity of its peer, its frames and the peer's public key (None
on the local socket); returns the number of requests, 0 for a part of a message that has no answer
of its own."""

Refusal = Callable[[bytes, list[bytes]], Sequence[bytes]]
"""Returns the message that refuses a message, given the identity of its peer and its frames, the
last one without its bytes; no frames if none is possible."""

IsWaiting = Callable[[bytes], bool]
"""Returns whether the peer with an identity has commands that are not answered yet."""

HasRoom = Callable[[int], bool]
"""Returns whether a new connection may stay, given the number of others on the same socket."""

Admits = Callable[[str], str | None]
"""Returns the name of the client that has a public key; None when the key is not admitted."""

# Plain integers: converting an enum member costs more, in each call, than moving the message.
_NO_WAIT: Final = int(zmq.DONTWAIT)
_MORE: Final = int(zmq.DONTWAIT | zmq.SNDMORE)
_POLLIN: Final = int(zmq.POLLIN)

_FD_PROPERTY: Final = int(zmq.SRCFD)
_USER_PROPERTY: Final = "User-Id"
_ADDRESS_PROPERTY: Final = "Peer-Address"
"""Properties of a received frame: the connection's file descriptor, the peer's key, and the peer's
address, which on a local socket is `:uid:gid:pid`."""

_EVENT: Final = struct.Struct("=Hi")
"""The first frame of a monitor's message: the event, and the connection's file descriptor."""

_MONITOR: Final = "inproc://monitor"
_DOMAIN: Final = b"steno"
_ZAP: Final = "inproc://zeromq.zap.01"
_ZAP_VERSION: Final = b"1.0"


class SocketLink(msgspec.Struct, frozen=True):
    """A connection of libzmq.

    libzmq closes the file descriptor when the connection has ended. Checking the descriptor costs
    the peer nothing, while a probing message would fill the queue of a peer that does not read.

    Attributes:
        fd: the connection's file descriptor, which libzmq owns.
        inode: the socket's inode, which differs from that of a later connection with the same
            descriptor.
    """

    fd: int
    inode: int | None

    @property
    def is_open(self) -> bool:
        """See `peers.Link`."""
        return self.inode is not None and _inode_of(self.fd) == self.inode


class Transport:
    """A ROUTER socket that receives messages in bursts and never waits for a peer.

    The event loop calls `_handle_burst` as the reader of the socket: a task that waits for the
    socket after each burst would cost two more system calls and one more wake-up. This class is
    therefore the only one in the daemon that needs asyncio. The socket's file descriptor is
    edge-triggered, and a send consumes edges too: so a burst continues until the socket is empty,
    and the socket is polled once more after every send.

    libzmq accepts connections by itself, and aborts the process when it has no file descriptor left
    for one: so a connection without room is shut down as soon as its event arrives. A connection
    uses a descriptor until its handshake fails or `HANDSHAKE_MS` have passed, so every accepted
    connection is counted.

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
        self._turns: Turns[zmq.Frame] = Turns()
        self._turn_timer: asyncio.TimerHandle | None = None
        self._handle: Handle | None = None
        self._refusal: Refusal = lambda _, __: ()
        self._end_burst: Callable[[], None] = lambda: None
        self._is_waiting: IsWaiting = lambda _: False
        self._is_burst_scheduled = False
        self._is_in_burst = False
        self._has_news = False
        self._failed: asyncio.Future[None] | None = None
        self._is_half_sent = False
        self._path: SocketPath | None = None
        self._relay_socket: RelaySocket | None = None
        self._zap: ZapHandler | None = None
        self._context = zmq.Context()
        self._socket = self._context.socket(zmq.ROUTER)
        # `zmq.Socket.send` only adds the options of draft socket types, and doubles the cost of
        # each of the four calls per message.
        self._send: Callable[..., object] = super(zmq.Socket, self._socket).send
        # A poll without a wait: reading the option EVENTS costs twice as much, because pyzmq looks
        # the option up first.
        self._has_input = partial(zmq.zmq_poll, [(self._socket, _POLLIN)], 0)
        # `InFlightFrames` decides which frames are sent without a copy.
        self._socket.copy_threshold = 0
        self._socket.set(zmq.LINGER, 0)
        self._socket.set(zmq.ROUTER_MANDATORY, 1)
        self._socket.set(zmq.SNDHWM, limits.SEND_QUEUE_MESSAGES)
        self._socket.set(zmq.RCVHWM, limits.RECEIVE_QUEUE_MESSAGES)
        self._socket.set(zmq.MAXMSGSIZE, limits.FRAME_BYTES_MAX)
        self._socket.set(zmq.HANDSHAKE_IVL, limits.HANDSHAKE_MS)
        self._socket.set(zmq.BACKLOG, limits.CONNECTIONS_WAITING_MAX)
        self._poll_news = select.poll()
        self._poll_news.register(self._socket.fileno(), select.POLLIN)
        self._monitor = self._context.socket(zmq.PAIR)
        # No bound: at a bound libzmq's thread blocks until an event is read, while it holds a lock
        # that `close` needs, and a flood of connections would keep the daemon from ending.
        self._monitor.set(zmq.RCVHWM, 0)
        self._socket.monitor(_MONITOR, zmq.EVENT_ACCEPTED | zmq.EVENT_DISCONNECTED)
        self._monitor.connect(_MONITOR)

    def bind_ipc(self, path: Path, inherited_fd: int | None = None) -> None:
        """Listen at `path`, for processes of the daemon's user; the caller holds the root's lock.

        Args:
            path: the socket's path.
            inherited_fd: a file descriptor that already listens there; the service manager owns the
                path then.

        Raises:
            StorageFailed: the path exists and is not a socket of this user, or cannot be bound.
            Unauthorized: another user could create a socket at the path.
        """
        if inherited_fd is None:
            # Checked first, because libzmq removes any file at the path.
            socket_path.prepare(path)
        else:
            self._socket.set(zmq.USE_FD, inherited_fd)
        # The folder keeps other users out; the filter does so even if its mode was changed.
        if system.filters_uid:
            self._socket.set(zmq.IPC_FILTER_UID, os.getuid())
        try:
            self._socket.bind(f"ipc://{path}")
        except zmq.ZMQError as error:
            raise StorageFailed(
                f"cannot listen at {path}: {error.strerror}; choose another --socket"
            ) from None
        self._path = SocketPath(path, is_inherited=inherited_fd is not None)

    def bind_for_relay(
        self, folder: Path, own: KeyPair, admits: Admits, log: Callable[..., None]
    ) -> RelaySocket:
        """Listen for the relay's connections from other machines, at a socket for it alone.

        Each connection presents a key before its first message, and libzmq asks the ZAP handler
        whether the key is admitted. The domain is enforced, so that no connection passes while no
        handler answers.

        Args:
            folder: a private folder that has the socket's name for a moment.
            own: the daemon's key pair.
            admits: returns the name of the client with a key; None if the key is not admitted.
            log: logs an event with fields.

        Returns:
            The socket, and how the relay connects to it; closed by `close`.

        Raises:
            StorageFailed: the socket cannot be created.
        """
        self._zap = ZapHandler(self._context, admits, log)
        try:
            made = system.relay_socket(folder, limits.CONNECTIONS_WAITING_MAX)
        except OSError as error:
            raise StorageFailed(f"cannot create a socket in {folder}: {error}") from None
        options: dict[int, int | bytes] = {
            zmq.ZAP_DOMAIN: _DOMAIN,
            zmq.ZAP_ENFORCE_DOMAIN: 1,
            zmq.CURVE_SERVER: 1,
            zmq.CURVE_PUBLICKEY: own.public.encode(),
            zmq.CURVE_SECRETKEY: own.secret.encode(),
            zmq.HEARTBEAT_IVL: limits.HEARTBEAT_MS,
            zmq.HEARTBEAT_TIMEOUT: limits.CLIENT_SILENCE_MS,
            zmq.USE_FD: made.listening,
        }
        for option, value in options.items():
            self._socket.set(option, value)
        self._socket.bind(f"ipc://{made.path}")
        self._relay_socket = made
        return made

    @property
    def connection_count(self) -> int:
        """The present connections, those that are not admitted yet included."""
        return len(self._connections)

    @property
    def is_reachable(self) -> bool:
        """False when the path of the local socket was removed or replaced."""
        return self._path is None or self._path.is_reachable

    async def serve(
        self,
        handle: Handle,
        refusal: Refusal,
        end_burst: Callable[[], None],
        is_waiting: IsWaiting,
    ) -> None:
        """Call `handle` with every message, and `end_burst` after each burst.

        Runs until it is cancelled, or until `handle` raises.

        Args:
            handle: handles one message.
            refusal: returns the refusal of a message.
            end_burst: commits the requests of a burst.
            is_waiting: returns whether a peer has commands without an answer.
        """
        self._handle, self._refusal, self._end_burst = handle, refusal, end_burst
        self._is_waiting = is_waiting
        loop = asyncio.get_running_loop()
        self._failed = loop.create_future()
        watched = {
            self._monitor.fileno(): self._watch_connections,
            self._socket.fileno(): self._handle_burst,
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
            if self._turn_timer is not None:
                self._turn_timer.cancel()
            for fd in watched:
                loop.remove_reader(fd)
            self._handle = None

    def send(self, identity: bytes, frames: Sequence[bytes], in_flight: InFlightFrames) -> Sent:
        """Queue one message for a peer, or drop it; never waits.

        Args:
            identity: the peer's identity.
            frames: the message.
            in_flight: counts the message's last frame.

        Returns:
            Whether the message was queued, and if not, why.
        """
        if identity == self._turns.owner and not self._is_waiting(identity):
            self._end_turn()
        if self._turns.until_s or not (self._is_in_burst or self._is_burst_scheduled):
            self._look_soon()
        if self._is_half_sent:
            return Sent.GONE
        send = self._send
        *firsts, last = frames
        try:
            send(identity, _MORE)
            for first in firsts:
                send(first, _MORE)
            if in_flight.is_tracked(len(last)) and (frame := self._send_tracked(last)) is not None:
                in_flight.add_tracked(frame, len(last))
            else:
                send(last, _NO_WAIT)
                in_flight.add_copied(len(last))
        except zmq.Again:
            return Sent.FULL
        except zmq.ZMQError as error:
            if error.errno == zmq.EHOSTUNREACH:
                return Sent.GONE
            self._break(error)
            raise
        except Exception as error:
            self._break(error)
            raise
        return Sent.OK

    def sender(self) -> str:
        """Returns the sender of the message that is being handled: its key, or `uid:gid:pid`."""
        if self._frame is None:
            return ""
        if self._zap is not None:
            return str(self._frame.get(_USER_PROPERTY))
        try:
            return str(self._frame.get(_ADDRESS_PROPERTY)).partition(":")[2]
        except zmq.ZMQError:
            return ""

    def link(self) -> SocketLink | None:
        """Returns the connection of the message that is being handled; None if unknown.

        If there was no room for the connection, it is shut down on return, so that no answer to its
        first message leaves: libzmq reports an accepted connection before its messages.
        """
        self._watch_connections()
        try:
            fd = -1 if self._frame is None else int(self._frame.get(_FD_PROPERTY))
        except zmq.ZMQError:
            return None
        return SocketLink(fd, _inode_of(fd)) if fd >= 0 else None

    def close(self) -> None:
        """Stop listening, end the connections, and remove the path of the local socket."""
        if self._path is not None:
            self._path.remove()
        # First, because libzmq's thread would block for ever on an event that no socket reads.
        self._socket.disable_monitor()
        if self._zap is not None:
            self._zap.close()
        self._monitor.close(linger=0)
        self._socket.close(linger=0)
        self._context.term()
        if self._relay_socket is not None:
            self._relay_socket.close()

    # --- inside ----------------------------------------------------------------------------------

    def _send_tracked(self, frame: bytes) -> InFlightFrame | None:
        """Send a frame without a copy; returns None if nothing was sent and a copy must be.

        pyzmq starts a thread with sockets for such frames, and the system may have no thread,
        memory or file handle left.
        """
        try:
            return cast("InFlightFrame", self._send(frame, _NO_WAIT, False, True))
        except (RuntimeError, MemoryError):
            return None
        except zmq.ZMQError as error:
            if error.errno not in (errno.EMFILE, errno.ENFILE):
                raise
            return None

    def _break(self, error: Exception) -> None:
        """Send nothing more: the rest of a half message would be the next peer's message."""
        self._is_half_sent = True
        self._fail(error)

    def _fail(self, error: Exception) -> None:
        """End `serve`."""
        if self._failed is not None and not self._failed.done():
            self._failed.set_exception(error)

    def _watch_connections(self) -> None:
        """Read all monitor events: count the connections, and shut down those without room."""
        while True:
            try:
                message, _ = self._monitor.recv_multipart(_NO_WAIT)
            except zmq.Again:
                return
            event, fd = _EVENT.unpack(message)
            if event == zmq.EVENT_DISCONNECTED:
                self._connections.discard(fd)
                self._on_end()
            elif self._has_room(len(self._connections)):
                self._connections.add(fd)
            else:
                _shut_down(fd)

    def _look_soon(self) -> None:
        """Have the messages received whose signal the next call of `send` may consume.

        While heavy peers wait, the socket always has input, and only the signal shows whether
        another peer has sent something.
        """
        if self._turns.until_s:
            if not self._poll_news.poll(0):
                return
            self._has_news = True
        if not (self._is_in_burst or self._is_burst_scheduled):
            self._schedule_burst()

    def _schedule_burst(self) -> None:
        """Poll the socket after the tasks that are ready now have run."""
        self._is_burst_scheduled = True
        asyncio.get_running_loop().call_soon(self._run_scheduled_burst)

    def _run_scheduled_burst(self) -> None:
        self._is_burst_scheduled = False
        if self._turns.held or self._has_input():
            self._handle_burst()

    def _handle_burst(self) -> None:
        """Handle one burst, and schedule the next one if messages are left."""
        handle = self._handle
        if handle is None:
            return
        self._is_in_burst, self._has_news = True, False
        began_s = time.monotonic()
        is_waiting = self._turns.until_s > 0
        try:
            if self._is_skipping:
                self._skip_frames()
            costs: dict[bytes, int] = {}
            if is_waiting or self._turns.used:
                # First, because a commit of a heavy peer may have taken so long that the message of
                # a light one, which shows that they share the daemon, waits behind its next one.
                self._handle_light_messages(handle, began_s, costs)
            if not is_waiting:
                self._handle_messages(handle, began_s, costs)
            self._end_burst()
            self._charge(costs, began_s)
            if self._turns.until_s:
                has_more = self._has_news or not is_waiting
                self._wait_for_turn()
            else:
                has_more = bool(self._turns.held or self._has_input())
        except Exception as error:
            self._fail(error)
            return
        finally:
            self._is_in_burst = False
        if has_more and not self._is_burst_scheduled:
            self._schedule_burst()

    def _handle_messages(self, handle: Handle, began_s: float, costs: dict[bytes, int]) -> None:
        """Handle the messages that wait for a turn, then those that have arrived.

        Args:
            handle: handles one message.
            began_s: when the burst began.
            costs: gets the requests of each peer, about `BURST_REQUESTS_MAX` together; records
                count, too.
        """
        turns = self._turns
        requests = sum(costs.values())
        while requests < limits.BURST_REQUESTS_MAX:
            if turns.held:
                identity, frames = turns.take()
            # The exception for an empty socket costs as much as three polls; most bursts have
            # one message, or many.
            elif requests == 1 and not self._has_input():
                break
            elif (received := self._receive()) is not None:
                identity, frames = received
            else:
                break
            is_turn = bool(turns.used) and turns.is_turn(identity, began_s)
            cost = self._handle_message(handle, identity, frames, is_turn=is_turn)
            requests += cost
            costs[identity] = costs.get(identity, 0) + cost
            if is_turn and time.monotonic() - began_s > limits.TURN_BEGIN_S:
                break

    def _handle_light_messages(self, handle: Handle, now: float, costs: dict[bytes, int]) -> None:
        """Handle the messages of light peers, and hold those of heavy ones; see above."""
        # Takes the signal back, which would call this again and again.
        self._has_input()
        turns = self._turns
        requests = 0
        # libzmq hands out one message of each peer in turn: once a heavy peer comes again, it has
        # looked for messages of all others, and signals their next ones.
        seen: set[bytes] = set()
        while requests < limits.BURST_REQUESTS_MAX:
            received = self._receive()
            if received is None:
                # libzmq signals the next message, unless frames of the last one are to be dropped.
                self._has_news = self._is_skipping
                return
            identity, frames = received
            if not turns.is_heavy(identity, now):
                seen.clear()
                turns.note_message(identity, now)
                cost = self._handle_message(handle, identity, frames)
                requests += cost
                costs[identity] = costs.get(identity, 0) + cost
                continue
            if not turns.hold(identity, frames):
                self._refuse(identity, frames)
            if identity in seen:
                return
            seen.add(identity)
        self._has_news = True

    def _handle_message(
        self,
        handle: Handle,
        identity: bytes,
        frames: Sequence["zmq.Frame"],
        *,
        is_turn: bool = False,
    ) -> int:
        """Handle one message; returns the number of requests that it counts as."""
        self._frame = frames[0]
        user = None if self._zap is None else self.sender()
        if is_turn:
            self._turns.begin(identity, time.monotonic())
        requests = handle(identity, [frame.bytes for frame in frames], user)
        if is_turn and not requests and not self._is_waiting(identity):
            # A part, and no answer to an earlier command will end the turn.
            self._turns.go_on()
        return max(1, requests) + len(frames[-1]) // limits.REQUEST_COST_BYTES

    def _refuse(self, identity: bytes, frames: Sequence["zmq.Frame"]) -> None:
        """Refuse a message at once, without ending the turn: it is no answer to its messages."""
        *firsts, last = frames
        refusal = self._refusal(
            identity, [*(each.bytes for each in firsts), b"" if firsts else last.bytes]
        )
        if not refusal or self._is_half_sent:
            return
        try:
            self._send(identity, _MORE)
        except zmq.ZMQError:
            # The peer is gone, or does not read.
            return
        try:
            for left, frame in zip(reversed(range(len(refusal))), refusal, strict=True):
                self._send(frame, _MORE if left else _NO_WAIT)
        except Exception as error:
            self._break(error)
            raise

    def _charge(self, costs: dict[bytes, int], began_s: float) -> None:
        """Count the time of a burst for the peers that sent much in it."""
        total = sum(costs.values())
        if total < limits.HEAVY_REQUESTS_MIN:
            return
        now = time.monotonic()
        for identity, cost in costs.items():
            if cost >= limits.HEAVY_REQUESTS_MIN:
                share_s = (now - began_s) * cost / total
                self._turns.charge(identity, max(share_s, cost * limits.REQUEST_S), now)

    def _end_turn(self) -> None:
        self._turns.end(time.monotonic())
        if self._turn_timer is not None:
            self._turn_timer.cancel()
            self._turn_timer = None
        self._wait_for_turn()

    def _wait_for_turn(self) -> None:
        """Have the next turn begin when it is due."""
        if self._turn_timer is None:
            delay_s = max(0.0, self._turns.until_s - time.monotonic())
            loop = asyncio.get_running_loop()
            self._turn_timer = loop.call_later(delay_s, self._begin_turn)

    def _begin_turn(self) -> None:
        self._turn_timer = None
        if time.monotonic() < self._turns.until_s:
            self._wait_for_turn()
            return
        owner = self._turns.owner
        if owner is not None and self._is_waiting(owner):
            self._end_turn()
            return
        self._turns.end_pause()
        if not self._is_burst_scheduled:
            self._handle_burst()

    def _receive(self) -> tuple[bytes, list["zmq.Frame"]] | None:
        """Returns the next message: its peer's identity, and its first `MESSAGE_FRAMES_MAX` frames.

        Returns None if no message has arrived, or frames of the last one are left to be dropped.
        """
        receive = self._socket.recv
        try:
            if self._is_skipping:
                return None
            identity = receive(_NO_WAIT)
            # `frame.more` costs a tenth of asking the socket. A frame always follows an identity.
            frame = receive(_NO_WAIT, False)
            frames = [frame]
            while frame.more and len(frames) < limits.MESSAGE_FRAMES_MAX:
                frame = receive(_NO_WAIT, False)
                frames.append(frame)
        except zmq.Again:
            return None
        self._is_skipping = frame.more
        return identity, frames

    def _skip_frames(self) -> None:
        """Drop frames beyond a message's limit, at most `MESSAGE_FRAMES_MAX` in one burst."""
        with contextlib.suppress(zmq.Again):
            for _ in range(limits.MESSAGE_FRAMES_MAX):
                if not self._socket.recv(_NO_WAIT, False).more:
                    self._is_skipping = False
                    return


class ZapHandler:
    """The authentication handler of a socket's connections (ZeroMQ RFC 27).

    Args:
        context: the context of the socket that accepts the connections.
        admits: returns the name of the client with a key; None if the key is not admitted.
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
        """Returns a file descriptor that is readable, edge-triggered, when requests may wait."""
        return self._socket.fileno()

    def answer(self) -> None:
        """Answer all requests that wait."""
        while True:
            try:
                identity, empty, *frames = self._socket.recv_multipart(_NO_WAIT)
            except zmq.Again:
                return
            self._socket.send_multipart([identity, empty, *self._verdict(frames)], _NO_WAIT)

    def close(self) -> None:
        """Stop answering; the domain is enforced, so no connection passes from now on."""
        self._socket.close(linger=0)

    def _verdict(self, frames: list[bytes]) -> list[bytes]:
        match frames:
            case [version, request, domain, _, _, mechanism, key] if (
                version == _ZAP_VERSION and domain == _DOMAIN and mechanism == b"CURVE"
            ):
                public = z85.encode(key).decode()
                name = self._admits(public)
                # The relay reports the address of the connection.
                if name is not None:
                    self._log("admitted", name=name, key=public)
                    return [_ZAP_VERSION, request, b"200", b"OK", public.encode(), b""]
                self._log("not_admitted", key=public)
                return [_ZAP_VERSION, request, b"400", b"not admitted", b"", b""]
            case [_, request, *_]:
                return [_ZAP_VERSION, request, b"400", b"not admitted", b"", b""]
            case _:
                return [_ZAP_VERSION, b"", b"500", b"not a request", b"", b""]


def _inode_of(fd: int) -> int | None:
    """Returns the inode of an open file descriptor; None if it is closed."""
    try:
        return os.fstat(fd).st_ino
    except OSError:
        return None


def _shut_down(fd: int) -> None:
    """Shut down a connection; libzmq owns its file descriptor and then closes it."""
    # The connection may have ended already, and its descriptor may then be that of a later one.
    with contextlib.suppress(OSError):
        connection = socket.socket(fileno=fd)
        try:
            connection.shutdown(socket.SHUT_RDWR)
        finally:
            connection.detach()
