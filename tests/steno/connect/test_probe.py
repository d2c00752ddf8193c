"""The greeting of a daemon by the client's probe."""

import time
from collections.abc import Callable
from pathlib import Path

import pytest

import steno
from steno._connect import forbidden
from steno._connect.connection import Connection
from steno._connect.probe import probe
from steno._connect.target import make_target
from steno_protocol import limits
from stenod.daemon import Daemon
from support.daemon_in_thread import DaemonInThread


def _answer_room(
    daemon: Daemon, monkeypatch: pytest.MonkeyPatch, has_room: Callable[[], bool]
) -> None:
    """Let a function say whether there is room for another connection."""
    monkeypatch.setattr(daemon._local, "_has_room", lambda _: has_room())


def test_client_that_is_turned_away_for_a_moment_connects_again(
    root: Path, daemon: DaemonInThread, monkeypatch: pytest.MonkeyPatch
) -> None:
    refusals = iter([False, False])
    daemon.call(lambda running: _answer_room(running, monkeypatch, lambda: next(refusals, True)))
    with steno.connect_sync(root, spawn=False) as client:
        assert client.open("demo").head.line == 0
    assert next(refusals, None) is None


def test_client_that_is_always_turned_away_gets_an_error_in_time(
    root: Path, daemon: DaemonInThread, monkeypatch: pytest.MonkeyPatch
) -> None:
    daemon.call(lambda running: _answer_room(running, monkeypatch, lambda: False))

    def ask_until_the_end() -> None:
        # A quick greeting may be answered before the daemon sees the connection, and ends it.
        with steno.connect_sync(root, spawn=False, timeout=0.2) as client:
            while True:
                client.status()

    with pytest.raises(steno.Unreachable):
        ask_until_the_end()


def test_a_connection_that_fails_after_the_doubt_is_tried_again_for_its_reason(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wait, is_lost = Connection.wait_until_ready, Connection.is_lost
    slow_waits, early_looks, tried = iter([False]), iter([False]), list[bool]()

    def waited(connection: Connection, deadline: float) -> bool:
        return next(slow_waits, True) and wait(connection, deadline)

    def looked(connection: Connection) -> bool:
        return next(early_looks, True) and is_lost(connection)

    monkeypatch.setattr(limits, "SOCKET_DOUBT_S", 0.0)
    monkeypatch.setattr(Connection, "wait_until_ready", waited)
    monkeypatch.setattr(Connection, "is_lost", looked)
    monkeypatch.setattr(forbidden, "check_allowed", lambda _, *, connects: tried.append(connects))
    probe(make_target(str(root), None, None, spawn=False), time.monotonic() + 30)
    assert tried == [False, True]
