"""The root of the daemon that a command is connected to, if it is on this machine."""

from pathlib import Path

from steno import connect_sync
from steno_cli.connection import local_root
from steno_protocol import paths
from support.foreground import ForegroundDaemon


def test_the_root_of_a_daemon_that_was_restarted_is_local(root: Path) -> None:
    with ForegroundDaemon(root) as first, connect_sync(root, spawn=False) as client:
        first.stop()
        with ForegroundDaemon(root) as second:
            assert local_root(client) == root
            assert client.welcome.pid == second.pid


def test_a_root_of_another_machines_daemon_is_not_local(root: Path) -> None:
    with ForegroundDaemon(root) as daemon, connect_sync(root, spawn=False) as client:
        assert local_root(client) == root
        lock = root / paths.LOCK
        note = lock.read_bytes()
        lock.write_bytes(note.replace(str(daemon.pid).encode(), b"1", 1))
        assert local_root(client) is None
