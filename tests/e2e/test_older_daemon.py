"""A daemon of an older protocol version, as it still runs after an upgrade of the package."""

from pathlib import Path

import pytest

import steno
from steno_protocol import limits
from support.command import Steno
from support.foreground import ForegroundDaemon, daemon_of_tests


@pytest.mark.parametrize("command", ["stop", "restart"])
def test_a_daemon_of_an_older_protocol_is_ended_as_its_error_advises(
    root: Path, command: str
) -> None:
    command_line = Steno(root)
    with daemon_of_tests(root, "support.older_daemon") as daemon:
        refused = command_line("status")
        assert refused.code != 0
        assert "is too old" in refused.err
        assert "steno restart" in refused.err
        assert command_line(command).code == 0
        assert daemon.wait() == 0
    running = command_line("status")
    assert (running.code == 0) == (command == "restart")
    assert command_line("stop").code == 0


def test_client_ignores_the_late_refusal_of_a_greeting_in_version_1(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A daemon that is slow to reply is greeted in version 1 too, and replies to both."""
    with ForegroundDaemon(root):
        monkeypatch.setattr(limits, "VERSION_1_S", 0.0)
        with steno.connect_sync(root, spawn=False) as client:
            session = client.open("demo")
            for number in range(10):
                session.append_message({"role": "user", "content": str(number)})
            assert len(session.history) == 10
