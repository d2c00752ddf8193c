"""The client's end of the local socket: how it begins, fails and ends."""

import errno
import os
import select
import signal
import socket
import sys
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from steno._connect.connection import OutOfHandles
from steno._connect.local_connection import LocalConnection
from steno_protocol import limits
from support.door import Door, Failing, fill, handles, is_readable, written

TWO_LOOKS = [b"x" * 50_000, b"y" * 50_000]
"""Messages of which only the first is there as a whole after one look."""


def test_who_breaks_the_protocol_is_noticed_by_who_waits_for_the_end(
    door: Door, connection: LocalConnection
) -> None:
    door.say(b"before")
    assert connection.has_messages
    door.peer.sendall(b"\xff" * 100)
    assert connection.receive(1) == [[b"before"]]
    assert connection.receive(1) == []
    assert is_readable(connection.monitor_fd)
    assert connection.is_lost()


def test_what_came_before_the_end_is_received_also_when_nothing_can_be_sent(
    door: Door, connection: LocalConnection
) -> None:
    door.say(b"answer", b"another")
    door.close()
    connection.send([b"request"])
    assert is_readable(connection.monitor_fd)
    assert not connection.is_lost()
    assert connection.receive(9) == [[b"answer"], [b"another"]]
    assert connection.receive(9) == []
    assert connection.is_lost()


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
    door.say(b"answer")
    error = TimeoutError("of the program")
    with monkeypatch.context() as patched:
        patched.setattr(connection, "_socket", Failing(connection._socket, name, error))
        with pytest.raises(TimeoutError, match="of the program"):
            work(connection)
    assert not connection.is_lost()


def test_a_signal_handler_may_end_a_wait_by_an_error(
    door: Door, connection: LocalConnection
) -> None:

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


def refuse(error: OSError) -> Callable[..., object]:
    """A call that fails."""

    def fail(*_: object) -> None:
        raise error

    return fail


@pytest.mark.parametrize("name", ["EMFILE", "ENFILE", "ENOSPC", "ENOBUFS", "ENOMEM"])
def test_who_can_open_no_more_is_told_so(
    door: Door, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    error = OSError(getattr(errno, name), "nothing left")
    monkeypatch.setattr(select, "epoll", refuse(error))
    with pytest.raises(OutOfHandles, match="nothing left"):
        LocalConnection("ipc", str(door.path))


@pytest.mark.parametrize(("owner", "name"), [(select, "epoll"), (socket.socket, "connect")])
def test_an_error_of_a_signal_handler_while_it_is_made_goes_to_its_caller(
    door: Door, monkeypatch: pytest.MonkeyPatch, owner: object, name: str
) -> None:
    before = handles()
    with monkeypatch.context() as patched:
        patched.setattr(owner, name, refuse(TimeoutError("of the program")))
        # Kept with its traceback, as a caller may.
        with pytest.raises(TimeoutError, match="of the program") as kept:
            LocalConnection("ipc", str(door.path))
    assert handles() == before, kept


@pytest.mark.parametrize("file_name", ["nothing", "nobody", "no name of a file \ud800"])
def test_where_nobody_listens_it_is_lost_at_once(root: Path, file_name: str) -> None:
    with socket.socket(socket.AF_UNIX) as nobody:
        nobody.bind(str(root / "nobody"))
    with closing(LocalConnection("ipc", str(root / file_name))) as connection:
        assert connection.is_lost()
        assert is_readable(connection.monitor_fd)
        assert not connection.wait_until_ready(float("inf"))
        assert connection.wait(time.monotonic() + 30) == (False, True)


def test_where_too_many_wait_already_it_is_lost_at_once(root: Path) -> None:
    path = str(root / "full.sock")
    with socket.socket(socket.AF_UNIX) as full:
        full.bind(path)
        full.listen(0)
        waiting = [LocalConnection("ipc", path) for _ in range(3)]
        assert waiting[-1].is_lost()
        for each in waiting:
            each.close()


def test_whom_the_daemon_hangs_up_on_before_hands_are_shaken_is_not_ready(door: Door) -> None:
    with closing(door.connect()) as connection:
        door.peer.close()
        assert not connection.wait_until_ready(float("inf"))
        assert connection.is_lost()


@pytest.mark.parametrize("has_closed", [False, True])
@pytest.mark.parametrize(
    ("data", "given"),
    [
        pytest.param(b"", [], id="nothing"),
        pytest.param(b"\x00\x04ha", [], id="part"),
        pytest.param(written(b"one", b"two"), [b"one", b"two"], id="messages"),
        pytest.param(written(b"one") + b"\x00\x04ha", [b"one"], id="message and part"),
        pytest.param(written(b"x" * 100_000), [b"x" * 100_000], id="large"),
        pytest.param(written(*TWO_LOOKS), TWO_LOOKS, id="many"),
    ],
)
def test_what_came_before_the_end_is_given_first(
    door: Door,
    connection: LocalConnection,
    data: bytes,
    given: list[bytes],
    *,
    has_closed: bool,
) -> None:
    assert not is_readable(connection.monitor_fd)
    door.peer.sendall(data)
    if has_closed:
        door.close()
    else:
        door.peer.shutdown(socket.SHUT_WR)
    assert is_readable(connection.monitor_fd)
    received: list[list[bytes]] = []
    while not connection.is_lost():
        came = connection.receive(1)
        assert came
        received += came
    assert received == [[message] for message in given]
    assert connection.is_lost()
    assert connection.receive(1) == []


def test_who_only_waits_is_told_of_the_end(door: Door, connection: LocalConnection) -> None:
    door.say(b"last")
    door.close()
    assert connection.wait(time.monotonic() + 30) == (True, False)
    assert connection.receive(1) == [[b"last"]]
    assert connection.wait(time.monotonic() + 30) == (False, True)
    assert connection.wait(time.monotonic() + 30) == (False, True)


def test_who_breaks_the_protocol_is_hung_up_on(door: Door, connection: LocalConnection) -> None:
    door.peer.sendall(b"\xff" * 100)
    assert connection.receive(1) == []
    assert door.peer.recv(1, socket.MSG_DONTWAIT) == b""


ENDS = [
    "EPIPE", "ECONNRESET", "ECONNABORTED", "ESHUTDOWN", "ENOTCONN", "EINVAL", "EBADF", "ENOMEM",
    "ENOBUFS",
]  # fmt: skip


@pytest.mark.parametrize("name", ENDS)
def test_when_nothing_can_come_any_more_it_is_lost(
    connection: LocalConnection, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    error = OSError(getattr(errno, name), os.strerror(getattr(errno, name)))
    monkeypatch.setattr(connection, "_socket", Failing(connection._socket, "recv", error))
    assert not connection.has_messages
    assert connection.is_lost()


@pytest.mark.parametrize("name", ENDS)
def test_when_nothing_can_go_any_more_it_is_lost_behind_what_came(
    door: Door, connection: LocalConnection, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    door.say(b"came")
    error = OSError(getattr(errno, name), os.strerror(getattr(errno, name)))
    monkeypatch.setattr(connection, "_socket", Failing(connection._socket, "send", error))
    connection.send([b"request"])
    assert is_readable(connection.monitor_fd)
    assert not connection.is_lost()
    assert connection.receive(1) == [[b"came"]]
    assert connection.is_lost()


def test_to_send_to_who_is_gone_signals_nothing(door: Door, connection: LocalConnection) -> None:
    signals: list[int] = []
    # A program may have it end the process, as commands in a pipe do.
    before = signal.signal(signal.SIGPIPE, lambda number, _: signals.append(number))
    try:
        door.close()
        connection.send([b"request"])
    finally:
        signal.signal(signal.SIGPIPE, before)
    assert signals == []


def test_a_closed_one_is_lost_and_takes_gives_and_waits_for_nothing(
    connection: LocalConnection,
) -> None:
    fill(connection)
    connection.close()
    connection.close()
    assert connection.is_lost()
    assert not connection.can_send
    assert not connection.send([b"request"])
    assert connection.receive(1) == []
    assert connection.receive_soon() is None
    assert connection.wait(time.monotonic() + 30, to_send=True) == (False, True)
    assert not connection.wait_until_ready(float("inf"))


def test_one_that_is_dropped_leaves_nothing_open_and_says_nothing(
    door: Door, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[object] = []
    monkeypatch.setattr(sys, "unraisablehook", told.append)
    before = handles()
    dropped = LocalConnection("ipc", str(door.path))
    assert handles() > before
    del dropped
    # One whose making was interrupted before it had anything.
    LocalConnection.__new__(LocalConnection)
    assert handles() == before
    assert told == []
