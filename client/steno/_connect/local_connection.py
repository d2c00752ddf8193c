"""A connection to a daemon of this machine: ZeroMQ's protocol over a local socket, without libzmq.

libzmq moves each message from one thread to another at both ends. That is made for many peers and
large streams; a request that waits for its answer pays for four wake-ups where one each way will
do. The messages are the same, so the daemon's end may be libzmq's, and a client may be.
"""

import errno
import select
import socket
import time
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from typing import Final

from steno._connect.connection import OutOfHandles
from steno_protocol import limits
from steno_protocol.zmtp import ForeignWire, Inbound, Outbound

_NOW: Final = socket.MSG_DONTWAIT | socket.MSG_NOSIGNAL
_LEAST_BYTES: Final = limits.GATHERED_BYTES_MAX
_MOST_BYTES: Final = limits.RECEIVED_BYTES_MAX
_OVER: Final = select.EPOLLHUP | select.EPOLLRDHUP | select.EPOLLERR

_NO_MEMORY: Final = frozenset({errno.ENOMEM, errno.ENOBUFS})
_NO_HANDLE: Final = _NO_MEMORY | {errno.EMFILE, errno.ENFILE, errno.ENOSPC}

_ENDED: Final = _NO_MEMORY | {
    errno.EPIPE, errno.ECONNRESET, errno.ECONNABORTED, errno.ESHUTDOWN, errno.ENOTCONN,
    errno.EINVAL, errno.EBADF,
}  # fmt: skip
"""What the kernel says when nothing goes or comes any more. Signal handlers run in the middle of
its calls and may raise an OSError of their own, as TimeoutError is one: that is for their caller.
"""


class LocalConnection:
    """A stream socket that is connected to one daemon, or was; see `Connection`.

    The kernel tells on `fd` and `monitor_fd` how it is, for as long as it is so.

    Args:
        endpoint: the daemon's address, as it is shown.
        path: of its socket.

    Raises:
        OutOfHandles: the process may open no more files or sockets.
    """

    def __init__(self, endpoint: str, path: str) -> None:
        self.endpoint = endpoint
        self.is_refused = False
        self.tells_once = False
        self._inbound = Inbound(b"DEALER")
        self._outbound = Outbound()
        self._messages: deque[list[bytes]] = deque()
        self._is_lost = False
        self._is_blocked = False
        self._has_more = False
        self._unbroken_bytes = 0
        self._handles: list[socket.socket | select.epoll] = []
        try:
            self._open()
            self.fd = self._news.fileno()
            self.monitor_fd = self._end.fileno()
            self._connect(path)
        except BaseException as error:
            # Now, and not when the error is forgotten, whose traceback keeps this object.
            self.close()
            if isinstance(error, OSError) and error.errno in _NO_HANDLE:
                raise OutOfHandles(error.strerror or str(error)) from None
            raise

    def __del__(self) -> None:
        # Somebody dropped a client that was open: not a word, as long as the handles come back.
        with suppress(AttributeError):
            self.close()

    def _open(self) -> None:
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._handles.append(self._socket)
        self._socket.setblocking(False)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, limits.SOCKET_BYTES)
        self._news = select.epoll()
        self._handles.append(self._news)
        self._end = select.epoll()
        self._handles.append(self._end)
        self._news.register(self._socket, select.EPOLLIN)
        self._arrival = select.poll()
        self._arrival.register(self._socket, select.POLLIN)
        self._end.register(self._socket, _OVER)

    def _connect(self, path: str) -> None:
        try:
            # At once or not at all: a daemon whose queue is full is tried again by the caller.
            self._socket.connect(path)
        except TimeoutError:
            # A signal handler's: the kernel does not wait here.
            raise
        except (OSError, ValueError):
            self._is_lost = True
        self._pay()

    @property
    def has_messages(self) -> bool:
        """See `Connection`."""
        if not self._messages:
            self._take_in()
        return bool(self._messages)

    @property
    def can_send(self) -> bool:
        """See `Connection`."""
        self._flush()
        return not self._outbound

    @property
    def is_ready(self) -> bool:
        """See `Connection`."""
        return self.has_messages or self.can_send

    @property
    def expects_more(self) -> bool:
        """See `Connection`: the kernel holds little, and more can go once that was taken."""
        is_half_there = self._inbound.is_midway and self._unbroken_bytes > 0
        return is_half_there or self._unbroken_bytes >= limits.GATHERED_BYTES_MAX

    def is_lost(self) -> bool:
        """See `Connection`; what came before the end is to be received first."""
        if not self._is_lost and self._end.poll(0):
            while not self._messages and self._take_in():
                pass
            self._is_lost |= not self._messages
        return self._is_lost and not self._messages

    def wait_until_ready(self, deadline: float) -> bool:
        """See `Connection`."""
        while not self._inbound.is_ready and not self._is_lost:
            waited_s = min(deadline - time.monotonic(), 1.0)
            if waited_s <= 0:
                return False
            self._news.poll(waited_s)
            self._take_in()
        return not self.is_lost()

    def send(self, frames: Sequence[bytes]) -> bool:
        """See `Connection`."""
        if self._outbound:
            self._flush()
            if self._outbound:
                return False
        self._outbound.put(frames)
        self._flush()
        return True

    def receive_soon(self) -> list[bytes] | None:
        """See `Connection`."""
        has_none = not self._messages and not self._outbound and not self._is_lost
        # To sleep in `recv` would be one call less, but the daemon, as it takes a request in,
        # tells whoever sleeps there that there is room again: a wake-up for nothing each time.
        if has_none and self._arrival.poll(limits.ANSWER_SOON_MS):
            self._take_in()
        return self._messages.popleft() if self._messages else None

    def receive(self, messages_max: int) -> list[list[bytes]]:
        """See `Connection`."""
        if self._outbound:
            self._flush()
        messages = self._messages
        has_more = self._has_more or not messages
        while has_more and len(messages) < messages_max:
            has_more = self._take_in() and self._has_more
        return [messages.popleft() for _ in range(min(messages_max, len(messages)))]

    def wait(self, deadline: float, *, to_send: bool = False) -> tuple[bool, bool]:
        """See `Connection`."""
        self._flush()
        can_send = to_send and not self._outbound
        if not self._messages and not self._is_lost and not can_send:
            # As the caller has it, a wait of a second is one.
            self._news.poll(min(max(deadline - time.monotonic(), 0.0), 1.0))
            self._flush()
            self._take_in()
        return bool(self._messages), self._is_lost

    def close(self) -> None:
        """See `Connection`."""
        self._is_lost = True
        for each in self._handles:
            each.close()

    def let_go(self) -> None:
        """See `Connection`; the parent's handles are others, and stay open."""
        self.close()

    def _take_in(self) -> bool:
        """Take in what has come, if anything."""
        inbound = self._inbound
        size = max(_LEAST_BYTES, min(inbound.wanted, _MOST_BYTES))
        try:
            data = self._socket.recv(size, _NOW)
            self._messages.extend(inbound.feed(data))
        except BlockingIOError:
            self._has_more = False
            self._unbroken_bytes = 0
            return False
        except ForeignWire:
            self._hang_up()
            data = b""
        except OSError as error:
            if error.errno not in _ENDED:
                raise
            data = b""
        self._has_more = len(data) == size
        self._unbroken_bytes += len(data)
        if inbound.owed:
            self._pay()
        self._is_lost |= not data
        return bool(data)

    def _pay(self) -> None:
        """Send what the wire itself asks for, unless the daemon takes nothing anyway."""
        if not self._outbound:
            self._outbound.put_raw(bytes(self._inbound.owed))
            self._flush()
        self._inbound.owed.clear()

    def _flush(self) -> None:
        """Send what is queued, as far as it goes, and have `fd` tell when the rest can."""
        queued = self._outbound
        if not queued and not self._is_blocked:
            return
        try:
            while queued:
                queued.went(self._socket.send(queued.next_piece(), _NOW))
        except BlockingIOError:
            pass
        except OSError as error:
            if error.errno not in _ENDED:
                raise
            # It is lost once all is received that came before.
            self._hang_up()
            return
        if self._is_blocked != bool(queued):
            self._is_blocked = bool(queued)
            what = select.EPOLLIN | select.EPOLLOUT if queued else select.EPOLLIN
            self._news.modify(self._socket, what)

    def _hang_up(self) -> None:
        """Have both ends see an end, which `monitor_fd` tells; what has come can be received."""
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
