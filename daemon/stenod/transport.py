"""The daemon's ZeroMQ socket: bursts of messages in, answers out, and never a wait for a peer."""

import contextlib
import enum
import os
import stat
from collections.abc import Callable, Sequence
from pathlib import Path

import anyio
import anyio.lowlevel
import zmq

from steno_protocol import limits
from steno_protocol.errors import StorageFailed

Handle = Callable[[bytes, list[bytes]], None]
"""Takes the identity of a peer and the frames of one of its messages."""


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
    is empty, and looked at again after every burst of sends.
    """

    def __init__(self) -> None:
        self._context = zmq.Context()
        self._socket = self._context.socket(zmq.ROUTER)
        self._socket.set(zmq.LINGER, 0)
        self._socket.set(zmq.ROUTER_MANDATORY, 1)
        self._socket.set(zmq.SNDHWM, limits.SEND_QUEUE_MESSAGES)
        self._socket.set(zmq.RCVHWM, limits.SEND_QUEUE_MESSAGES)
        self._socket.set(zmq.MAXMSGSIZE, limits.RECORD_BYTES_MAX + limits.KIB)
        self._path: Path | None = None
        self._inode = 0
        self._unread = False
        self._waiting = anyio.CancelScope()

    def bind(self, path: Path) -> None:
        """Listen at `path`; only the holder of the root's lock may call this.

        libzmq deletes whatever lies at the path, so anything but a stale socket of ours is refused.
        """
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        _remove_stale_socket(path)
        self._socket.bind(f"ipc://{path}")
        self._path = path
        self._inode = path.stat().st_ino

    @property
    def is_reachable(self) -> bool:
        """False when the socket's path was removed or replaced, so that nobody can connect."""
        try:
            return self._path is not None and self._path.stat().st_ino == self._inode
        except OSError:
            return False

    async def serve(self, handle: Handle, flush: Callable[[], None]) -> None:
        """Hand every message to `handle`, burst by burst; `flush` follows each burst."""
        while True:
            self._unread = False
            is_empty = self._drain(handle)
            flush()
            if is_empty and not self._unread:
                with anyio.CancelScope() as self._waiting:
                    await anyio.wait_readable(self._socket.fileno())
            else:
                await anyio.lowlevel.checkpoint()

    def send(self, identity: bytes, frames: Sequence[bytes]) -> Sent:
        """Queue one message for a peer, or drop it; never waits. `after_sends` has to follow."""
        try:
            self._socket.send(identity, zmq.SNDMORE | zmq.DONTWAIT)
            for frame in frames[:-1]:
                self._socket.send(frame, zmq.SNDMORE | zmq.DONTWAIT)
            self._socket.send(frames[-1], zmq.DONTWAIT)
        except zmq.Again:
            return Sent.FULL
        except zmq.ZMQError as error:
            if error.errno == zmq.EHOSTUNREACH:
                return Sent.GONE
            raise
        return Sent.OK

    def after_sends(self) -> None:
        """Look at the socket again: sends may have swallowed the edge of an arrival."""
        if int(self._socket.get(zmq.EVENTS)) & zmq.POLLIN:
            self._unread = True
            self._waiting.cancel()

    def close(self) -> None:
        """Stop listening and remove the socket, if the path still is ours."""
        if self._path is not None and self.is_reachable:
            with contextlib.suppress(OSError):
                self._path.unlink()
        self._socket.close(linger=0)
        self._context.term()

    def _drain(self, handle: Handle) -> bool:
        """Take in one burst; True when nothing is left."""
        for _ in range(limits.BURST_MESSAGES):
            try:
                # A frame knows whether more follow; asking the socket costs ten times as much.
                frame = self._socket.recv(zmq.DONTWAIT, copy=False)
            except zmq.Again:
                return True
            identity = frame.bytes
            frames: list[bytes] = []
            while frame.more:
                frame = self._socket.recv(zmq.DONTWAIT, copy=False)
                frames.append(frame.bytes)
            handle(identity, frames)
        return False


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
