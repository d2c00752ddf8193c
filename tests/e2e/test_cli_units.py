"""`steno service`: unit files written, shown and removed without systemd."""

import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from steno_cli.parser import build_parser as command_parser
from stenod.cli import build_parser
from support.command import Steno


def _steno(root: Path, tmp_path: Path) -> Steno:
    return Steno(root, XDG_CONFIG_HOME=str(tmp_path / "config"), XDG_STATE_HOME=str(tmp_path))


def _setting(text: str, name: str) -> str:
    (line,) = [line for line in text.splitlines() if line.startswith(f"{name}=")]
    return line.removeprefix(f"{name}=")


def test_units_are_written_shown_and_removed(root: Path, tmp_path: Path) -> None:
    steno = _steno(root, tmp_path)
    shown = steno("service", "show", "--json").document
    assert [each["state"] for each in shown["files"]] == ["missing", "missing"]
    written = steno("service", "install", "--json").document
    assert [each["state"] for each in written["files"]] == ["installed", "installed"]
    name = Path(written["files"][0]["path"]).stem
    assert f"systemctl --user enable --now {name}.socket" in written["next"]
    for each in written["files"]:
        path = Path(each["path"])
        assert path.parent == tmp_path / "config" / "systemd" / "user"
        assert path.read_text() == each["text"]
    assert steno("service", "install").code == 0
    removed = steno("service", "uninstall", "--json").document
    assert [each["state"] for each in removed["files"]] == ["missing", "missing"]
    assert steno("service", "uninstall").code == 0


def test_the_service_runs_the_daemon_of_this_root_on_its_socket(root: Path, tmp_path: Path) -> None:
    service, listening = _steno(root, tmp_path)("service", "show", "--json").document["files"]
    words = shlex.split(_setting(service["text"], "ExecStart"))
    assert words[:4] == [sys.executable, "-P", "-m", "stenod"]
    options = build_parser().parse_args(words[4:])
    assert (options.root, options.foreground) == (str(root), True)
    assert _setting(listening["text"], "ListenStream") == options.socket == f"{root}/stenod.sock"
    assert _setting(service["text"], "Type") == "notify"


def test_a_watch_is_a_unit_of_its_own(root: Path, tmp_path: Path) -> None:
    moved = tmp_path / 'a "b" 100% $c'
    steno = Steno(
        root, XDG_CONFIG_HOME=str(tmp_path / "config"), XDG_STATE_HOME=str(tmp_path),
        CODEX_HOME=str(moved),
    )  # fmt: skip
    written = steno("service", "install", "--watch", "--json").document
    assert [each["state"] for each in written["files"]] == ["installed"] * 3
    unit = written["files"][2]
    name = Path(unit["path"]).name
    assert f"systemctl --user enable --now {name}" in written["next"]
    words = shlex.split(_setting(unit["text"], "ExecStart"))
    assert words[:4] == [sys.executable, "-P", "-m", "steno_cli"]
    options = command_parser(words[4:]).parse_args(words[4:])
    assert (options.command, options.root, options.paths) == ("watch", str(root), [])
    assert _setting(unit["text"], "Environment").replace("%%", "%") == (
        f'"CODEX_HOME={tmp_path}/a \\"b\\" 100% $c"'
    )
    assert _setting(unit["text"], "Restart") == "always"
    assert len(steno("service", "show", "--json").document["files"]) == 3
    removed = steno("service", "uninstall", "--json").document
    assert [each["state"] for each in removed["files"]] == ["missing"] * 3
    assert f" {name} " in removed["next"][0]
    assert len(steno("service", "show", "--json").document["files"]) == 2


def test_the_default_root_has_the_plain_name(tmp_path: Path) -> None:
    steno = _steno(tmp_path / "steno", tmp_path)
    files = steno("service", "show", "--json").document["files"]
    assert [Path(each["path"]).name for each in files] == ["steno.service", "steno.socket"]


@pytest.mark.parametrize("fault", ["another user's", "everybody's"])
def test_a_root_that_the_daemon_refuses_gets_no_units(
    root: Path, tmp_path: Path, fault: str
) -> None:
    if fault == "everybody's":
        root.chmod(0o777)
        says = f"every user may write to {root}: run `chmod o-w {root}`"
    elif os.geteuid() == 0:
        os.chown(root, 12345, 12345)
        says = f"{root} belongs to user 12345, and this program runs as user 0: run it as user"
    else:
        pytest.skip("only root can give a folder away")
    ran = _steno(root, tmp_path)("service", "install")
    assert (ran.code, ran.out) == (1, "")
    assert says in ran.err
    assert not (tmp_path / "config").exists()


def test_a_foreign_unit_file_is_neither_replaced_nor_removed(root: Path, tmp_path: Path) -> None:
    steno = _steno(root, tmp_path)
    path = Path(steno("service", "show", "--json").document["files"][1]["path"])
    path.parent.mkdir(parents=True)
    path.write_text("[Socket]\n")
    ran = steno("service", "install")
    assert ran.code == 1
    assert f"{path} was not written by steno" in ran.err
    assert sorted(path.parent.iterdir()) == [path]
    steno("service", "uninstall")
    assert path.read_text() == "[Socket]\n"


def test_a_root_with_blanks_and_signs_is_quoted(root: Path, tmp_path: Path) -> None:
    odd = root / 'a "b" 100% $HOME'
    steno = _steno(root, tmp_path)
    files = steno("service", "show", "--json", "--root", str(odd)).document["files"]
    line = _setting(files[0]["text"], "ExecStart")
    words = shlex.split(line.replace("$$", "$").replace("%%", "%"))
    assert words[words.index("--root") + 1] == str(odd)
    assert f'ListenStream={root}/a "b" 100%% $HOME/stenod.sock' in files[1]["text"]


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd is not installed")
@pytest.mark.parametrize("name", ["plain", 'a "b" 100% $HOME'])
def test_systemd_finds_nothing_wrong_with_the_units(root: Path, tmp_path: Path, name: str) -> None:
    steno = _steno(root, tmp_path)
    odd = str(root / name)
    files = steno("service", "install", "--watch", "--json", "--root", odd).document["files"]
    ran = subprocess.run(
        ["systemd-analyze", "--user", "verify", *(each["path"] for each in files)],
        env={**os.environ, "XDG_RUNTIME_DIR": str(root)},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert (ran.returncode, ran.stderr) == (0, "")


def test_a_steno_that_runs_from_a_cache_installs_no_service(root: Path, tmp_path: Path) -> None:
    # As `uvx` and `pipx run` do: an environment below a folder that is marked as a cache.
    environment = tmp_path / "cache" / "environments" / "one"
    (tmp_path / "cache").mkdir()
    (tmp_path / "cache" / "CACHEDIR.TAG").touch()
    config = tmp_path / "config"
    code = (
        f"import sys; sys.prefix = {str(environment)!r}\n"
        "from steno_cli.entry import main\n"
        f"sys.exit(main(['service', 'install', '--root', {str(root)!r}]))"
    )
    ran = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "XDG_CONFIG_HOME": str(config)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 1
    assert f"lies in the cache {tmp_path / 'cache'}" in ran.stderr
    assert not config.exists()


def test_a_copy_is_a_unit_of_its_own(root: Path, tmp_path: Path) -> None:
    steno = _steno(root, tmp_path)
    copy = tmp_path / "a copy"
    words = ("service", "install", "--backup", str(copy), "--every", "30", "--json")
    written = steno(*words).document
    assert [each["state"] for each in written["files"]] == ["installed"] * 3
    unit = written["files"][2]
    name = Path(unit["path"]).name
    assert f"systemctl --user enable --now {name}" in written["next"]
    command = shlex.split(_setting(unit["text"], "ExecStart"))[4:]
    options = command_parser(command).parse_args(command)
    assert (options.command, options.root, options.folder, options.follow) == (
        "backup", str(root), str(copy), 30,
    )  # fmt: skip
    shown = steno("service", "show", "--json").document["files"]
    assert [each["state"] for each in shown] == ["installed"] * 3
    removed = steno("service", "uninstall", "--json").document
    assert [each["state"] for each in removed["files"]] == ["missing"] * 3
    assert f" {name} " in removed["next"][0]
