"""The client's end of the local socket, against an end that does what a daemon never should."""

import errno
import os
import select
import signal
import socket
import time
from collections.abc import Callable, Generator
from pathlib import Path

import pytest

from steno import connect_sync
from steno._connection import OutOfHandles
from steno._local_connection import LocalConnection
from steno_protocol import limits
from steno_protocol.zmtp import Inbound, Outbound


class Door:
    """A socket that somebody listens at, and the first who came.

    Args:
        path: of the socket.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._listener.bind(str(path))
        self._listener.listen()
        self.peer = self._listener

    def let_in(self) -> LocalConnection:
        """Have somebody connect, and end the handshake."""
        connection = LocalConnection("ipc", str(self.path))
        self.peer, _ = self._listener.accept()
        inbound = Inbound(b"ROUTER")
        while not inbound.is_ready or inbound.owed:
            self.peer.sendall(bytes(inbound.owed))
            inbound.owed.clear()
            if not inbound.is_ready:
                connection.wait(time.monotonic() + 1)
                inbound.feed(self.peer.recv(4096))
        assert connection.wait_until_ready(time.monotonic() + 30)
        return connection

    def say(self, *messages: bytes) -> None:
        """Send messages of one frame."""
        outbound = Outbound()
        for message in messages:
            outbound.put([message])
        while outbound:
            outbound.went(self.peer.send(outbound.next_piece()))

    def close(self) -> None:
        """Hang up, and let nobody in any more."""
        self.peer.close()
        self._listener.close()


class Failing:
    """A socket whose calls of one name fail, as they do when a signal handler raises in them."""

    def __init__(self, inner: socket.socket, name: str, error: OSError) -> None:
        self._inner = inner
        self._name = name
        self._error = error

    def __getattr__(self, name: str) -> object:
        return self._fail if name == self._name else getattr(self._inner, name)

    def _fail(self, *_: object) -> None:
        raise self._error


@pytest.fixture
def door(root: Path) -> Generator[Door]:
    root.mkdir(parents=True, exist_ok=True)
    there = Door(root / "door.sock")
    yield there
    there.close()


def is_told(connection: LocalConnection) -> bool:
    """Whether its end can be noticed by who waits for it."""
    return bool(select.select([connection.monitor_fd], [], [], 0)[0])


def handles() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def test_all_that_is_there_is_given(door: Door) -> None:
    connection = door.let_in()
    messages = [b"%04d" % number * 250 for number in range(120)]
    door.say(*messages)
    assert connection.receive(1000) == [[message] for message in messages]
    door.say(*messages)
    assert connection.receive(7) == [[message] for message in messages[:7]]
    assert connection.receive(1000) == [[message] for message in messages[7:]]
    assert connection.receive(1000) == []
    connection.close()


def test_more_is_expected_while_a_message_is_half_there_or_behind_very_much(door: Door) -> None:
    connection = door.let_in()
    assert not connection.has_messages
    assert not connection.expects_more
    door.say(b"short")
    assert connection.receive(9) == [[b"short"]]
    assert not connection.expects_more
    door.peer.sendall(b"\x00\x04ha")
    assert not connection.has_messages
    # It was looked for again, and there was nothing.
    assert connection.wait(time.monotonic()) == (False, False)
    assert not connection.expects_more
    door.peer.sendall(b"l")
    connection.wait(time.monotonic() + 30)
    assert connection.expects_more
    door.peer.sendall(b"f")
    assert connection.receive(9) == [[b"half"]]
    assert not connection.has_messages
    door.say(b"x" * 100_000)
    assert connection.receive(9) == [[b"x" * 100_000]]
    assert connection.expects_more
    assert not connection.has_messages
    assert not connection.expects_more
    connection.close()


def test_who_breaks_the_protocol_is_noticed_by_who_waits_for_the_end(door: Door) -> None:
    connection = door.let_in()
    door.say(b"before")
    assert connection.has_messages
    door.peer.sendall(b"\xff" * 100)
    assert connection.receive(1) == [[b"before"]]
    assert connection.receive(1) == []
    assert is_told(connection)
    assert connection.is_lost()
    connection.close()


def test_what_came_before_the_end_is_received_also_when_nothing_can_be_sent(door: Door) -> None:
    connection = door.let_in()
    door.say(b"answer", b"another")
    door.close()
    connection.send([b"request"])
    assert is_told(connection)
    assert not connection.is_lost()
    assert connection.receive(9) == [[b"answer"], [b"another"]]
    assert connection.receive(9) == []
    assert connection.is_lost()
    connection.close()


@pytest.mark.parametrize(
    ("name", "work"),
    [
        ("recv", lambda connection: connection.receive(1)),
        ("recv", lambda connection: connection.receive_soon()),
        ("send", lambda connection: connection.send([b"request"])),
    ],
)
def test_an_error_of_a_signal_handler_goes_to_its_caller(
    door: Door,
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    work: Callable[[LocalConnection], object],
) -> None:
    connection = door.let_in()
    error = TimeoutError("of the program")
    with monkeypatch.context() as patched:
        patched.setattr(connection, "_socket", Failing(connection._socket, name, error))
        with pytest.raises(TimeoutError, match="of the program"):
            work(connection)
    assert not connection.is_lost()
    connection.close()


def test_a_signal_handler_may_end_a_wait_by_an_error(door: Door) -> None:
    connection = door.let_in()

    def end(*_: object) -> None:
        raise TimeoutError("of the program")

    before = signal.signal(signal.SIGALRM, end)
    try:
        # Earlier than the wait can end by itself.
        signal.setitimer(signal.ITIMER_REAL, limits.ANSWER_SOON_MS / 4000)
        with pytest.raises(TimeoutError, match="of the program"):
            connection.receive_soon()
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    door.say(b"still there")
    assert connection.receive(1) == [[b"still there"]]
    connection.close()


class FullKernel:
    """An epoll that can be opened and watches nothing."""

    def __init__(self, inner: select.epoll) -> None:
        self._inner = inner

    def register(self, *_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def close(self) -> None:
        self._inner.close()


@pytest.mark.parametrize("opened", [0, 1])
@pytest.mark.parametrize("is_full", [False, True])
def test_without_a_handle_nothing_is_left_open(
    door: Door, monkeypatch: pytest.MonkeyPatch, opened: int, *, is_full: bool
) -> None:
    count = 0

    def epoll() -> object:
        nonlocal count
        count += 1
        if count <= opened:
            return make()
        if is_full:
            return FullKernel(make())
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    make = select.epoll
    before = handles()
    with monkeypatch.context() as patched:
        patched.setattr(select, "epoll", epoll)
        # Kept with its traceback, as a caller may.
        with pytest.raises(OutOfHandles) as kept:
            LocalConnection("ipc", str(door.path))
    assert handles() == before, kept


class Unhurried:
    """A connection on which the rest of a message is waited for, however long it takes.

    More is expected only while a part is there: that the rest comes is sure.

    Args:
        inner: the connection.
    """

    def __init__(self, inner: LocalConnection) -> None:
        self._inner = inner

    def __getattr__(self, name: str) -> object:
        return getattr(self._inner, name)

    @property
    def expects_more(self) -> bool:
        """Whether the rest of a message is to come."""
        return self._inner._inbound.is_midway and self._inner.expects_more

    def wait(self, deadline: float, *, to_send: bool = False) -> tuple[bool, bool]:
        """As the inner one, which gives up after a second."""
        if self._inner._inbound.is_midway:
            select.select([self._inner.fd], [], [], 30)
        return self._inner.wait(deadline, to_send=to_send)


def test_a_refresh_takes_in_more_than_the_kernel_holds_for_a_connection(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Machines stand still now and then; what is tested is not how quick the daemon is.
    monkeypatch.setattr(limits, "REFRESH_S_MAX", 30.0)
    with connect_sync(root) as writer, connect_sync(root) as reader:
        others, followed = writer.open("demo", follow=False), reader.open("demo")
        connection = reader._link._connection
        assert isinstance(connection, LocalConnection)
        assert not select.select([connection.fd], [], [], 0)[0]
        text = "x" * 3_000_000
        others.append_message({"role": "user", "content": text}, durability="written")
        assert select.select([connection.fd], [], [], 30)[0]
        monkeypatch.setattr(reader._link, "_connection", Unhurried(connection))
        followed.refresh()
        assert [message["content"] for message in followed.history] == [text]
