"""A daemon under a service manager: notifications, and an inherited socket."""

import os
import select
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import steno
from steno_protocol import limits
from support.foreground import ForegroundDaemon

HANDED_OVER = """
import os, sys
os.dup2(int(sys.argv[1]), 3, inheritable=True)
os.environ.update(LISTEN_PID=str(os.getpid()), LISTEN_FDS="1")
os.execv(sys.executable, [sys.executable, "-m", "stenod", "--foreground", *sys.argv[2:]])
"""


@pytest.fixture
def manager(root: Path) -> Iterator[socket.socket]:
    """The socket that a service manager listens at."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listening:
        listening.bind(str(root / "notify"))
        listening.settimeout(30)
        yield listening


def _next(manager: socket.socket, *, but: str = "WATCHDOG=1") -> str:
    while (message := manager.recv(4096).decode()) == but:
        pass
    return message


def test_systemd_is_notified_of_ready_reload_and_stop(root: Path, manager: socket.socket) -> None:
    daemon = ForegroundDaemon(root)
    daemon.environment = {"NOTIFY_SOCKET": str(root / "notify")}
    with daemon:
        assert manager.recv(4096) == b"READY=1"
        os.kill(daemon.pid, signal.SIGHUP)
        reloading, moment = _next(manager).split("\nMONOTONIC_USEC=")
        assert reloading == "RELOADING=1"
        assert int(moment) > 0
        assert _next(manager) == "READY=1"
        assert daemon.stop() == 0
        assert _next(manager) == "STOPPING=1"


def test_the_watchdog_is_fed_as_long_as_the_event_loop_turns(
    root: Path, manager: socket.socket
) -> None:
    daemon = ForegroundDaemon(root)
    daemon.environment = {"NOTIFY_SOCKET": str(root / "notify"), "WATCHDOG_USEC": "100000"}
    with daemon:
        assert manager.recv(4096) == b"READY=1"
        assert [manager.recv(4096) for _ in range(4)] == [b"WATCHDOG=1"] * 4
        os.kill(daemon.pid, signal.SIGSTOP)
        while select.select([manager], [], [], 0.3)[0]:
            manager.recv(4096)
        os.kill(daemon.pid, signal.SIGCONT)
        assert manager.recv(4096) == b"WATCHDOG=1"


def test_an_abstract_address_and_a_manager_that_has_gone_are_no_trouble(root: Path) -> None:
    daemon = ForegroundDaemon(root)
    name = f"steno-test-{os.getpid()}"
    daemon.environment = {"NOTIFY_SOCKET": f"@{name}"}
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listening:
        listening.bind(f"\0{name}")
        listening.settimeout(30)
        daemon.start()
        assert listening.recv(4096) == b"READY=1"
    assert daemon.stop() == 0


def test_a_daemon_started_by_a_client_notifies_no_service_manager(
    root: Path, manager: socket.socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NOTIFY_SOCKET", str(root / "notify"))
    with steno.connect_sync(root) as client:
        client.status()
    manager.setblocking(False)
    with pytest.raises(BlockingIOError):
        manager.recv(4096)


@contextmanager
def _activated(root: Path, listening: socket.socket) -> Iterator["subprocess.Popen[bytes]"]:
    """A daemon that is given a listening socket as systemd gives it."""
    handle = str(listening.fileno())
    with subprocess.Popen(
        [sys.executable, "-c", HANDED_OVER, handle, "--root", str(root)],
        pass_fds=(listening.fileno(),),
        stderr=subprocess.PIPE,
    ) as process:
        try:
            yield process
        finally:
            process.terminate()


def test_a_connection_before_the_start_is_served(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # On a busy machine a start takes longer than a client waits for a daemon that is there.
    monkeypatch.setattr(limits, "PROBE_TIMEOUT_S", 30.0)
    path = root / "stenod.sock"
    positions: list[str] = []

    def append(text: str) -> None:
        with steno.connect_sync(endpoint=f"ipc://{path}", timeout=30) as client:
            session = client.open("demo", follow=False)
            positions.append(str(session.append_message({"role": "user", "content": text}).first))

    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listening:
        listening.bind(str(path))
        listening.listen(64)
        for number in range(2):
            early = threading.Thread(target=append, args=(f"message {number}",))
            early.start()
            assert select.select([listening], [], [], 30)[0]
            with _activated(root, listening) as daemon:
                early.join(30)
                daemon.terminate()
                assert daemon.wait(30) == 0
            # The path stays its giver's, so that the next client starts the next daemon.
            assert path.is_socket()
    assert positions == ["0:0", "0:1"]


def test_a_socket_that_clients_would_not_find_is_refused(root: Path) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listening:
        listening.bind(str(root / "other.sock"))
        listening.listen(1)
        with _activated(root, listening) as daemon:
            assert daemon.wait(30) == 1
            assert daemon.stderr is not None
            said = daemon.stderr.read().decode()
    assert f"set ListenStream={root}/stenod.sock" in said
