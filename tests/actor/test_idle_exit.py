"""The end of an idle daemon."""

from pathlib import Path

import pytest

import steno
from steno_protocol import limits
from steno_protocol.settings import Settings
from support.daemon_in_thread import DaemonInThread
from support.racers import wait_for_jitter


@pytest.fixture(autouse=True)
def _time_to_connect(monkeypatch: pytest.MonkeyPatch) -> None:
    """Until its first client a new daemon counts as used, here also for a slow one."""
    monkeypatch.setattr(limits, "PROBE_TIMEOUT_S", 60.0)


def test_daemon_ends_after_its_idle_time(root: Path) -> None:
    (root / "config.toml").write_text("[life]\nidle_exit_s = 0.2\n")
    with DaemonInThread(root) as daemon:
        with steno.connect_sync(root, spawn=False) as client:
            client.open("demo").append_message({"role": "user", "content": "hi"})
        assert daemon.wait_for(" idle_exit ")
        daemon.wait()
    assert not (root / "stenod.sock").exists()


def test_daemon_with_a_connected_client_does_not_end(root: Path) -> None:
    (root / "config.toml").write_text("[life]\nidle_exit_s = 0.05\n")
    with DaemonInThread(root) as daemon, steno.connect_sync(root, spawn=False) as client:
        # A silent connection counts, too.
        wait_for_jitter(0.5)
        assert not any(" idle_exit " in line for line in daemon.log)
        assert client.status().root == str(root)


def test_daemon_does_not_end_by_itself_by_default() -> None:
    assert Settings().number("life.idle_exit_s") == 0
