"""Silent daemons: a TCP client notices the silence, a local client waits."""

import os
import signal
import socket
import threading
import time
from collections.abc import Generator, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import anyio
import anyio.to_thread
import pytest

import steno
from steno._connect.probe import Attempt
from steno._connect.target import Target
from steno_protocol import limits
from support.foreground import ForegroundDaemon
from support.messages import message
from support.remote_access import allow, endpoint_of, listen

LATEST_S = 20.0
"""Far beyond the limits that the clients of these tests have, and far before any other."""


LONGER_THAN_LOCALLY_S = limits.PROBE_TIMEOUT_S + 0.5
"""A daemon of this machine would be given up."""


class Attempts:
    """Notices when a client of this process tries to connect."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._is_made = threading.Event()
        begin = Attempt.__init__

        def begin_and_notice(attempt: Attempt, target: Target, deadline: float) -> None:
            self._is_made.set()
            begin(attempt, target, deadline)

        monkeypatch.setattr(Attempt, "__init__", begin_and_notice)

    @property
    def are_made(self) -> bool:
        """True when a client has tried to connect."""
        return self._is_made.is_set()

    def wait(self) -> None:
        """Wait for one."""
        assert self._is_made.wait(LATEST_S), "the client did not notice"


@contextmanager
def standing_still(pid: int) -> Generator[None]:
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


def pid_of(client: steno.Client | steno.BlockingClient) -> int:
    assert client.welcome is not None
    return client.welcome.pid


@pytest.fixture
def key_file(root: Path) -> Path:
    """A key for a client that may write, of a daemon that does not run yet."""
    return allow(root, "laptop")


@pytest.fixture
def endpoint(root: Path, key_file: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The loopback address of a daemon, whose heartbeats clients of this process soon miss.

    No request is repeated by its timer before these tests are over.
    """
    listen(root)
    monkeypatch.setattr(limits, "HEARTBEAT_MS", 200)
    monkeypatch.setattr(limits, "HEARTBEAT_TIMEOUT_MS", 600)
    monkeypatch.setattr(limits, "RESEND_S", 3 * LATEST_S)
    with ForegroundDaemon(root) as daemon:
        yield endpoint_of(daemon)


@pytest.mark.anyio
async def test_a_follower_over_tcp_notices_the_silence_and_goes_on_behind_it(
    root: Path, endpoint: str, key_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with steno.connect(endpoint=endpoint, key_file=key_file) as follower:
        mirror = await follower.open("demo")
        before, attempts = follower.welcome, Attempts(monkeypatch)
        with standing_still(pid_of(follower)):
            await anyio.to_thread.run_sync(attempts.wait)
        async with steno.connect(root) as writer:
            ack = await (await writer.open("demo", follow=False)).append_message(message("hi"))
        with anyio.fail_after(LATEST_S):
            await mirror.wait_for(ack.head)
        assert mirror.history == [message("hi")]
        assert follower.welcome is not before, "it came back by a new connection"


@pytest.mark.anyio
async def test_pending_request_over_tcp_is_answered_after_the_silence(
    endpoint: str, key_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with steno.connect(endpoint=endpoint, key_file=key_file, timeout=LATEST_S) as client:
        session = await client.open("demo")
        attempts = Attempts(monkeypatch)
        async with anyio.create_task_group() as tasks:
            with standing_still(pid_of(client)):
                tasks.start_soon(session.append_message, message("hi"))
                await anyio.to_thread.run_sync(attempts.wait)
        assert session.history == [message("hi")]


def test_a_blocking_client_over_tcp_notices_the_silence_while_it_waits(
    endpoint: str, key_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with steno.connect_sync(endpoint=endpoint, key_file=key_file, timeout=LATEST_S) as client:
        session = client.open("demo")
        attempts = Attempts(monkeypatch)
        writer = threading.Thread(target=session.append_message, args=(message("hi"),))
        with standing_still(pid_of(client)):
            writer.start()
            attempts.wait()
        writer.join()
        assert session.history == [message("hi")]


@pytest.mark.usefixtures("endpoint")
@pytest.mark.slow
def test_a_local_daemon_that_stands_still_is_waited_for_on_the_same_connection(root: Path) -> None:
    with steno.connect_sync(root) as client:
        session = client.open("demo")
        before, patience_s = client.welcome, client._link.timeout
        client._link.timeout = 2.0
        with standing_still(pid_of(client)), pytest.raises(steno.OutcomeUnknown):
            session.append_message(message("hi"), key="mine")
        client._link.timeout = patience_s
        session.append_message(message("hi"), key="mine")
        assert session.history == [message("hi")]
        assert client.welcome is before


@pytest.mark.slow
def test_a_handshake_that_takes_its_time_is_waited_for(endpoint: str, key_file: Path) -> None:
    with steno.connect_sync(endpoint=endpoint, key_file=key_file) as client:
        pid = pid_of(client)
    made: list[steno.BlockingClient] = []

    def connect() -> None:
        made.append(steno.connect_sync(endpoint=endpoint, key_file=key_file))

    attempt = threading.Thread(target=connect)
    with standing_still(pid):
        attempt.start()
        attempt.join(LONGER_THAN_LOCALLY_S)
        assert attempt.is_alive(), "a satellite would not have been there yet"
    attempt.join(LATEST_S)
    with made[0] as client:
        assert pid_of(client) == pid


def test_waiting_for_an_event_survives_an_unresponsive_machine(
    endpoint: str, key_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with steno.connect_sync(endpoint=endpoint, key_file=key_file) as client:
        client.open("demo", follow=False)
        events = client.session("demo").subscribe("now")
        assert isinstance(events.next_event(LATEST_S), steno.Live)
        attempts, longest_s = Attempts(monkeypatch), 0.0
        with standing_still(pid_of(client)):
            while not attempts.are_made:
                begun = time.monotonic()
                assert events.next_event(0.1) is None
                longest_s = max(longest_s, time.monotonic() - begun)
            for _ in range(3):
                begun = time.monotonic()
                assert events.next_event(0.1) is None
                longest_s = max(longest_s, time.monotonic() - begun)
        # To wait for the attempt would take as long as that may take.
        assert longest_s < limits.REMOTE_PROBE_TIMEOUT_S / 2
        client.session("demo").append_message(message("hi"))
        assert isinstance(events.next_event(LATEST_S), steno.RecordsEvent)


def test_undelivered_tcp_data_ends_the_connection_before_the_request_times_out(
    endpoint: str, key_file: Path
) -> None:
    with steno.connect_sync(endpoint=endpoint, key_file=key_file):
        found = connections_to(int(endpoint.rpartition(":")[2]))
        patience_ms = [
            each.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) for each in found
        ]
        for each in found:
            each.close()
    assert len(patience_ms) == 1
    assert 0 < patience_ms[0] < limits.REQUEST_TIMEOUT_S * 1000 / 2


def connections_to(port: int) -> list[socket.socket]:
    """The connections of this process to a port of this machine, each by a handle of our own."""
    found: list[socket.socket] = []
    for handle in Path("/proc/self/fd").iterdir():
        with suppress(OSError):
            if handle.readlink().name.startswith("socket:"):
                each = socket.socket(fileno=os.dup(int(handle.name)))
                with each:
                    if each.family == socket.AF_INET and each.getpeername()[1] == port:
                        found.append(each.dup())
    return found
