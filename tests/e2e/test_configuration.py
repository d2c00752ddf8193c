"""A daemon and its `config.toml`: at the start, in the command `steno config`, and on SIGHUP."""

import os
import signal
from pathlib import Path

from steno_protocol.settings import OPTIONS, example
from support.command import Steno
from support.foreground import ForegroundDaemon


def _options(steno: Steno) -> dict[str, dict[str, object]]:
    return {option["name"]: option for option in steno("config", "--json").document["options"]}


def _configure(root: Path, text: str) -> str:
    file = root / "config.toml"
    file.write_text(text)
    return str(file)


def test_a_configuration_error_stops_the_start_and_names_the_option(
    root: Path,
) -> None:
    file = _configure(root, "[log]\nlevle = 'info'\n")
    for call in (["append", "demo", "hi"], ["start"]):
        ran = Steno(root)(*call)
        assert ran.code == 5
        assert f"{file}: there is no option 'log.levle': did you mean 'log.level'?" in ran.err
    ran = Steno(root)("config")
    assert (ran.code, ran.out) == (1, "")
    assert f"{file}: " in ran.err


def test_config_without_a_daemon_shows_the_effective_options(root: Path) -> None:
    file = _configure(root, "[log]\nlevel = 'debug'\n[mounts]\nkimi = '/data/kimi'\n")
    steno = Steno(root, STENO_DISK_TRASH_DAYS="7")
    document = steno("config", "--json").document
    assert (document["file"], document["pid"]) == (file, None)
    told = _options(steno)
    assert told.keys() == {"root", *(option.name for option in OPTIONS), "mounts.kimi"}
    assert (told["log.level"]["value"], told["log.level"]["source"]) == ("debug", file)
    assert told["mounts.kimi"]["source"] == file
    assert told["disk.trash_days"]["source"] == "environment STENO_DISK_TRASH_DAYS"
    assert told["root"]["source"] == "environment STENO_HOME"
    assert _options_of_root(steno, root)["source"] == "option --root"
    assert not (root / "stenod.lock").exists()


def _options_of_root(steno: Steno, root: Path) -> dict[str, object]:
    document = steno("config", "--json", "--root", str(root)).document
    first: dict[str, object] = document["options"][0]
    return first


def test_the_example_is_printed_and_is_a_configuration_that_works(root: Path) -> None:
    steno = Steno(root)
    assert steno("config", "--example").out == example()
    _configure(root, example())
    assert steno("append", "demo", "hi").code == 0


def test_a_daemon_reloads_its_configuration_on_sighup(root: Path, tmp_path: Path) -> None:
    steno = Steno(root)
    with ForegroundDaemon(root) as daemon:
        file = _configure(
            root,
            f"[disk]\nslow_sync_s = 0\n[mounts]\nextra = '{tmp_path}'\n[metrics]\nport = 9\n",
        )
        assert _options(steno)["disk.slow_sync_s"]["value"] == 0.5
        told = steno("config").err
        assert f"`kill -HUP {daemon.pid}`" in told
        os.kill(daemon.pid, signal.SIGHUP)
        daemon.wait_for(" config_waits ")
        options = _options(steno)
        assert options["disk.slow_sync_s"] == {
            "name": "disk.slow_sync_s", "value": 0.0, "source": file, "live": True,
        }  # fmt: skip
        assert options["mounts.extra"]["source"] == file
        assert (options["metrics.port"]["value"], options["metrics.port"]["source"]) == (
            0, "default",
        )  # fmt: skip
        steno("append", "extra:demo", "hi", "--create")
        assert (tmp_path / "demo" / "context.jsonl").exists()
        daemon.wait_for(" slow_sync ")
        waits = [line for line in daemon.log if " config_waits " in line]
        assert "metrics.port stays 0" in waits[0]


def test_a_mount_that_was_taken_out_stays_until_the_next_start(root: Path, tmp_path: Path) -> None:
    _configure(root, f"[mounts]\nextra = '{tmp_path}'\n")
    with ForegroundDaemon(root) as daemon:
        _configure(root, "")
        os.kill(daemon.pid, signal.SIGHUP)
        line = daemon.wait_for(" config_waits ")
        assert "the mount extra stays" in line
        assert Steno(root)("append", "extra:demo", "hi", "--create").code == 0
    assert Steno(root)("append", "extra:demo", "hi", "--create").code == 4


def test_an_invalid_configuration_is_logged_and_changes_nothing(root: Path) -> None:
    wrong = (
        ("[log]\nlevel = 'loud'\n", "log.level has to be one of"),
        ("[log]\nfile_bytes = inf\n", "log.file_bytes has to be"),
        (f"x = {'[' * 10_000}\n", "nested too deeply"),
        ("[mounts]\nkimi = '~nosuchuser/x'\n", "there is no such user"),
    )
    with ForegroundDaemon(root) as daemon:
        for number, (text, words) in enumerate(wrong, 1):
            _configure(root, text)
            os.kill(daemon.pid, signal.SIGHUP)
            line = daemon.wait_for(" config_refused ", number)
            assert "ERROR" in line
            assert words in line
            ran = Steno(root)("config")
            assert (ran.code, ran.err.count("\n")) == (1, 1)
            assert words in ran.err
        assert Steno(root)("append", "demo", "hi").code == 0


def test_a_mount_whose_links_lead_in_a_circle_is_taken_over(root: Path, tmp_path: Path) -> None:
    (tmp_path / "circle").symlink_to(tmp_path / "circle")
    with ForegroundDaemon(root) as daemon:
        _configure(root, f"[mounts]\nextra = '{tmp_path}/circle'\n")
        os.kill(daemon.pid, signal.SIGHUP)
        daemon.wait_for(" config_read ")
        assert Steno(root)("append", "demo", "hi").code == 0
