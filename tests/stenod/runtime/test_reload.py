"""A daemon that reads its configuration again."""

from pathlib import Path

import pytest

import steno
from steno_protocol import paths
from steno_protocol.errors import BadRequest
from stenod.runtime import config
from support.daemon_in_thread import DaemonInThread


def configure(root: Path, text: str) -> None:
    (root / paths.CONFIG).write_text(text)


def append(root: Path, session: str) -> None:
    with steno.connect_sync(root, spawn=False) as client:
        client.open(session, follow=False).append_message({"role": "user", "content": "hi"})


def test_removed_mount_stays_until_the_next_start(root: Path, tmp_path: Path) -> None:
    for name in ("kept", "extra"):
        (tmp_path / name).mkdir()
    kept = f"[mounts]\nkept = '{tmp_path}/kept'\n"
    configure(root, f"{kept}extra = '{tmp_path}/extra'\n")
    with DaemonInThread(root) as daemon:
        configure(root, kept)
        daemon.reload()
        line = daemon.wait_for(" config_waits ")
        assert "the mount extra stays" in line
        assert "the mount kept" not in line
        append(root, "extra:demo")
    with DaemonInThread(root), pytest.raises(steno.NotFound):
        append(root, "extra:demo")


def test_invalid_configuration_is_logged_and_changes_nothing(
    root: Path, daemon: DaemonInThread
) -> None:
    wrong = (
        ("[log]\nlevel = 'loud'\n", "log.level has to be one of"),
        ("[log]\nfile_bytes = inf\n", "log.file_bytes has to be"),
        (f"x = {'[' * 10_000}\n", "nested too deeply"),
        ("[mounts]\nkimi = '~nosuchuser/x'\n", "there is no such user"),
    )
    for number, (text, words) in enumerate(wrong, 1):
        configure(root, text)
        daemon.reload()
        line = daemon.wait_for(" config_refused ", number)
        assert "ERROR" in line
        assert words in line
    append(root, "demo")


def test_mount_behind_circular_links_is_adopted(
    root: Path, daemon: DaemonInThread, tmp_path: Path
) -> None:
    (tmp_path / "circle").symlink_to(tmp_path / "circle")
    configure(root, f"[mounts]\nextra = '{tmp_path}/circle'\n")
    daemon.reload()
    daemon.wait_for(" config_read ")
    append(root, "demo")


@pytest.mark.parametrize("rule", ["generations_compressed_days", "sessions_days"])
def test_a_rule_that_no_cluster_has_waits_until_the_daemon_left_its_cluster(
    root: Path, rule: str
) -> None:
    configure(root, "[replication]\ncluster = 'team'\nservers = ['nats://10.0.0.1']\n")
    loaded = config.load(root, "s", {})
    configure(root, f"[retention]\n{rule} = 30\n")
    with pytest.raises(BadRequest, match=f"retention.{rule} is set"):
        loaded.adopt(config.read(root, {}))
    assert loaded.settings.number(f"retention.{rule}") == 0
    assert config.load(root, "s", {}).settings.number(f"retention.{rule}") == 30
