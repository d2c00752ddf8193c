"""The command `steno backup`."""

import shutil
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

import steno
from support.command import Steno
from support.daemon_in_thread import DaemonInThread


def say(root: Path, text: str) -> None:
    with steno.connect_sync(root, spawn=False) as client:
        session = client.open("demo", follow=False)
        session.append_message({"role": "user", "content": text})


def check(copy: Path, restored: Path) -> str:
    """Bring a copy back as a plain root, check it, and return the text of its session."""
    shutil.rmtree(restored, ignore_errors=True)
    shutil.copytree(copy, restored)
    with DaemonInThread(restored):
        call = Steno(restored)
        ran = call("verify", "--all")
        assert ran.code == 0, ran.out
        ran = call("read", "demo")
        assert ran.code == 0, ran.err
        return ran.out


def test_backup_prints_what_it_copied(
    root: Path, second_root: Path, daemon: DaemonInThread
) -> None:
    say(root, "one")
    copy = second_root / "copy"
    first = Steno(root)("backup", str(copy), "--json").document
    assert (first["sessions"], first["copied"], first["problems"]) == (1, 1, [])
    assert "1 session, 0 of them changed" in Steno(root)("backup", str(copy)).err
    assert "one" in check(copy, second_root / "restored")


def test_backup_names_the_folder_it_refuses(root: Path, daemon: DaemonInThread) -> None:
    ran = Steno(root)("backup", str(root / "copy"))
    assert ran.code == 1
    assert "name a folder beside it" in ran.err


@pytest.mark.parametrize("rounds", [1, 3])
def test_a_backup_killed_while_the_session_changes_is_valid(
    root: Path, second_root: Path, daemon: DaemonInThread, rounds: int
) -> None:
    say(root, "first")
    copy = second_root / "copy"
    ended = threading.Event()

    def write() -> None:
        with steno.connect_sync(root, spawn=False) as client:
            session = client.open("demo", follow=False)
            for number in range(100_000):
                if ended.is_set():
                    return
                session.append_message({"role": "user", "content": str(number)})
                if number % 50 == 49:
                    session.clear()

    writer = threading.Thread(target=write)
    writer.start()
    command = [sys.executable, "-m", "steno_cli", "--root", str(root), "backup", str(copy)]
    try:
        for _ in range(rounds):
            process = subprocess.Popen(
                [*command, "--follow", "1"], stderr=subprocess.PIPE, text=True
            )
            assert process.stderr is not None
            assert "session" in process.stderr.readline()
            process.send_signal(signal.SIGKILL)
            process.wait()
            process.stderr.close()
            # The copy may show it right after a clear.
            check(copy, second_root / "restored")
    finally:
        ended.set()
        writer.join()
    say(root, "last")
    assert Steno(root)("backup", str(copy)).code == 0
    assert "last" in check(copy, second_root / "restored")
