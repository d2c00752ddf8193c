"""One connection to a daemon; the only module of the client that imports pyzmq.

A connection does not reconnect by itself: after its end the client makes a new one, so that no
message for an old daemon can reach a new one, and the address may change. A monitor reports the end
at once; without it the client would notice a killed daemon only by a late reply.
"""

import os
import socket
import struct
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from itertools import count
from typing import TYPE_CHECKING, Final

import zmq

import steno_system as system
from steno_protocol import limits, paths, private_files
from steno_protocol.errors import Unauthorized, Unreachable

if TYPE_CHECKING:
    from steno_protocol.credentials import ClientKey

_SEND_QUEUE_MESSAGES: Final = 1024
"""Messages that libzmq takes from us unsent; the rest waits in the exchange, and is counted."""

_RECEIVE_QUEUE_MESSAGES: Final = 0
"""No bound: replies are bounded by our requests and events by the windows of our subscriptions; a
full queue here would make the daemon drop a reply."""

# As plain integers: arithmetic with enum members costs more than the system call beside it.
_POLLIN: Final = int(zmq.POLLIN)
_POLLOUT: Final = int(zmq.POLLOUT)
_LAST: Final = int(zmq.NOBLOCK)
_MORE: Final = int(zmq.NOBLOCK | zmq.SNDMORE)
_BLOCKING: Final = 0

_MONITORED: Final = struct.Struct("=hi")
"""An event of the monitor and its value. pyzmq's own parser of it would import asyncio."""

_CONNECTED: Final = zmq.EVENT_CONNECTED
_HANDSHAKE: Final = zmq.EVENT_HANDSHAKE_SUCCEEDED
_REFUSALS: Final = (
    int(zmq.EVENT_HANDSHAKE_FAILED_AUTH),
    int(zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL),
)
"""The daemon refused the client's key, or its lack of one. A daemon whose own key differs from the
expected one only hangs up, as a daemon that ends does."""

_REFUSALS_OF_BARE: Final = (
    *_REFUSALS,
    int(zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL),
    int(zmq.EVENT_DISCONNECTED),
)
"""Over TCP every daemon requires a key, so it has refused a client without one by hanging up."""

_ENDS: Final = (
    zmq.EVENT_CLOSED
    | zmq.EVENT_CLOSE_FAILED
    | zmq.EVENT_DISCONNECTED
    | zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL
    | zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL
    | zmq.EVENT_HANDSHAKE_FAILED_AUTH
)


class Futile(Unreachable):
    """No daemon can be reached, and waiting does not help."""


class OutOfHandles(Unreachable):
    """This process cannot open the files of a connection; the daemon may be running."""

    def __init__(self, why: str) -> None:
        super().__init__(
            f"this process has no file handles left for a connection ({why}): close some, or allow"
            " it more with `ulimit -n`"
        )


class Connection:
    """A DEALER socket that is connected to one daemon, or was.

    Args:
        endpoint: `ipc://path`, or `tcp://host:port` with a key.
        key: a client's key for a daemon of another machine.
        has_others: the client has further daemons to go to, and learns soon that this one is gone.

    Raises:
        Unreachable: ZeroMQ does not know the endpoint's form.
        OutOfHandles: the process may open no more files or sockets.

    Attributes:
        endpoint: the daemon's address.
        has_key: it is encrypted, and proves the client's key.
        fd: readable when messages may have arrived or can be sent; edge-triggered, so a caller
            waits for it only after `receive` returned fewer messages than requested.
        monitor_fd: readable when the connection may have ended.
        is_refused: the daemon refused the client's key.
        was_accepted: a listening socket took the connection, whatever became of it.
        refusal: another user's process listens at a local address; the connection is lost.
    """

    def __init__(
        self, endpoint: str, key: "ClientKey | None" = None, *, has_others: bool = False
    ) -> None:
        self.endpoint = endpoint
        self._has_others = has_others
        self.is_refused = False
        self.has_key = key is not None
        is_bare = key is None and endpoint.startswith("tcp:")
        self._refusals = _REFUSALS_OF_BARE if is_bare else _REFUSALS
        self._is_ready = False
        self._is_lost = False
        self.was_accepted = False
        self.refusal: Unauthorized | None = None
        self._is_local = endpoint.startswith("ipc:")
        self._handle: tuple[int, int] | None = None
        self._pid = os.getpid()
        _check_handles()
        try:
            self._socket = _context().socket(zmq.DEALER)
            self._monitor = _context().socket(zmq.PAIR)
        except zmq.ZMQError as error:
            raise OutOfHandles(str(error.strerror)) from None
        try:
            self._set_up(key)
        except BaseException:
            self.close()
            raise

    def __del__(self) -> None:
        # In a child after a fork the socket belongs to the parent.
        with suppress(AttributeError):
            if self._pid == os.getpid():
                self.close()

    def _set_up(self, key: "ClientKey | None") -> None:
        # Without pyzmq's layer for draft sockets, which doubles the cost of each frame.
        self._send: Callable[..., object] = super(zmq.Socket, self._socket).send
        self._socket.setsockopt(zmq.LINGER, 0)
        self._socket.setsockopt(zmq.IMMEDIATE, 1)
        self._socket.setsockopt(zmq.RECONNECT_IVL, -1)
        self._socket.setsockopt(zmq.SNDHWM, _SEND_QUEUE_MESSAGES)
        self._socket.setsockopt(zmq.RCVHWM, _RECEIVE_QUEUE_MESSAGES)
        self._socket.setsockopt(zmq.RCVTIMEO, limits.ANSWER_SOON_MS)
        if key is not None:
            self._socket.setsockopt(zmq.CURVE_SERVERKEY, key.server.encode())
            self._socket.setsockopt(zmq.CURVE_PUBLICKEY, key.own.public.encode())
            self._socket.setsockopt(zmq.CURVE_SECRETKEY, key.own.secret.encode())
            self._socket.setsockopt(zmq.IPV6, int(paths.is_ipv6(self.endpoint)))
            self._socket.setsockopt(zmq.HANDSHAKE_IVL, limits.HANDSHAKE_MS)
            # A vanished machine closes no connection; a local daemon always does, whatever ends it.
            every_ms, silence_ms = limits.HEARTBEAT_MS, limits.HEARTBEAT_TIMEOUT_MS
            if self._has_others:
                every_ms = limits.CLUSTER_HEARTBEAT_MS
                silence_ms = limits.CLUSTER_HEARTBEAT_TIMEOUT_MS
            self._socket.setsockopt(zmq.HEARTBEAT_IVL, every_ms)
            self._socket.setsockopt(zmq.HEARTBEAT_TIMEOUT, silence_ms)
            # A slow connection is silent for long, as a dead one is; TCP knows whether sent bytes
            # arrive. If not, a request goes by another connection before its deadline.
            self._socket.setsockopt(zmq.TCP_MAXRT, limits.HEARTBEAT_MS)
        news = f"inproc://news-{next(_numbers)}"
        self._socket.monitor(news, _ENDS | _HANDSHAKE | _CONNECTED)
        self._monitor.connect(news)
        # A poll without a wait reports the same as an option of the socket, at half the cost:
        # pyzmq looks an option up first.
        self._incoming = [(self._socket, _POLLIN)]
        self._outgoing = [(self._socket, _POLLOUT)]
        self._both_ways = [(self._socket, _POLLIN | _POLLOUT)]
        self._news = [(self._monitor, _POLLIN)]
        self.fd = int(self._socket.getsockopt(zmq.FD))
        self.monitor_fd = int(self._monitor.getsockopt(zmq.FD))
        try:
            self._socket.connect(self.endpoint)
        except zmq.ZMQError as error:
            raise Unreachable(f"{self.endpoint} cannot be connected to: {error.strerror}") from None

    @property
    def has_messages(self) -> bool:
        """True when `receive` would give something."""
        return bool(zmq.zmq_poll(self._incoming, 0))

    @property
    def can_send(self) -> bool:
        """True when the daemon's end takes messages."""
        return bool(zmq.zmq_poll(self._outgoing, 0))

    @property
    def is_ready(self) -> bool:
        """True when `receive` would give something, or the daemon's end takes messages.

        Two separate checks would not do: each may use up the signal on `fd` that only the other one
        would have reported.
        """
        return bool(zmq.zmq_poll(self._both_ways, 0))

    def is_lost(self) -> bool:
        """True once the connection has ended, or could not be made."""
        while not self._is_lost and zmq.zmq_poll(self._news, 0):
            event, value = _MONITORED.unpack(self._monitor.recv_multipart(_LAST)[0])
            if event == _CONNECTED:
                self.was_accepted = True
                with suppress(OSError):
                    self._handle = value, os.fstat(value).st_ino
                self._check_listener(value)
            elif event == _HANDSHAKE:
                self._is_ready = True
            else:
                self._is_lost = True
                self.is_refused |= event in self._refusals
        return self._is_lost

    def wait_until_ready(self, deadline: float) -> bool:
        """Block until the connection stands; False when it cannot be made before `deadline`."""
        while not self._is_ready:
            if self.is_lost():
                return False
            if not self._is_ready and not self._monitor.poll(_milliseconds(deadline)):
                return False
        return not self.is_lost()

    def send(self, frames: Sequence[bytes]) -> bool:
        """Queue one message; return False when it cannot be sent now."""
        send = self._send
        *firsts, last = frames
        try:
            for frame in firsts:
                send(frame, _MORE)
            send(last, _LAST)
        except zmq.Again:
            # Only the first frame can meet this: a message goes as a whole or not at all.
            return False
        return True

    def receive_soon(self) -> list[bytes] | None:
        """One message that is there or comes within `ANSWER_SOON_MS`, else None; blocks.

        libzmq's own wait takes a third of the system calls of `wait`, which also watches the
        connection. It does not report whether more messages are there.
        """
        try:
            return self._next_message(_BLOCKING)
        except zmq.Again:
            return None

    def receive(self, messages_max: int) -> list[list[bytes]]:
        """Return the messages that are there; fewer than requested means that there are no more."""
        messages: list[list[bytes]] = []
        for number in range(messages_max):
            # The exception for an empty socket costs as much as three polls, and mostly there is
            # only one message.
            if number == 1 and not self.has_messages:
                break
            try:
                messages.append(self._next_message(_LAST))
            except zmq.Again:
                break
        return messages

    def _next_message(self, how: int) -> list[bytes]:
        receive = self._socket.recv
        # A frame knows whether more follow; the socket option costs ten times as much.
        frame = receive(how, False)
        frames = [frame.bytes]
        while frame.more:
            frame = receive(_LAST, False)
            frames.append(frame.bytes)
        return frames

    def wait(self, deadline: float, *, to_send: bool = False) -> tuple[bool, bool]:
        """Block until a message arrives, the connection ends, or it is `deadline`.

        Args:
            to_send: return also when a message can be sent.

        Returns:
            Whether a message is there, and whether the connection may have ended, which `is_lost`
            checks.
        """
        watched = [(self._socket, _POLLIN | _POLLOUT if to_send else _POLLIN), *self._news]
        stirred = dict(zmq.zmq_poll(watched, _milliseconds(deadline)))
        return bool(stirred.get(self._socket, 0) & _POLLIN), self._monitor in stirred

    def close(self) -> None:
        """End the connection at once; queued messages are dropped."""
        try:
            self._close()
        except BaseException:
            # An interrupt. libzmq's thread stops for ever at an event that no monitor takes,
            # so the socket is never left with a monitor that is closed.
            self._close()
            raise

    def let_go(self) -> None:
        """Close the child's copy of the socket, so that the parent alone keeps the connection."""
        with suppress(OSError):
            if self._handle is not None and os.fstat(self._handle[0]).st_ino == self._handle[1]:
                os.close(self._handle[0])

    def _check_listener(self, handle: int) -> None:
        """Give up a connection to another user's process, before anything is sent on it.

        The kernel notes the user at `listen`, so that what the path leads to meanwhile does not
        matter. libzmq reports this event before the handshake, without which nothing is sent. It
        never connects again, so the number is that of this connection, or nothing comes by it.
        """
        if not self._is_local:
            return
        try:
            owner = _listener_of(handle)
            private_files.check_listener(self.endpoint, owner=owner, own=system.own_user())
        except OSError:
            # It has ended already: libzmq closed the handle.
            return
        except Unauthorized as error:
            self.refusal = error
            self._is_lost = True

    def _close(self) -> None:
        if not self._socket.closed:
            self._socket.disable_monitor()
        self._monitor.close(0)
        self._socket.close(0)


_numbers: Final = count()

_contexts: Final[dict[int, zmq.Context[zmq.Socket[bytes]]]] = {}


def _context() -> zmq.Context[zmq.Socket[bytes]]:
    # One per process: a context does not work in a child after a fork.
    pid = os.getpid()
    if pid not in _contexts:
        _contexts[pid] = zmq.Context()
    return _contexts[pid]


def _check_handles() -> None:
    # libzmq aborts the process when it runs out of handles while it makes a socket.
    handles: list[int] = []
    try:
        for _ in range(limits.HANDLES_PER_CONNECTION_MAX):
            handles.append(system.spare_handle())  # noqa: PERF401 - closed if one fails
    except OSError as error:
        raise OutOfHandles(str(error.strerror)) from None
    finally:
        for handle in handles:
            os.close(handle)


def new_key_pair() -> tuple[str, str]:
    """Make a new CURVE key, from the system's randomness; return its public and secret part."""
    public, secret = zmq.curve_keypair()
    return public.decode(), secret.decode()


def _listener_of(handle: int) -> int:
    """The user of the process that listens at the other end of a connected local socket.

    Raises:
        OSError: libzmq has closed the handle. Its number may be that of another file by now, which
            is neither copied nor closed here: a copy of a pipe would keep its reader waiting.
    """
    connected = socket.socket(fileno=handle)
    try:
        return system.listener_of(connected)
    finally:
        connected.detach()


def _milliseconds(deadline: float) -> int:
    # Rounded up: a wait that ends a moment too early would find nothing to do.
    # Bounded before the conversion to an integer: a deadline may be infinite.
    return max(0, int(min(deadline - time.monotonic(), 1000.0) * 1000) + 1)
