"""Strangers at the daemon's remote address, without a key or a message."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from socket import create_connection

import pytest

import steno
from steno_protocol.commands import Stats
from steno_protocol.replies import StatsReport
from support.foreground import ForegroundDaemon
from support.remote_access import allow, endpoint_of, listen

FEW_FILES = 200
HELLO = {"role": "user", "content": "hi"}


@pytest.fixture
def daemon(root: Path) -> Iterator[ForegroundDaemon]:
    """One that may open few files, and listens for other machines."""
    allow(root, "laptop")
    listen(root)
    daemon = ForegroundDaemon(root)
    daemon.handles_max = FEW_FILES
    with daemon:
        yield daemon


@contextmanager
def strangers(daemon: ForegroundDaemon, count: int) -> Iterator[None]:
    """Silent connections of the given number."""
    port = int(endpoint_of(daemon).rpartition(":")[2])
    with ExitStack() as made:
        for _ in range(count):
            made.enter_context(create_connection(("127.0.0.1", port)))
        yield


def test_strangers_take_no_handle_that_a_client_of_this_machine_needs(
    root: Path, daemon: ForegroundDaemon
) -> None:
    with steno.connect_sync(root, spawn=False) as client:
        with strangers(daemon, FEW_FILES):
            # libzmq ends a daemon that has no handle for a local connection, as a kill does, so
            # the burst has to be over: a quarter of the handles is theirs, the others are closed.
            turned_away = FEW_FILES - FEW_FILES // 4
            while client.request(Stats(), StatsReport)[0].turned_away < turned_away:
                assert client.status().pid == daemon.pid
            with ExitStack() as others:
                for number in range(FEW_FILES // 4):
                    one = others.enter_context(steno.connect_sync(root, spawn=False))
                    one.open(f"s{number % 4}", follow=False).append_message(HELLO)
        assert client.request(Stats(), StatsReport)[0].turned_away >= FEW_FILES // 2
        assert client.status().pid == daemon.pid
