"""The daemon's socket for this machine: a listener whose clients speak ZeroMQ's protocol.

The protocol is spoken here and not by libzmq. That ends the process when it has no handle for who
connects, takes a thread and two wake-ups for each message and each answer, and lets a message that
never ends fill the memory; for other machines, where it also encrypts, it is what there is.
"""

import asyncio
import contextlib
import os
import select
import socket
import stat
from collections import OrderedDict
from collections.abc import Callable, Sequence
from itertools import count
from pathlib import Path
from typing import Final

from steno_protocol import limits, paths
from steno_protocol.errors import StorageFailed
from steno_protocol.zmtp import ForeignWire
from stenod.api.clients import InFlightFrames
from stenod.net.local_connection import LocalConnection
from stenod.net.transport import Handle, HasRoom, Sent
from stenod.runtime import memory

_READ: Final = select.EPOLLIN
_WRITE: Final = select.EPOLLOUT
_RECEIVED: Final = 0
"""Nothing that the kernel tells: messages wait that were received already."""


class LocalTransport:
    """A socket that listens at a path, and all connections that were made to it.

    Only processes of the daemon's user may connect: the folder keeps others out, and here they are
    shown the door where somebody opened it to them.

    All connections are watched by one handle, which the event loop watches: to have the loop watch
    each costs a callback for each message.

    Args:
        has_room: tells whether a connection that was just taken in may stay.
    """

    def __init__(self, has_room: HasRoom) -> None:
        self._has_room = has_room
        self._events = select.epoll()
        self._listener: socket.socket | None = None
        self._path: Path | None = None
        self._inode = 0
        self._is_lent = False
        self._numbers = count(1)
        self._connections: dict[bytes, LocalConnection] = {}
        self._by_handle: dict[int, LocalConnection] = {}
        self._stirred: OrderedDict[int, int] = OrderedDict()
        self._unfinished = 0
        self._unsent: OrderedDict[LocalConnection, None] = OrderedDict()
        self._aside: OrderedDict[LocalConnection, None] = OrderedDict()
        self._is_aside_due = False
        self._current: LocalConnection | None = None
        self._handle: Handle = _nobody
        self._end_burst: Callable[[], None] = _nothing
        self._is_look_due = False
        self._is_rest_due = False
        self._is_giving_back = False
        self._failed: asyncio.Future[None] | None = None

    def bind(self, path: Path, listening: int | None = None) -> None:
        """Listen at `path`; only the holder of the root's lock may call this.

        Args:
            path: of the socket.
            listening: a handle that listens there already; its giver keeps the path.

        Raises:
            StorageFailed: something else lies there, or no socket can be made there.
            Unauthorized: somebody else could put another one there.
        """
        if listening is None:
            self._listener = _listen(path)
        else:
            self._listener = socket.socket(fileno=listening)
            self._is_lent = True
        self._listener.setblocking(False)
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
        """See `Transport`."""
        assert self._listener is not None
        loop = asyncio.get_running_loop()
        self._handle, self._end_burst = handle, end_burst
        self._failed = loop.create_future()
        self._events.register(self._listener, _READ)
        loop.add_reader(self._events.fileno(), self._take_in)
        try:
            await self._failed
        finally:
            loop.remove_reader(self._events.fileno())
            self._stirred.clear()

    def send(self, identity: bytes, frames: Sequence[bytes], in_flight: InFlightFrames) -> Sent:
        """See `Transport`."""
        connection = self._connections.get(identity)
        if connection is None:
            return Sent.GONE
        self._unsent[connection] = None
        return connection.send(frames, in_flight)

    def sender(self) -> str:
        """Who sent the message that is being handled: uid:gid:pid, as the kernel knows them."""
        return "" if self._current is None else self._current.sender

    def link(self) -> LocalConnection | None:
        """See `Transport`."""
        return self._current

    def after_sends(self) -> None:
        """See `Transport`."""
        # In the order in which they were answered: to have one come first always delays the others.
        while self._unsent:
            self._flush(self._unsent.popitem(last=False)[0])

    def look_soon(self) -> None:
        """See `Transport`."""
        if not self._is_look_due:
            self._is_look_due = True
            asyncio.get_running_loop().call_soon(self._look)

    def close(self) -> None:
        """Stop listening, hang up, and remove the socket, if the path still is ours."""
        if self._path is not None and self.is_reachable and not self._is_lent:
            with contextlib.suppress(OSError):
                self._path.unlink()
        if self._listener is not None:
            self._listener.close()
        for connection in list(self._connections.values()):
            self._end(connection)
        self._events.close()

    # --- inside ----------------------------------------------------------------------------------

    def _look(self) -> None:
        self._is_look_due = False
        self.after_sends()

    def _take_in(self) -> None:
        """Take in one burst; the loop comes back as long as there is more."""
        if self._is_rest_due:
            # One burst for each round of the loop, in which all others have their turn.
            return
        try:
            self._drain()
            self._end_burst()
        except Exception as error:
            if self._failed is not None and not self._failed.done():
                self._failed.set_exception(error)
        if self._stirred:
            # What was received already makes nobody call again.
            self._is_rest_due = True
            asyncio.get_running_loop().call_soon(self._take_rest)

    def _take_rest(self) -> None:
        self._is_rest_due = False
        if self._stirred:
            self._take_in()

    def _drain(self) -> None:
        """Attend to all in turn: who is left when the burst is full comes first in the next one."""
        self._look_around()
        taken = 0
        while taken < limits.BURST_REQUESTS_MAX:
            if not self._stirred:
                self._look_around()
                if not self._stirred:
                    return
            taken += self._attend(*self._stirred.popitem(last=False))

    def _look_around(self) -> None:
        """Have those who said something come behind those who wait for their turn already."""
        for handle, event in self._events.poll(0):
            self._stirred[handle] = self._stirred.get(handle, _RECEIVED) | event

    def _attend(self, handle: int, event: int) -> int:
        """Do what a handle is ready for; tells how much of a burst that was, one at least."""
        connection = self._by_handle.get(handle)
        if connection is None:
            # Who was told of may have ended since.
            if self._listener is not None and handle == self._listener.fileno():
                self._accept()
            return 1
        if event & _WRITE:
            self._flush(connection)
        if event == _WRITE and not connection.waiting:
            return 1
        try:
            if not connection.waiting:
                connection.receive()
        except (OSError, ForeignWire, MemoryError):
            self._end(connection)
            return 1
        self._set_aside(connection, is_aside=connection.debt > limits.DEBT_MAX)
        if connection.unfinished != connection.counted and not self._has_room_for(connection):
            self._end(connection)
            return 1
        if connection.until is not None and connection.is_ready:
            connection.until.cancel()
            connection.until = None
        if connection.has_unsent is not connection.is_watched:
            self._flush(connection)
        return self._serve(connection) or 1

    def _has_room_for(self, connection: LocalConnection) -> bool:
        """Whether what it has not finished still fits beside that of the others."""
        growth = connection.unfinished - connection.counted
        self._unfinished += growth
        connection.counted += growth
        return growth <= 0 or self._unfinished <= limits.UNFINISHED_BYTES_MAX

    def _serve(self, connection: LocalConnection) -> int:
        """Handle what was received, an equal part of a burst; tells how many requests that was."""
        waiting, taken = connection.waiting, 0
        most = max(1, limits.BURST_REQUESTS_MAX // (1 + len(self._stirred)))
        self._current = connection
        while waiting and taken < most:
            taken += self._handle(connection.identity, waiting.popleft())
        if waiting:
            self._stirred[connection.handle] = _RECEIVED
        return taken

    def _flush(self, connection: LocalConnection) -> None:
        """Send what is queued, and be told when the rest can go."""
        connection.flush()
        if connection.has_unsent is not connection.is_watched and connection.stands:
            connection.is_watched = connection.has_unsent
            self._watch(connection)

    def _watch(self, connection: LocalConnection) -> None:
        reading = 0 if connection.is_aside else _READ
        writing = _WRITE if connection.is_watched else 0
        self._events.modify(connection.handle, reading | writing)

    def _set_aside(self, connection: LocalConnection, *, is_aside: bool) -> None:
        """Look at a connection only now and then, or as at others again.

        However many there are, one of them has a look every `ASIDE_S`: what they cost together is
        bounded, and each goes on, the slower the more there are.
        """
        if connection.is_aside is is_aside:
            return
        connection.is_aside = is_aside
        self._watch(connection)
        if is_aside:
            self._aside[connection] = None
            self._look_aside_later()
        else:
            self._aside.pop(connection, None)

    def _look_aside_later(self) -> None:
        if not self._is_aside_due:
            self._is_aside_due = True
            asyncio.get_running_loop().call_later(limits.ASIDE_S, self._look_aside)

    def _look_aside(self) -> None:
        self._is_aside_due = False
        if not self._aside:
            return
        connection = next(iter(self._aside))
        self._aside.move_to_end(connection)
        self._stirred[connection.handle] = self._stirred.get(connection.handle, 0) | _READ
        self._look_aside_later()
        self._take_in()

    def _accept(self) -> None:
        assert self._listener is not None
        try:
            accepted, _ = self._listener.accept()
        except BlockingIOError:
            return
        except OSError:
            self._pause()
            return
        connection = LocalConnection(accepted, b"%d" % next(self._numbers))
        if not connection.is_own or not self._has_room():
            connection.close()
            return
        try:
            self._events.register(connection.handle, _READ)
        except OSError:
            # The kernel watches no more for this user, or has no memory for it.
            connection.close()
            return
        self._connections[connection.identity] = connection
        self._by_handle[connection.handle] = connection
        connection.until = asyncio.get_running_loop().call_later(
            limits.HANDSHAKE_MS / 1000, self._end, connection
        )

    def _pause(self) -> None:
        """Take nobody in for a moment: there is no handle, and who waits would be told at once."""
        assert self._listener is not None
        self._events.unregister(self._listener)
        self._go_on_later()

    def _go_on_later(self) -> None:
        asyncio.get_running_loop().call_later(limits.HANDLES_LOOK_S, self._go_on_accepting)

    def _go_on_accepting(self) -> None:
        if self._listener is None or self._listener.fileno() < 0:
            return
        try:
            self._events.register(self._listener, _READ)
        except OSError:
            self._go_on_later()

    def _end(self, connection: LocalConnection) -> None:
        del self._connections[connection.identity], self._by_handle[connection.handle]
        self._unsent.pop(connection, None)
        self._aside.pop(connection, None)
        self._unfinished -= connection.counted
        self._events.unregister(connection.handle)
        if connection.unsent >= limits.BLOCK_BYTES:
            self._give_back_soon()
        connection.close()

    def _give_back_soon(self) -> None:
        """Give back the memory of what a client left untaken, and others who leave with it."""
        if not self._is_giving_back and self._failed is not None and not self._failed.done():
            self._is_giving_back = True
            self._failed.get_loop().call_later(limits.GIVE_BACK_S, self._give_back)

    def _give_back(self) -> None:
        self._is_giving_back = False
        memory.give_back_free()


def _nothing() -> None:
    """Before anybody listens, nothing is queued."""


def _nobody(_: bytes, __: list[bytes]) -> int:
    """Before anybody listens, nothing comes."""
    return 0


def _listen(path: Path) -> socket.socket:
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    for found in (path.parent.lstat(), path.parent.stat()):
        paths.check_socket_folder(
            str(path.parent), owner=found.st_uid, mode=found.st_mode, own=os.getuid()
        )
    _remove_stale_socket(path)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        listener.bind(str(path))
        listener.listen(limits.CONNECTIONS_WAITING_MAX)
    except OSError as error:
        listener.close()
        raise StorageFailed(
            f"cannot listen at {path}: {error.strerror or error}; choose another --socket"
        ) from None
    return listener


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
