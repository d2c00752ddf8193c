"""The relay: bounds on connections, the proof of a key, and passing of bytes."""

import os
import socket
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from stenod.net.relay import Relay, network_of, verdict_of

GREETING = bytes(64)
WELCOME = b"\x04\xa8\x07WELCOME" + bytes(160)
READY = b"\x04\x30\x05READY" + bytes(42)
LONG_READY = b"\x06" + (300).to_bytes(8, "big") + b"\x05READY" + bytes(294)
ERROR = b"\x04\x0a\x05ERROR\x03400"
ADMITTED = GREETING + WELCOME + READY
SLOTS = 2
SILENT = 3


@pytest.mark.parametrize("ready", [READY, LONG_READY])
def test_proof_is_seen_once_its_name_has_arrived(ready: bytes) -> None:
    head = GREETING + WELCOME
    assert {verdict_of(head[:end]) for end in range(len(head) + 9)} == {None}
    assert verdict_of(head + ready) is True
    assert verdict_of(head + ERROR) is False
    assert verdict_of(b"\xff" * 1024) is None


def test_one_machine_is_one_network() -> None:
    assert network_of("10.0.0.7") == network_of("::ffff:10.0.0.7") == "10.0.0.7"
    assert network_of("2001:db8::1") == network_of("2001:db8::2")
    assert network_of("2001:db8::1") != network_of("2001:db8:0:1::1")


class Daemon:
    """The daemon's end of the relay in this process."""

    def __init__(self, listening: socket.socket, port: int) -> None:
        self._listening = listening
        self.port = port
        self.reports: list[str] = []
        self.has_reported = threading.Condition()

    def accept(self) -> socket.socket:
        """The next connection of the relay."""
        one, _ = self._listening.accept()
        one.settimeout(30)
        return one

    def report(self, line: str) -> None:
        """Take a line of the relay."""
        with self.has_reported:
            self.reports.append(line)
            self.has_reported.notify_all()

    def wait_for(self, event: str, number: int = 1) -> None:
        """Wait until an event was reported so often."""

        def count() -> int:
            found = [line.split() for line in self.reports]
            return sum(
                int(line[1]) if event == "turned_away" else 1 for line in found if line[0] == event
            )

        with self.has_reported:
            assert self.has_reported.wait_for(lambda: count() >= number, 30), self.reports


@pytest.fixture
def daemon(root: Path) -> Iterator[Daemon]:
    """A relay of `SLOTS` connections to the daemon, and `SILENT` others."""
    with relayed(root) as one:
        yield one


@contextmanager
def relayed(root: Path) -> Iterator[Daemon]:
    """A running relay."""
    with ExitStack() as made:
        listening = made.enter_context(socket.socket(socket.AF_UNIX))
        listening.bind(str(root / "target"))
        listening.listen()
        listening.settimeout(30)
        outside = made.enter_context(socket.create_server(("127.0.0.1", 0)))
        daemon = Daemon(listening, outside.getsockname()[1])
        relay = Relay(outside, str(root / "target"), SLOTS, 2 * SLOTS + SILENT, daemon.report)
        ended, end = os.pipe()
        relay.watch(ended)
        thread = threading.Thread(target=relay.run)
        thread.start()
        try:
            yield daemon
        finally:
            os.close(end)
            thread.join()
            os.close(ended)
            relay.close()


def connect(daemon: Daemon, data: bytes = b"") -> socket.socket:
    """A TCP connection that has sent data."""
    one = socket.create_connection(("127.0.0.1", daemon.port), 30)
    one.sendall(data)
    return one


def admit(daemon: Daemon) -> tuple[socket.socket, socket.socket]:
    """Both ends of a connection with a proven key."""
    outer = connect(daemon, b"hello")
    inner = daemon.accept()
    assert inner.recv(5) == b"hello"
    inner.sendall(ADMITTED)
    assert receive(outer, len(ADMITTED)) == ADMITTED
    return outer, inner


def receive(one: socket.socket, size: int) -> bytes:
    """Receive exactly so many bytes."""
    data = bytearray()
    while len(data) < size:
        data += one.recv(size - len(data))
    return bytes(data)


def is_ended(one: socket.socket) -> bool:
    """Whether the other end closes the connection, with unread bytes or without."""
    try:
        return one.recv(1) == b""
    except ConnectionResetError:
        return True


def test_large_data_passes_in_both_directions_and_ends_pass_on(daemon: Daemon) -> None:
    outer, inner = admit(daemon)
    data = os.urandom(1 << 23)
    for source, target in ((outer, inner), (inner, outer)):
        sender = threading.Thread(target=source.sendall, args=(data,))
        sender.start()
        assert receive(target, len(data)) == data
        sender.join()
    outer.close()
    assert inner.recv(1) == b""
    inner.close()
    outer, inner = admit(daemon)
    inner.close()
    assert outer.recv(1) == b""
    outer.close()
    daemon.wait_for("admitted", 2)


def test_silent_connections_never_reach_the_daemon_and_the_oldest_end(daemon: Daemon) -> None:
    with ExitStack() as made:
        silent = [made.enter_context(connect(daemon)) for _ in range(2 * SILENT)]
        daemon.wait_for("turned_away", SILENT)
        assert all(map(is_ended, silent[:SILENT]))
        for _ in range(SLOTS):
            for each in admit(daemon):
                made.enter_context(each)


def test_connections_without_a_proof_leave_their_slots_to_newer_ones(daemon: Daemon) -> None:
    with ExitStack() as made:
        strangers = [made.enter_context(connect(daemon, b"x")) for _ in range(SLOTS)]
        inner = [made.enter_context(daemon.accept()) for _ in range(SLOTS)]
        outer = made.enter_context(connect(daemon, b"hello"))
        # The slot is free once the daemon has closed its end, so it never has more connections.
        assert is_ended(strangers[0])
        assert receive(inner[0], 1) == b"x"
        assert inner[0].recv(1) == b""
        inner[0].close()
        newest = made.enter_context(daemon.accept())
        assert receive(newest, 5) == b"hello"
        newest.sendall(ADMITTED)
        assert receive(outer, len(ADMITTED)) == ADMITTED
        daemon.wait_for("turned_away")


def test_clients_with_a_proof_are_never_ended_for_others(daemon: Daemon) -> None:
    with ExitStack() as made:
        ends = [admit(daemon) for _ in range(SLOTS)]
        for pair in ends:
            for each in pair:
                made.enter_context(each)
        late = made.enter_context(connect(daemon, b"hello"))
        assert is_ended(late)
        daemon.wait_for("turned_away")
        for outer, inner in ends:
            outer.sendall(b"still here")
            assert receive(inner, 10) == b"still here"
