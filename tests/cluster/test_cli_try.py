"""`steno cluster try` with real servers: what it proves, and what it leaves."""

import os
import signal
import subprocess
from pathlib import Path

import pytest

from support.command import Steno
from support.daemons import end_daemon_of
from support.nats_cluster import wait_until

CLAIMS = 4
START_LINE = "owns the session demo"


def _processes(folder: Path) -> list[str]:
    """The command lines of living processes that name a folder."""
    found: list[str] = []
    for each in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = each.read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue
        if str(folder) in words:
            found.append(words)
    return found


def _wait_for_processes(folder: Path) -> None:
    """Wait until none lives: a daemon gives up its root a moment before its interpreter ends."""
    wait_until(lambda: _processes(folder) == [], "a process is left")


def test_a_takeover_is_proved_and_leaves_one_plain_root(folder: Path) -> None:
    steno = Steno(folder / "unused", TMPDIR=str(folder))
    ran = steno("cluster", "try", "--agents", "2", "--turns", "10", "--json", "--keep")
    assert ran.code == 0, ran.err
    shown = ran.document
    assert shown["proved"] is True
    assert [proof["holds"] for proof in shown["proofs"]] == [True] * CLAIMS
    assert shown["records"] == 2 * 10 + 2
    assert shown["killed_pid"] != shown["next_pid"]
    assert "was created" not in ran.err
    _wait_for_processes(folder)
    root = Path(shown["root"])
    assert [*root.parent.iterdir()] == [root]
    assert not (root / "config.toml").exists()
    # The files of the survivor are a root like any other.
    assert Steno(root)("stat", "demo", "--json").document["head"] == "0:22"
    assert Steno(root)("stop").code == 0


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_trial_leaves_nothing(folder: Path, number: signal.Signals) -> None:
    steno = Steno(folder / "unused", TMPDIR=str(folder))
    process = steno.begin("cluster", "try", "--turns", "5000", stderr=subprocess.PIPE)
    assert process.stderr is not None
    for line in process.stderr:
        if START_LINE in line:
            break
    os.kill(process.pid, number)
    process.communicate(timeout=60)
    assert process.returncode == 130
    _wait_for_processes(folder)
    assert [*folder.glob("steno-cluster-*")] == []


def test_a_takeover_without_keep_leaves_no_file(folder: Path) -> None:
    steno = Steno(folder / "unused", TMPDIR=str(folder))
    ran = steno("cluster", "try", "--agents", "1", "--turns", "10")
    assert ran.code == 0, ran.err
    assert "removed again: --keep keeps it" in ran.out
    _wait_for_processes(folder)
    assert [*folder.glob("steno-cluster-*")] == []


def test_a_killed_trial_leaves_no_server(folder: Path) -> None:
    steno = Steno(folder / "unused", TMPDIR=str(folder))
    process = steno.begin("cluster", "try", "--turns", "5000", stderr=subprocess.PIPE)
    assert process.stderr is not None
    for line in process.stderr:
        if START_LINE in line:
            break
    process.kill()
    process.communicate(timeout=60)
    is_left = ("nats-server", "steno_cli")
    wait_until(
        lambda: not any(name in words for words in _processes(folder) for name in is_left),
        "a server or an agent is left",
    )
    # Without servers and clients they would end after an hour.
    for root in folder.glob("steno-cluster-*/[ab]"):
        end_daemon_of(root)
