"""The end of an idle daemon."""

from pathlib import Path

import pytest

import steno
from steno_protocol import limits
from steno_protocol.settings import Settings
from stenod.runtime import config
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


def test_daemon_in_the_background_ends_after_an_hour_by_default(root: Path) -> None:
    assert Settings().number("life.idle_exit_s") == 3600
    assert config.load(root, "s", {}).settings.number("life.idle_exit_s") == 3600


@pytest.mark.parametrize(
    ("text", "is_attended", "source"),
    [
        ("", True, "default in the foreground"),
        ("[network]\nlisten = 'tcp://127.0.0.1:7117'\n", False, "default with network.listen"),
        ("[metrics]\nport = 9464\n", False, "default with metrics.port"),
    ],
)
def test_daemon_that_no_client_can_start_again_stays_by_default(
    root: Path, text: str, is_attended: bool, source: str
) -> None:
    (root / "config.toml").write_text(text)
    loaded = config.load(root, "s", {}, is_attended=is_attended)
    loaded.adopt(config.read(root, {}))
    assert loaded.settings.number("life.idle_exit_s") == 0
    assert loaded.settings.source("life.idle_exit_s") == source
    given = {"STENO_LIFE_IDLE_EXIT_S": "7"}
    loaded = config.load(root, "s", given, is_attended=is_attended)
    assert loaded.settings.number("life.idle_exit_s") == 7


def test_daemon_with_unsynced_bytes_does_not_end(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "WRITTEN_SYNC_S", 1000.0)
    (root / "config.toml").write_text("[life]\nidle_exit_s = 0.05\n")
    with DaemonInThread(root) as daemon:
        with steno.connect_sync(root, spawn=False) as client:
            session = client.open("demo", follow=False)
            session.append_message({"role": "user", "content": "hi"}, durability="written")
        wait_for_jitter(0.5)
        assert not any(" idle_exit " in line for line in daemon.log)
        # A synced append syncs what was written before.
        with steno.connect_sync(root, spawn=False) as client:
            client.session("demo").append_message({"role": "user", "content": "hi"})
        assert daemon.wait_for(" idle_exit ")
        daemon.wait()
