"""The client's end of the local socket: what comes and goes, with an end that is played by hand."""

import select
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from steno import connect_sync
from steno._connect import local_connection
from steno._connect.local_connection import LocalConnection
from steno_protocol import limits
from support.door import (
    MORE_THAN_FITS,
    Door,
    DrivenClock,
    Failing,
    fill,
    is_readable,
    written,
)

PING = b"\x04\x0b\x04PING\0\0abcd"
PONG = b"\x04\x09\x04PONGabcd"

Work = Callable[[LocalConnection], object]


def is_told(connection: LocalConnection) -> bool:
    """Whether who waits on `fd` is told that something is to be done."""
    return is_readable(connection.fd)


def test_all_that_is_there_is_given(door: Door, connection: LocalConnection) -> None:
    messages = [b"%04d" % number * 250 for number in range(120)]
    door.say(*messages)
    assert connection.receive(1000) == [[message] for message in messages]
    door.say(*messages)
    assert connection.receive(7) == [[message] for message in messages[:7]]
    assert connection.receive(1000) == [[message] for message in messages[7:]]
    assert connection.receive(1000) == []


def test_more_is_expected_while_a_message_is_half_there_or_behind_very_much(
    door: Door, connection: LocalConnection
) -> None:
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


def test_fd_tells_of_what_has_come_until_it_is_received(
    door: Door, connection: LocalConnection
) -> None:
    assert not connection.tells_once
    assert not is_told(connection)
    door.say(b"one")
    assert is_told(connection)
    assert is_told(connection)
    assert connection.receive(9) == [[b"one"]]
    assert not is_told(connection)


def test_what_does_not_fit_goes_later_and_fd_tells_when(
    door: Door, connection: LocalConnection
) -> None:
    assert connection.can_send
    fill(connection)
    assert not is_told(connection)
    assert not connection.send([b"refused"])
    whole = written(MORE_THAN_FITS)
    came = door.heard()
    while len(came) < len(whole):
        assert is_told(connection)
        connection.wait(time.monotonic(), to_send=True)
        came += door.heard()
    assert came == whole
    assert connection.can_send
    # Nothing is to be done any more: who watches must not spin.
    assert not is_told(connection)
    assert connection.send([b"next"])
    assert door.heard() == written(b"next")


def test_what_comes_is_told_and_given_also_while_nothing_can_go(
    door: Door, connection: LocalConnection
) -> None:
    assert connection.is_ready
    fill(connection)
    assert not connection.is_ready
    door.say(b"one")
    assert is_told(connection)
    assert connection.is_ready
    assert connection.receive(1) == [[b"one"]]
    assert not connection.is_ready


@pytest.mark.parametrize(
    "look",
    [
        pytest.param(lambda connection: connection.send([b"after"]), id="send"),
        pytest.param(lambda connection: connection.can_send, id="can_send"),
        pytest.param(lambda connection: connection.is_ready, id="is_ready"),
        pytest.param(lambda connection: connection.receive(1), id="receive"),
        pytest.param(lambda connection: connection.wait(time.monotonic()), id="wait"),
    ],
)
def test_each_look_sends_what_did_not_fit(
    door: Door, connection: LocalConnection, look: Work
) -> None:
    fill(connection)
    whole = written(MORE_THAN_FITS)
    came = door.heard()
    while len(came) < len(whole):
        look(connection)
        more = door.heard()
        assert more
        came += more
    assert came[: len(whole)] == whole


def test_all_parts_go_at_once_that_the_kernel_has_room_for(
    door: Door, connection: LocalConnection
) -> None:
    large = b"x" * limits.GATHERED_BYTES_MAX
    assert connection.send([large, b"end"])
    assert door.heard() == b"\x03" + len(large).to_bytes(8, "big") + large + b"\x00\x03end"


def test_a_sign_of_life_is_given_but_not_while_the_daemon_takes_nothing(
    door: Door, connection: LocalConnection
) -> None:
    door.peer.sendall(PING)
    connection.wait(time.monotonic() + 30)
    assert door.heard() == PONG
    fill(connection)
    door.peer.sendall(PING)
    connection.wait(time.monotonic() + 30)
    whole = written(MORE_THAN_FITS)
    came = door.heard()
    while not connection.can_send:
        came += door.heard()
    came += door.heard()
    assert came == whole
    door.peer.sendall(PING)
    connection.wait(time.monotonic() + 30)
    assert door.heard() == PONG


def test_no_more_is_taken_in_than_is_asked_for(door: Door, connection: LocalConnection) -> None:
    head = len(written(b"x" * 1000)) - 1000
    # Each is as much as the kernel is asked for at a time.
    each = limits.GATHERED_BYTES_MAX - head
    door.say(b"a" * each, b"b" * each)
    assert connection.receive(1) == [[b"a" * each]]
    # The rest slows the daemon, and costs this process nothing.
    assert is_told(connection)
    assert connection.receive(9) == [[b"b" * each]]


def test_soon_is_a_message_that_is_there_or_none(door: Door, connection: LocalConnection) -> None:
    assert connection.receive_soon() is None
    door.say(b"one", b"two")
    assert connection.receive_soon() == [b"one"]
    assert connection.receive_soon() == [b"two"]
    assert connection.receive_soon() is None


WAITING = """
import sys
from steno._connect.local_connection import LocalConnection
from steno_protocol import limits

limits.ANSWER_SOON_MS = 60_000
connection = LocalConnection("ipc", sys.argv[1])
print("asked", flush=True)
connection.receive_soon()
"""
"""Somebody who said something, and then sleeps until there is an answer."""


def naps(process: int) -> int:
    """How often a process has gone to sleep; waits until it is asleep."""
    while True:
        told = dict(
            line.split(":", 1)
            for line in Path(f"/proc/{process}/status").read_text(encoding="ascii").splitlines()
        )
        if told["State"].split()[0] == "S":
            return int(told["voluntary_ctxt_switches"])


def test_who_waits_for_an_answer_is_not_woken_when_the_request_is_taken_in(door: Door) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", WAITING, str(door.path)], stdout=subprocess.PIPE
    ) as waiting:
        assert waiting.stdout is not None
        assert waiting.stdout.readline() == b"asked\n"
        before = naps(waiting.pid)
        door.accept()
        assert door.peer.recv(4096)
        assert naps(waiting.pid) == before
        door.close()
    assert waiting.returncode == 0


@pytest.mark.parametrize(
    ("work", "given"),
    [
        pytest.param(lambda one: one.receive_soon(), [b"two"], id="receive_soon"),
        pytest.param(lambda one: one.receive(9), [[b"two"], [b"three"]], id="receive"),
        pytest.param(lambda one: one.wait(time.monotonic() + 30), (True, False), id="wait"),
        pytest.param(lambda one: one.has_messages, True, id="has_messages"),
        pytest.param(lambda one: one.is_ready, True, id="is_ready"),
    ],
)
def test_what_was_taken_in_already_is_not_waited_for(
    door: Door,
    connection: LocalConnection,
    monkeypatch: pytest.MonkeyPatch,
    work: Work,
    given: object,
) -> None:
    door.say(b"one", b"two", b"three")
    assert connection.receive(1) == [[b"one"]]
    error = AssertionError("it is there already")
    monkeypatch.setattr(connection, "_socket", Failing(connection._socket, "recv", error))
    monkeypatch.setattr(connection, "_news", Failing(connection._news, "poll", error))
    assert work(connection) == given


class Impatient:
    """A socket that is never to be waited for.

    Args:
        inner: it, of which a call may be waited for.
    """

    def __init__(self, inner: socket.socket) -> None:
        self._inner = inner

    def __getattr__(self, name: str) -> object:
        return getattr(self._inner, name)

    def recv(self, size: int, how: int = 0) -> bytes:
        """Take what is there."""
        assert how & socket.MSG_DONTWAIT
        return self._inner.recv(size, how)

    def send(self, data: bytes, how: int = 0) -> int:
        """Send what there is room for."""
        assert how & socket.MSG_DONTWAIT
        return self._inner.send(data, how)


@pytest.mark.parametrize(
    "work",
    [
        pytest.param(lambda connection: connection.has_messages, id="has_messages"),
        pytest.param(lambda connection: connection.is_ready, id="is_ready"),
        pytest.param(lambda connection: connection.receive(1), id="receive"),
        pytest.param(lambda connection: connection.wait(time.monotonic()), id="wait"),
        pytest.param(fill, id="send"),
    ],
)
def test_nothing_is_waited_for_unasked_once_an_answer_was(
    connection: LocalConnection, monkeypatch: pytest.MonkeyPatch, work: Work
) -> None:
    assert connection.receive_soon() is None
    monkeypatch.setattr(connection, "_socket", Impatient(connection._socket))
    work(connection)


def test_no_answer_is_waited_for_while_the_request_has_not_gone(
    connection: LocalConnection, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert connection.receive_soon() is None
    fill(connection)
    monkeypatch.setattr(connection, "_socket", Impatient(connection._socket))
    assert connection.receive_soon() is None


def driven(connection: LocalConnection, monkeypatch: pytest.MonkeyPatch) -> DrivenClock:
    """The clock that a connection goes by from now on, while nothing happens on it."""
    clock = DrivenClock()
    monkeypatch.setattr(local_connection, "time", clock)
    monkeypatch.setattr(connection, "_news", clock)
    return clock


@pytest.mark.parametrize(
    ("left_s", "waited_s"),
    [
        pytest.param(-5.0, 0.0, id="before"),
        pytest.param(0.25, 0.25, id="soon"),
        # A caller without a deadline looks about now and then.
        pytest.param(float("inf"), 1.0, id="never"),
    ],
)
def test_a_wait_lasts_until_its_deadline_and_a_second_at_most(
    connection: LocalConnection, monkeypatch: pytest.MonkeyPatch, left_s: float, waited_s: float
) -> None:
    clock = driven(connection, monkeypatch)
    assert connection.wait(clock.now + left_s) == (False, False)
    assert clock.waits == [waited_s]


def test_a_wait_to_send_is_over_once_a_message_can_go(
    connection: LocalConnection, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = driven(connection, monkeypatch)
    assert connection.wait(clock.now + 0.25, to_send=True) == (False, False)
    assert clock.waits == []


def test_a_wait_to_send_lasts_while_nothing_can_go(
    connection: LocalConnection, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(connection)
    clock = driven(connection, monkeypatch)
    assert connection.wait(clock.now + 0.25, to_send=True) == (False, False)
    assert clock.waits == [0.25]


def test_a_handshake_that_does_not_end_is_waited_for_until_the_deadline(
    door: Door, monkeypatch: pytest.MonkeyPatch
) -> None:
    with closing(door.connect()) as connection:
        clock = driven(connection, monkeypatch)
        began = clock.now
        assert not connection.wait_until_ready(began + 2.25)
        assert clock.now == began + 2.25
        assert max(clock.waits) <= 1.0
        assert not connection.wait_until_ready(began)
        assert not connection.is_lost()


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
        assert not is_told(connection)
        text = "x" * 3_000_000
        others.append_message({"role": "user", "content": text}, durability="written")
        assert select.select([connection.fd], [], [], 30)[0]
        monkeypatch.setattr(reader._link, "_connection", Unhurried(connection))
        followed.refresh()
        assert [message["content"] for message in followed.history] == [text]
