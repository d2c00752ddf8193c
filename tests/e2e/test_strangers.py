"""Strangers at the daemon's remote address, without a key or a message."""

import os
import signal
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from socket import create_connection

import pytest

import steno
from steno_protocol.commands import Stats
from steno_protocol.replies import StatsReport
from support.crowd import wait_until
from support.foreground import ForegroundDaemon
from support.remote_access import allow, endpoint_of, listen
from support.served_transport import GREETING

FEW_FILES = 256
FLOOD = 1000
HELLO = {"role": "user", "content": "hi"}


@pytest.fixture
def key(root: Path) -> Path:
    """The key file of an admitted client."""
    return allow(root, "laptop")


@pytest.fixture
def daemon(root: Path, key: Path) -> Iterator[ForegroundDaemon]:
    """One that may open few files, and listens for other machines."""
    assert key.exists()
    listen(root)
    daemon = ForegroundDaemon(root)
    daemon.handles_max = FEW_FILES
    with daemon:
        yield daemon


@contextmanager
def strangers(daemon: ForegroundDaemon, count: int, data: bytes) -> Iterator[None]:
    """Connections of the given number that send data, and nothing after it."""
    port = int(endpoint_of(daemon).rpartition(":")[2])
    with ExitStack() as made:
        for _ in range(count):
            one = made.enter_context(create_connection(("127.0.0.1", port)))
            one.sendall(data)
        yield


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(b"", id="silent"),
        pytest.param(GREETING.replace(b"NULL\0", b"CURVE"), id="greeting", marks=pytest.mark.slow),
    ],
)
def test_strangers_end_neither_the_daemon_nor_the_service_of_clients(
    root: Path, key: Path, daemon: ForegroundDaemon, data: bytes
) -> None:
    endpoint = endpoint_of(daemon)
    with (
        steno.connect_sync(root, spawn=False) as local,
        steno.connect_sync(endpoint=endpoint, key_file=key) as remote,
    ):
        far = remote.open("far", follow=False)
        with strangers(daemon, FLOOD, data):
            wait_until(lambda: local.request(Stats(), StatsReport)[0].turned_away > FLOOD // 2, 60)
            # A quarter of the daemon's handles is all that other machines can take.
            open_files = local.request(Stats(), StatsReport)[0].open_files
            assert open_files is not None
            assert open_files < FEW_FILES // 2
            assert far.append_message(HELLO).head.line == 1
            with steno.connect_sync(endpoint=endpoint, key_file=key) as late:
                assert late.session("far").append_message(HELLO).head.line == 2
            with ExitStack() as others:
                for number in range(FEW_FILES // 8):
                    one = others.enter_context(steno.connect_sync(root, spawn=False))
                    one.open(f"s{number % 4}", follow=False).append_message(HELLO)
        assert local.status().pid == daemon.pid


def test_a_killed_relay_is_started_again_and_clients_go_on(
    root: Path, key: Path, daemon: ForegroundDaemon
) -> None:
    endpoint = endpoint_of(daemon)
    with steno.connect_sync(endpoint=endpoint, key_file=key) as remote:
        session = remote.open("far", follow=False)
        for number in range(3):
            os.kill(relay_of(daemon), signal.SIGKILL)
            assert session.append_message(HELLO).head.line == number + 1
    with steno.connect_sync(root, spawn=False) as local:
        assert local.status().pid == daemon.pid
        assert len(list(local.session("far").lines())) == 3


def test_relay_ends_with_its_daemon(daemon: ForegroundDaemon) -> None:
    endpoint_of(daemon)
    relay = relay_of(daemon)
    daemon.kill()
    wait_until(lambda: not Path(f"/proc/{relay}").exists(), 30)


def relay_of(daemon: ForegroundDaemon) -> int:
    """The process id of the relay of a daemon, once it runs."""
    children = Path(f"/proc/{daemon.pid}/task/{daemon.pid}/children")
    wait_until(lambda: bool(children.read_text().split()), 30)
    return int(children.read_text().split()[0])
