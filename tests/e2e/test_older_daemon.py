"""A daemon of an older protocol version, after an upgrade."""

from pathlib import Path

import pytest

from support.command import Steno
from support.foreground import daemon_of_tests


@pytest.mark.parametrize("command", ["stop", "restart"])
def test_a_daemon_of_an_older_protocol_is_ended_as_its_error_advises(
    root: Path, command: str
) -> None:
    command_line = Steno(root)
    with daemon_of_tests(root, "e2e.older_daemon") as daemon:
        refused = command_line("status")
        assert refused.code != 0
        assert "is too old" in refused.err
        assert "steno restart" in refused.err
        assert command_line(command).code == 0
        assert daemon.wait() == 0
    running = command_line("status")
    assert (running.code == 0) == (command == "restart")
    assert command_line("stop").code == 0
