"""The process between the TCP address and the daemon's socket for other machines.

Anyone who reaches the address can open connections, and libzmq aborts a process without a file
handle for one. So the connections of strangers exist in this process alone, which has file handles
of its own. It connects each to the daemon after its first bytes, to at most a fixed number of
connections at a time, and passes bytes on in both directions. It has no key and reads no message:
the daemon decrypts and admits.

A client has proven its key when the daemon sends the command READY, which CURVE sends in clear
(ZeroMQ RFC 26). Connections without that proof make room for newer ones: of the address that has
the most of them, the oldest ends. So one address delays only clients behind the same address.

The process ends when its standard input does, which is when the daemon ends. Its standard output
has a line for each event: `admitted ADDRESS`, `refused ADDRESS`, or `turned_away NUMBER`.

python -m stenod.net.relay LISTENER TARGET CONNECTIONS

LISTENER is the handle of the listening TCP socket, TARGET the one of the daemon's socket, and
CONNECTIONS the most connections to the daemon at a time.
"""

import ipaddress
import os
import resource
import selectors
import socket
import sys
import time
from collections import deque
from collections.abc import Callable
from contextlib import closing, suppress
from typing import Final

from steno_protocol import limits

_OWN_HANDLES: Final = 16
"""Handles for everything but connections."""

_GREETING_BYTES: Final = 64
_SHORT_HEAD: Final = 2
_LONG_HEAD: Final = 9
_LONG: Final = 0x02
_READY: Final = b"\x05READY"
_ERROR: Final = b"\x05ERROR"
_VERDICT_BYTES_MAX: Final = 1024
"""Bytes from the daemon that precede its verdict: a greeting and a welcome, 234 in libzmq."""

_NETWORK_BITS: Final = 64
"""Bits of an IPv6 address that name a network; one machine can have all its addresses."""


def verdict_of(head: bytes) -> bool | None:
    """Return whether the daemon admitted a client, given the first bytes that it sent to it.

    Returns:
        True after READY, False after ERROR, None as long as neither has arrived.
    """
    start = _GREETING_BYTES
    while len(head) >= start + _LONG_HEAD:
        is_long = head[start] & _LONG
        length = head[start + 1 : start + _LONG_HEAD] if is_long else head[start + 1 : start + 2]
        body = start + (_LONG_HEAD if is_long else _SHORT_HEAD)
        if head.startswith(_READY, body):
            return True
        if head.startswith(_ERROR, body):
            return False
        start = body + int.from_bytes(length, "big")
    return None


def network_of(address: str) -> str:
    """Return the network of an address: IPv4 addresses stand for themselves."""
    found = ipaddress.ip_address(address.partition("%")[0])
    if isinstance(found, ipaddress.IPv6Address):
        if found.ipv4_mapped is None:
            return str(ipaddress.ip_network((found, _NETWORK_BITS), strict=False))
        found = found.ipv4_mapped
    return str(found)


class Connection:
    """One TCP connection, and its connection to the daemon if there is one.

    Attributes:
        outer: the connection of the client.
        inner: the connection to the daemon; None before the client's first bytes.
        address: the client's address and port, for the log.
        network: the client's network.
        since_s: monotonic time of its beginning.
        head: the first bytes from the daemon; None after the verdict.
        unsent: bytes that the other end of a connection has not taken yet, by the end.
        events: the events that are watched, by the end.
    """

    def __init__(self, outer: socket.socket, address: str, network: str) -> None:
        self.outer = outer
        self.inner: socket.socket | None = None
        self.address = address
        self.network = network
        self.since_s = time.monotonic()
        self.head: bytearray | None = bytearray()
        self.unsent: dict[socket.socket, bytes] = {}
        self.events: dict[socket.socket, int] = {}

    def other(self, end: socket.socket) -> socket.socket | None:
        """Return the other end."""
        return self.inner if end is self.outer else self.outer


class Unproven:
    """Connections of one stage without a proof, oldest first."""

    def __init__(self) -> None:
        self._networks: dict[str, dict[Connection, None]] = {}
        self._all: dict[Connection, None] = {}

    def __len__(self) -> int:
        return len(self._all)

    def __contains__(self, connection: object) -> bool:
        return connection in self._all

    def add(self, connection: Connection) -> None:
        """Add a connection."""
        self._all[connection] = None
        self._networks.setdefault(connection.network, {})[connection] = None

    def remove(self, connection: Connection) -> None:
        """Remove a connection if it is there."""
        if self._all.pop(connection, connection) is None:
            of_network = self._networks[connection.network]
            del of_network[connection]
            if not of_network:
                del self._networks[connection.network]

    @property
    def oldest(self) -> Connection | None:
        """The oldest connection; None if there is none."""
        return next(iter(self._all), None)

    @property
    def victim(self) -> Connection | None:
        """The oldest connection of the network that has the most; None if there is none."""
        if not self._networks:
            return None
        most = max(self._networks, key=lambda network: len(self._networks[network]))
        return next(iter(self._networks[most]))


class Relay:
    """Passes bytes between TCP connections and the daemon's socket, and bounds both.

    Args:
        listener: listens at the TCP address.
        target: the path of the daemon's socket.
        slots: the most connections to the daemon at a time. A connection that ended keeps its slot
            until the daemon has closed its end.
        handles: the most file handles for connections.
        report: writes a line for the daemon.
    """

    def __init__(
        self,
        listener: socket.socket,
        target: str,
        slots: int,
        handles: int,
        report: Callable[[str], None],
    ) -> None:
        self._listener = listener
        self._target = target
        self._slots = slots
        self._silent_max = max(1, handles - 2 * slots)
        self._report = report
        self._selector = selectors.DefaultSelector()
        self._silent = Unproven()
        self._greeting = Unproven()
        self._waiting: deque[Connection] = deque()
        self._ending: set[socket.socket] = set()
        self._inner_count = 0
        self._turned_away = 0
        self._buffer = memoryview(bytearray(limits.RELAY_BYTES))
        listener.setblocking(False)
        self._selector.register(listener, selectors.EVENT_READ, None)

    def watch(self, handle: int) -> None:
        """End `run` when the handle is readable."""
        self._selector.register(handle, selectors.EVENT_READ, None)

    def run(self) -> None:
        """Serve until the watched handle is readable."""
        while True:
            ready = self._selector.select(limits.RELAY_CHECK_S)
            is_accepting = False
            for key, events in ready:
                if isinstance(key.data, Connection):
                    assert isinstance(key.fileobj, socket.socket)
                    self._serve(key.data, key.fileobj, events)
                elif key.fileobj is self._listener:
                    is_accepting = True
                elif key.data is self._ending:
                    assert isinstance(key.fileobj, socket.socket)
                    self._drain(key.fileobj)
                else:
                    return
            # Last, so that ended connections leave their places first.
            if is_accepting:
                self._accept()
            self._end_late()
            self._report_turned_away()

    def close(self) -> None:
        """Close all connections and the listening socket."""
        for key in list(self._selector.get_map().values()):
            if isinstance(key.data, Connection):
                key.data.outer.close()
                if key.data.inner is not None:
                    key.data.inner.close()
        for waiting in self._waiting:
            waiting.outer.close()
        for inner in self._ending:
            inner.close()
        self._selector.close()
        self._listener.close()

    # --- new connections -------------------------------------------------------------------------

    def _accept(self) -> None:
        for _ in range(limits.RELAY_ACCEPTS_MAX):
            try:
                outer, (host, port, *_) = self._listener.accept()
            except OSError:
                return
            outer.setblocking(False)
            with suppress(OSError):
                outer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            shown = f"[{host}]" if ":" in host else host
            connection = Connection(outer, f"{shown}:{port}", network_of(host))
            self._silent.add(connection)
            self._watch(connection, outer, selectors.EVENT_READ)
            if len(self._silent) > self._silent_max:
                self._turn_away(self._silent.victim)

    def _turn_away(self, connection: Connection | None) -> None:
        if connection is not None:
            self._turned_away += 1
            self._end(connection)

    def _end_late(self) -> None:
        """End the connections whose handshake takes too long."""
        latest_s = time.monotonic() - limits.HANDSHAKE_MS / 1000
        for stage in (self._silent, self._greeting):
            while (oldest := stage.oldest) is not None and oldest.since_s < latest_s:
                self._end(oldest)

    def _report_turned_away(self) -> None:
        if self._turned_away:
            self._report(f"turned_away {self._turned_away}")
            self._turned_away = 0

    # --- connections to the daemon ---------------------------------------------------------------

    def _ask_for_slot(self, connection: Connection) -> None:
        """Connect to the daemon, or wait until an ended connection has left its slot."""
        self._silent.remove(connection)
        self._greeting.add(connection)
        if self._inner_count < self._slots:
            self._connect(connection)
            return
        self._watch(connection, connection.outer, 0)
        self._waiting.append(connection)
        if len(self._waiting) > len(self._ending):
            # The new one itself, if every other client has proven its key.
            self._turn_away(self._greeting.victim)

    def _connect(self, connection: Connection) -> None:
        inner = socket.socket(socket.AF_UNIX)
        inner.setblocking(False)
        try:
            inner.connect(self._target)
        except OSError:
            # The daemon is busy or ending; the client connects again.
            inner.close()
            self._turn_away(connection)
            return
        connection.inner = inner
        self._inner_count += 1
        self._watch(connection, inner, selectors.EVENT_READ)
        self._watch(connection, connection.outer, selectors.EVENT_READ)

    def _drain(self, inner: socket.socket) -> None:
        """Wait for the daemon to close an ended connection, and give its slot to the next one."""
        try:
            if inner.recv_into(self._buffer):
                return
        except BlockingIOError:
            return
        except OSError:
            pass
        self._ending.discard(inner)
        self._selector.unregister(inner)
        self._close_inner(inner)

    def _close_inner(self, inner: socket.socket) -> None:
        inner.close()
        self._inner_count -= 1
        while self._waiting and self._inner_count < self._slots:
            self._connect(self._waiting.popleft())

    # --- bytes -----------------------------------------------------------------------------------

    def _serve(self, connection: Connection, end: socket.socket, events: int) -> None:
        if end not in connection.events:
            # It ended in this round.
            return
        if connection in self._silent:
            self._ask_for_slot(connection)
            return
        try:
            if events & selectors.EVENT_WRITE:
                self._send(connection, end, connection.unsent.pop(end))
            if events & selectors.EVENT_READ:
                self._receive(connection, end)
        except BlockingIOError:
            pass
        except OSError:
            self._end(connection)

    def _receive(self, connection: Connection, end: socket.socket) -> None:
        other = connection.other(end)
        if other is None or other in connection.unsent:
            return
        size = end.recv_into(self._buffer)
        if not size:
            self._end(connection)
            return
        data = self._buffer[:size]
        if connection.head is not None and end is connection.inner:
            self._judge(connection, data)
        self._send(connection, other, data)

    def _send(self, connection: Connection, end: socket.socket, data: "memoryview | bytes") -> None:
        """Pass bytes on; what the end does not take now stops the other end until it does."""
        try:
            sent = end.send(data)
        except BlockingIOError:
            sent = 0
        source = connection.other(end)
        assert source is not None
        if sent < len(data):
            connection.unsent[end] = bytes(data[sent:])
        for each in (end, source):
            other = connection.other(each)
            is_read = other not in connection.unsent
            is_written = each in connection.unsent
            self._watch(
                connection,
                each,
                (selectors.EVENT_READ if is_read else 0)
                | (selectors.EVENT_WRITE if is_written else 0),
            )

    def _judge(self, connection: Connection, data: memoryview) -> None:
        head = connection.head
        assert head is not None
        head += data
        verdict = verdict_of(bytes(head[:_VERDICT_BYTES_MAX]))
        if verdict is None:
            return
        connection.head = None
        if verdict:
            self._greeting.remove(connection)
        self._report(f"{'admitted' if verdict else 'refused'} {connection.address}")

    def _watch(self, connection: Connection, end: socket.socket, events: int) -> None:
        known = connection.events.get(end, 0)
        if events == known:
            return
        if not known:
            self._selector.register(end, events, connection)
        elif events:
            self._selector.modify(end, events, connection)
        else:
            self._selector.unregister(end)
        connection.events[end] = events

    def _end(self, connection: Connection) -> None:
        """End a connection; its slot is free once the daemon has closed its end, too."""
        self._silent.remove(connection)
        self._greeting.remove(connection)
        for end in connection.events:
            self._watch(connection, end, 0)
        connection.events.clear()
        connection.outer.close()
        inner = connection.inner
        if inner is None:
            with suppress(ValueError):
                self._waiting.remove(connection)
            return
        try:
            inner.shutdown(socket.SHUT_WR)
        except OSError:
            self._close_inner(inner)
            return
        self._ending.add(inner)
        self._selector.register(inner, selectors.EVENT_READ, self._ending)


def main(listener: int, target: str, slots: int) -> None:
    """Relay until standard input ends."""
    most, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if most == resource.RLIM_INFINITY:
        most = limits.RELAY_HANDLES_MAX
    handles = min(most, limits.RELAY_HANDLES_MAX) - _OWN_HANDLES
    os.set_blocking(sys.stdout.fileno(), False)

    def report(line: str) -> None:
        # A daemon that is too busy to read loses lines of its log, and no client.
        with suppress(BlockingIOError):
            os.write(sys.stdout.fileno(), f"{line}\n".encode())

    listening = socket.socket(fileno=listener)
    with closing(Relay(listening, target, slots, handles, report)) as relay:
        relay.watch(sys.stdin.fileno())
        relay.run()


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2], int(sys.argv[3]))
