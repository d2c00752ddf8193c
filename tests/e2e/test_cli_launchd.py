"""`steno service` on macOS: agents of launchd, loaded by the printed commands."""

import json
import os
import plistlib
import shlex
import subprocess
from pathlib import Path
from typing import Any

import pytest

from steno_cli.commands import service
from steno_cli.entry import main
from steno_cli.parser import build_parser as command_parser
from stenod.cli import build_parser

_LAUNCHCTL = """\
#!/bin/sh
# A launchctl that loads, prints and removes agents by their label.
echo "$*" >> "$LOADED.log"
case "$1" in
bootstrap)
  label=$(basename "$3" .plist)
  test -f "$3" || { echo "Load failed: 5: Input/output error" >&2; exit 5; }
  test ! -e "$LOADED/$label" || { echo "Bootstrap failed: 17: File exists" >&2; exit 17; }
  touch "$LOADED/$label" ;;
bootout)
  rm "$LOADED/${2##*/}" || { echo "Boot-out failed: 3: No such process" >&2; exit 3; } ;;
print)
  test -e "$LOADED/${2##*/}" || { echo "Could not find service" >&2; exit 113; } ;;
esac
"""


@pytest.fixture
def loaded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder with a file for each agent that the commands have loaded, as on a Mac."""
    monkeypatch.setattr(service, "_PLATFORM", "darwin")
    programs, loaded = tmp_path / "bin", tmp_path / "loaded"
    programs.mkdir()
    loaded.mkdir()
    (programs / "launchctl").write_text(_LAUNCHCTL)
    (programs / "launchctl").chmod(0o755)
    (programs / "steno").write_text("#!/bin/sh\n")
    (programs / "steno").chmod(0o755)
    monkeypatch.setenv("PATH", str(programs), prepend=os.pathsep)
    monkeypatch.setenv("LOADED", str(loaded))
    monkeypatch.setenv("HOME", str(tmp_path / "home folder"))
    (tmp_path / "home folder").mkdir(mode=0o700)
    return loaded


def steno(capsys: pytest.CaptureFixture[str], root: Path, *words: str) -> dict[str, Any]:
    """Run `steno service`, and then what it prints."""
    assert main(["--root", str(root), "service", *words, "--json"]) == 0
    document: dict[str, Any] = json.loads(capsys.readouterr().out)
    for line in document["next"]:
        subprocess.run(["/bin/sh", "-ec", line], check=True)
    return document


def agent(document: dict[str, Any], number: int = 0) -> dict[str, Any]:
    """The contents of an agent as launchd reads it."""
    path = Path(document["files"][number]["path"])
    assert path.parent.parts[-2:] == ("Library", "LaunchAgents")
    assert path.stat().st_mode & 0o022 == 0
    found: dict[str, Any] = plistlib.loads(path.read_bytes())
    assert found["Label"] == path.stem
    return found


def test_agent_is_written_loaded_replaced_and_removed(
    root: Path, loaded: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    written = steno(capsys, root, "install")
    label = agent(written)["Label"]
    assert [path.name for path in loaded.iterdir()] == [label]
    assert f"launchctl print gui/{os.getuid()}/{label}" in written["next"]
    # A second installation unloads the first: launchd keeps what it has read.
    steno(capsys, root, "install")
    shown = steno(capsys, root, "show")
    assert [each["state"] for each in shown["files"]] == ["installed"]
    removed = steno(capsys, root, "uninstall")
    assert [each["state"] for each in removed["files"]] == ["missing"]
    assert list(loaded.iterdir()) == []
    assert steno(capsys, root, "uninstall")["next"] == []


def test_agent_runs_the_daemon_of_this_root(
    root: Path, loaded: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = agent(steno(capsys, root, "install"))
    options = build_parser().parse_args(found["ProgramArguments"][4:])
    assert (options.root, options.foreground, options.socket) == (
        str(root), True, f"{root}/stenod.sock",
    )  # fmt: skip
    assert (found["RunAtLoad"], found["KeepAlive"]) == (True, {"SuccessfulExit": False})
    assert found["Umask"] == 0o077
    assert len(list(loaded.iterdir())) == 1


def test_watch_and_copy_are_agents_of_their_own(
    root: Path, loaded: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CODEX_HOME", '/a "b" <c> & d')
    copy = str(root / "copy")
    written = steno(capsys, root, "install", "--watch", "--backup", copy)
    watch, backup = agent(written, 1), agent(written, 2)
    assert watch["EnvironmentVariables"] == {"CODEX_HOME": '/a "b" <c> & d'}
    assert watch["KeepAlive"] is backup["KeepAlive"] is True
    words = backup["ProgramArguments"][4:]
    options = command_parser(words).parse_args(words)
    assert (options.command, options.folder, options.follow) == ("backup", copy, 60)
    assert len(list(loaded.iterdir())) == 3
    assert len(steno(capsys, root, "show")["files"]) == 3
    steno(capsys, root, "uninstall")
    assert list(loaded.iterdir()) == []


@pytest.mark.usefixtures("loaded")
def test_foreign_agent_is_neither_replaced_nor_removed(
    root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = Path(steno(capsys, root, "show")["files"][0]["path"])
    path.parent.mkdir(parents=True, mode=0o700)
    path.write_bytes(plistlib.dumps({"Label": "other"}))
    assert main(["--root", str(root), "service", "install"]) == 1
    assert f"{path} was not written by steno" in capsys.readouterr().err
    steno(capsys, root, "uninstall")
    assert plistlib.loads(path.read_bytes()) == {"Label": "other"}


def test_printed_commands_quote_a_home_with_blanks(
    root: Path, loaded: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    written = steno(capsys, root, "install")
    (bootstrap,) = [line for line in written["next"] if " bootstrap " in line]
    assert shlex.split(bootstrap)[-1] == written["files"][0]["path"]
    assert " " in written["files"][0]["path"]
    assert loaded.with_name("loaded.log").read_text().startswith("bootstrap gui/")
