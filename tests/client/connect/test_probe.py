"""The greeting of a daemon by the client's probe."""

from pathlib import Path

import pytest

import steno
from steno_protocol import limits
from support.daemon_in_thread import DaemonInThread


def test_client_ignores_the_late_refusal_of_a_greeting_in_version_1(
    root: Path, daemon: DaemonInThread, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A daemon that is slow to reply is greeted in version 1 too, and replies to both."""
    monkeypatch.setattr(limits, "VERSION_1_S", 0.0)
    with steno.connect_sync(root, spawn=False) as client:
        session = client.open("demo")
        for number in range(10):
            session.append_message({"role": "user", "content": str(number)})
        assert len(session.history) == 10
