"""A daemon's `config.toml` at the start, in `steno config`, on SIGHUP."""

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
    shown = _options(steno)
    assert shown.keys() == {"root", *(option.name for option in OPTIONS), "mounts.kimi"}
    assert (shown["log.level"]["value"], shown["log.level"]["source"]) == ("debug", file)
    assert shown["mounts.kimi"]["source"] == file
    assert shown["disk.trash_days"]["source"] == "environment STENO_DISK_TRASH_DAYS"
    assert shown["root"]["source"] == "environment STENO_HOME"
    assert _options_of_root(steno, root)["source"] == "option --root"
    assert not (root / "stenod.lock").exists()


def _options_of_root(steno: Steno, root: Path) -> dict[str, object]:
    document = steno("config", "--json", "--root", str(root)).document
    first: dict[str, object] = document["options"][0]
    return first


def test_the_example_is_printed_and_is_a_configuration_that_works(root: Path, steno: Steno) -> None:
    assert steno("config", "--example").out == example()
    _configure(root, example())
    assert steno("append", "demo", "hi").code == 0


def test_a_daemon_reloads_its_configuration_on_sighup(
    root: Path, steno: Steno, tmp_path: Path
) -> None:
    with ForegroundDaemon(root) as daemon:
        file = _configure(
            root,
            f"[disk]\nslow_sync_s = 0\n[mounts]\nextra = '{tmp_path}'\n[metrics]\nport = 9\n",
        )
        assert _options(steno)["disk.slow_sync_s"]["value"] == 0.5
        shown = steno("config").err
        assert f"`kill -HUP {daemon.pid}`" in shown
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
