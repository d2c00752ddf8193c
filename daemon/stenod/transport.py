"""The daemon's ZeroMQ socket: bursts of messages in, answers out, and never a wait for a peer."""

import asyncio
import contextlib
import enum
import os
import socket
import stat
import struct
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import ClassVar, Final, cast

import msgspec
import zmq

from steno_protocol import limits, places
from steno_protocol.errors import StorageFailed
from stenod.peers import Loan, Loans

Handle = Callable[[bytes, list[bytes]], int]
"""Takes the identity of a peer and the frames of one of its messages; tells how many requests."""

# As plain integers: an enum member costs more, in each call, than the message that is moved.
_NOW: Final = int(zmq.DONTWAIT)
_MORE: Final = int(zmq.DONTWAIT | zmq.SNDMORE)
_POLLIN: Final = int(zmq.POLLIN)

_ADDRESS: Final = "Peer-Address"
_HANDLE: Final = int(zmq.SRCFD)
"""What a message tells of the connection that it came by."""

_MONITORED: Final = struct.Struct("=Hi")
"""The first frame of a monitor's message: which event, and the connection's handle."""

_DOOR_NEWS: Final = "inproc://door"

HasRoom = Callable[[], bool]
"""Tells whether one more connection may stay."""


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


class Sent(enum.Enum):
    """What became of a message."""

    OK = "ok"
    FULL = "full"
    """The peer does not read; the message was dropped."""

    GONE = "gone"
    """The peer is not connected any longer."""


class Transport:
    """A ROUTER socket that is bound to an ipc path.

    The socket's FD is edge-triggered, and sending takes edges away too: so it is drained until it
    is empty, and looked at again after every burst of sends. The event loop calls the drain itself:
    a task that waits for the FD anew after each burst would cost two system calls and a wake-up
    more. That ties this room, alone in the daemon, to asyncio.

    libzmq takes connections in by itself, and ends the process when it has no handle for one: so
    those for which there is no room are ended as soon as they are seen.

    Args:
        has_room: tells whether a connection that was just taken in may stay.
    """

    _DOOR: ClassVar[int] = zmq.EVENT_ACCEPTED
    """What the monitor tells of connections."""

    def __init__(self, has_room: HasRoom) -> None:
        self._has_room = has_room
        self._context = zmq.Context()
        self._socket = self._context.socket(zmq.ROUTER)
        # Without the layer for drafts of the protocol: as expensive, four times a message, as what
        # it stands on.
        self._send: Callable[..., object] = super(zmq.Socket, self._socket).send
        # Looked at by a poll that does not wait: to ask for the option with the same news costs
        # twice as much, because pyzmq looks the option up first.
        self._arrivals = [(self._socket, _POLLIN)]
        # What is to be lent is for the loans to say.
        self._socket.copy_threshold = 0
        self._socket.set(zmq.LINGER, 0)
        self._socket.set(zmq.ROUTER_MANDATORY, 1)
        self._socket.set(zmq.SNDHWM, limits.SEND_QUEUE_MESSAGES)
        self._socket.set(zmq.RCVHWM, limits.SEND_QUEUE_MESSAGES)
        self._socket.set(zmq.MAXMSGSIZE, limits.FRAME_BYTES_MAX)
        self._accepted = self._context.socket(zmq.PAIR)
        # No bound: at one libzmq's thread stops until somebody looks, with a lock that `close` has
        # to have, and a flood of connections would keep a daemon from ending.
        self._accepted.set(zmq.RCVHWM, 0)
        self._socket.monitor(_DOOR_NEWS, self._DOOR)
        self._accepted.connect(_DOOR_NEWS)
        self._path: Path | None = None
        self._is_lent = False
        self._inode = 0
        self._frame: zmq.Frame | None = None
        self._handle: Handle | None = None
        self._end_burst: Callable[[], None] = _nothing
        self._is_look_due = False
        self._failed: asyncio.Future[None] | None = None

    def bind(self, path: Path, listening: int | None = None) -> None:
        """Listen at `path`; only the holder of the root's lock may call this.

        libzmq deletes whatever lies at the path, so anything but a stale socket of ours is refused.

        Args:
            path: of the socket.
            listening: a handle that listens there already; its giver keeps the path.

        Raises:
            StorageFailed: something else lies there, or no socket can be made there.
            Unauthorized: somebody else could put another one there.
        """
        if listening is None:
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            for found in (path.parent.lstat(), path.parent.stat()):
                places.check_socket_folder(
                    str(path.parent), owner=found.st_uid, mode=found.st_mode, own=os.getuid()
                )
            _remove_stale_socket(path)
        else:
            self._socket.set(zmq.USE_FD, listening)
            self._is_lent = True
        # The folder keeps others out; this does, too, where somebody opened it to them.
        self._socket.set(zmq.IPC_FILTER_UID, os.getuid())
        try:
            self._socket.bind(f"ipc://{path}")
        except zmq.ZMQError as error:
            raise StorageFailed(
                f"cannot listen at {path}: {error.strerror}; choose another --socket"
            ) from None
        self._path = path
        self._inode = path.stat().st_ino

    @property
    def is_reachable(self) -> bool:
        """False when the socket's path was removed or replaced, so that nobody can connect."""
        try:
            return self._path is not None and self._path.stat().st_ino == self._inode
        except OSError:
            return False

    async def serve(self, handle: Handle, end_burst: Callable[[], None]) -> None:
        """Hand every message to `handle`, burst by burst; `end_burst` follows each burst.

        Runs until it is cancelled, or `handle` raises.
        """
        self._handle, self._end_burst = handle, end_burst
        loop = asyncio.get_running_loop()
        self._failed = loop.create_future()
        loop.add_reader(self._socket.fileno(), self._take_in)
        loop.add_reader(self._accepted.fileno(), self._keep_door)
        try:
            self.look_soon()
            self._keep_door()
            await self._failed
        finally:
            loop.remove_reader(self._accepted.fileno())
            loop.remove_reader(self._socket.fileno())
            self._handle = None

    def send(self, identity: bytes, frames: Sequence[bytes], loans: Loans) -> Sent:
        """Queue one message for a peer, or drop it; never waits. `after_sends` has to follow.

        Args:
            identity: of the peer.
            frames: the message.
            loans: where it is noted what is on its way.
        """
        send = self._send
        *firsts, last = frames
        try:
            send(identity, _MORE)
            for frame in firsts:
                send(frame, _MORE)
            if loans.is_lent(len(last)) and (loan := self._lend(last)) is not None:
                loans.add(loan, len(last))
            else:
                send(last, _NOW)
                loans.copied(len(last))
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

    def _lend(self, frame: bytes) -> Loan | None:
        """Send a frame without a copy of it; None if nothing was sent, and a copy has to be.

        pyzmq starts a thread for what is lent, and the system may have none left, or no memory.
        """
        try:
            return cast("Loan", self._send(frame, _NOW, False, True))
        except (RuntimeError, MemoryError):
            return None

    def _fail(self, error: Exception) -> None:
        """End `serve`: behind half a message, what is for the next peer would go to this one."""
        if self._failed is not None and not self._failed.done():
            self._failed.set_exception(error)

    def sender(self) -> str:
        """Who sent the message that is being handled: uid:gid:pid, as the kernel knows them."""
        try:
            address = "" if self._frame is None else str(self._frame.get(_ADDRESS))
        except zmq.ZMQError:
            return ""
        return address.partition(":")[2]

    def link(self) -> SocketLink | None:
        """The connection of the message that is being handled; None if libzmq does not tell."""
        try:
            handle = -1 if self._frame is None else int(self._frame.get(_HANDLE))
        except zmq.ZMQError:
            return None
        return SocketLink(handle, _inode_of(handle)) if handle >= 0 else None

    def after_sends(self) -> None:
        """Look at the socket again: sends may have swallowed the edge of an arrival."""
        if self._has_arrivals():
            self.look_soon()

    def look_soon(self) -> None:
        """As `after_sends`, once those who are about to run had their turn."""
        if not self._is_look_due:
            self._is_look_due = True
            asyncio.get_running_loop().call_soon(self._look)

    def close(self) -> None:
        """Stop listening and remove the socket, if the path still is ours."""
        if self._path is not None and self.is_reachable and not self._is_lent:
            with contextlib.suppress(OSError):
                self._path.unlink()
        # First, because libzmq's thread stops for ever at an event that it can give to nobody.
        self._socket.disable_monitor()
        self._accepted.close(linger=0)
        self._socket.close(linger=0)
        self._context.term()

    def _keep_door(self) -> None:
        """End the new connections that may not stay; the FD tells of new ones once none is left."""
        while True:
            try:
                event, _ = self._accepted.recv_multipart(_NOW)
            except zmq.Again:
                return
            what, handle = _MONITORED.unpack(event)
            if not self._may_stay(what, handle):
                _hang_up(handle)

    def _may_stay(self, what: int, handle: int) -> bool:  # noqa: ARG002 - for the other socket
        """Whether a connection that the monitor tells of is to be kept."""
        return self._has_room()

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

    def _has_arrivals(self) -> bool:
        return bool(zmq.zmq_poll(self._arrivals, 0))

    def _drain(self, handle: Handle) -> bool:
        """Take in one burst; True when nothing is left."""
        receive = self._socket.recv
        taken = 0
        while taken < limits.BURST_REQUESTS_MAX:
            # To be told that nothing is there costs as much as to ask three times; most bursts are
            # of one message, or of many.
            if taken == 1 and not self._has_arrivals():
                return True
            try:
                identity = receive(_NOW)
            except zmq.Again:
                return True
            # A frame knows whether more follow; asking the socket costs ten times as much. Behind
            # an identity there always is one.
            frame = receive(_NOW, False)
            frames = [frame.bytes]
            while frame.more:
                frame = receive(_NOW, False)
                frames.append(frame.bytes)
            self._frame = frame
            taken += handle(identity, frames)
        return False


def _inode_of(handle: int) -> int | None:
    """The inode of an open handle, None if it is closed."""
    try:
        return os.fstat(handle).st_ino
    except OSError:
        return None


def _nothing() -> None:
    """Before anybody listens, nothing is queued."""


def _hang_up(handle: int) -> None:
    """End a connection whose handle is libzmq's, which closes it then."""
    # It may have ended by itself, and its number may be another's; only one that came later.
    with contextlib.suppress(OSError):
        connection = socket.socket(fileno=handle)
        try:
            connection.shutdown(socket.SHUT_RDWR)
        finally:
            connection.detach()


def _remove_stale_socket(path: Path) -> None:
    try:
        found = path.lstat()
    except FileNotFoundError:
        return
    if not stat.S_ISSOCK(found.st_mode) or found.st_uid != os.getuid():
        raise StorageFailed(
            f"{path} is there and is no socket of ours: move it away, or choose another --socket"
        )
    path.unlink()
