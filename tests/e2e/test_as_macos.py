"""A daemon and its clients in processes that have only the calls of macOS."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from e2e import as_macos
from steno_protocol import paths
from steno_protocol.paths import decode_lock_note


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    folder = tmp_path / "macos"
    folder.mkdir()
    return as_macos.environment(folder)


def tried(environ: dict[str, str], root: Path, *words: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        as_macos.command(*words, "--root", str(root)),
        env=environ,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


def run(environ: dict[str, str], root: Path, *words: str) -> str:
    done = tried(environ, root, *words)
    assert done.returncode == 0, done
    return done.stdout


def texts(environ: dict[str, str], root: Path) -> list[object]:
    lines = run(environ, root, "read", "demo").splitlines()
    return [json.loads(line).get("content") for line in lines]


def test_processes_have_no_call_of_linux(environ: dict[str, str]) -> None:
    probe = (
        "import os, sys, steno_system;"
        "print(sys.platform, hasattr(os, 'eventfd'), steno_system.fsync.__module__)"
    )
    done = subprocess.run(
        [sys.executable, "-c", probe], env=environ, capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == ["darwin", "False", "steno_system._darwin"]


def test_records_survive_a_kill_a_revert_and_a_restart(
    environ: dict[str, str], tmp_path: Path
) -> None:
    root = tmp_path / "root"
    run(environ, root, "append", "demo", "one")
    run(environ, root, "checkpoint", "demo")
    run(environ, root, "append", "demo", "two")
    note = decode_lock_note((root / paths.LOCK).read_bytes())
    assert note is not None
    os.kill(note.pid, signal.SIGKILL)
    assert "two" in texts(environ, root)
    run(environ, root, "revert", "demo", "0")
    run(environ, root, "append", "demo", "three")
    run(environ, root, "restart")
    found = texts(environ, root)
    assert "one" in found
    assert "three" in found
    assert "two" not in found
    run(environ, root, "doctor")
    run(environ, root, "stop")


def test_a_session_has_one_spelling_where_case_is_ignored(
    environ: dict[str, str], tmp_path: Path
) -> None:
    root = tmp_path / "root"
    run(environ, root, "append", "demo", "one")
    for words in (["append", "Demo", "two"], ["fork", "demo", "DEMO"], ["clear", "dEMO"]):
        refused = tried(environ, root, *words)
        assert refused.returncode == 1, refused
        assert "where demo exists: use this spelling" in refused.stderr
    assert texts(environ, root) == ["one"]
    run(environ, root, "append", "Other", "two")
    assert run(environ, root, "sessions", "--json").count('"session"') == 2
    run(environ, root, "stop")
