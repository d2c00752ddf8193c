"""What an error says about the process of a daemon that does not answer."""

import ast
import fcntl
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec
import pytest

from steno._connect.lock_holder import Silence, note_of, process_of, silence_of
from steno_protocol import limits, paths
from support.project import sources_with

LONG_AGO = 1_000_000.0

HOLDER = """
import fcntl, os, sys, threading
from steno_protocol import paths
root, state = sys.argv[1:]
lock = open(f"{root}/{paths.LOCK}", "rb+")
fcntl.flock(lock, fcntl.LOCK_EX)
os.utime(lock.fileno(), (1_000_000, 1_000_000))
print("held", flush=True)
if state == "R":
    while True:
        pass
elif state == "D":
    # The thread waits in the kernel until its child has opened its standard input.
    os.posix_spawn("/bin/true", ["true"], {}, file_actions=[
        (os.POSIX_SPAWN_OPEN, 0, f"{root}/fifo", os.O_RDONLY, 0)])
elif state == "thread":
    def spin():
        while True:
            pass
    threading.Thread(target=spin, daemon=True).start()
threading.Event().wait()
"""


@contextmanager
def _holder(root: Path, state: str) -> Iterator[int]:
    """A process in this state that holds the lock of the root, as a silent daemon does."""
    os.mkfifo(root / "fifo")
    (root / paths.SOCKET).touch()
    _write_note(root, 1)
    with subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(root), state], stdout=subprocess.PIPE
    ) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == b"held\n"
            _write_note(root, process.pid)
            while state in "SD" and _state_of(process.pid) != state:
                pass
            yield process.pid
        finally:
            # The child has the lock, too, until it has opened the FIFO, which may be later than the
            # end of its parent. So the FIFO has a writer until nobody has the lock.
            writer = os.open(root / "fifo", os.O_RDWR | os.O_NONBLOCK)
            process.kill()
            process.wait()
            with (root / paths.LOCK).open("rb") as lock:
                fcntl.flock(lock, fcntl.LOCK_EX)
            os.close(writer)


def _write_note(root: Path, pid: int) -> None:
    note = paths.LockNote(
        pid=pid, version="0", root=str(root), endpoint=f"ipc://{root}/stenod.sock"
    )
    (root / paths.LOCK).write_bytes(msgspec.json.encode(note))
    os.utime(root / paths.LOCK, (LONG_AGO, LONG_AGO))


def _state_of(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


def _silence(root: Path) -> Silence:
    note = note_of(root)
    assert note is not None
    return silence_of(root, note)


def test_quiet_process_that_has_not_answered_for_long_may_be_ended(root: Path) -> None:
    with _holder(root, "S") as pid:
        silence = _silence(root)
        assert silence.text == f"pid {pid} holds {root} and does not answer"
        assert silence.remedy.endswith(f"if it hangs, `kill {pid}` ends it")


def test_process_that_answered_within_the_last_minute_is_not_to_be_ended(root: Path) -> None:
    with _holder(root, "S"):
        lately = time.time() - limits.ANSWERED_LATELY_S / 2
        os.utime(root / paths.LOCK, (lately, lately))
        remedy = _silence(root).remedy
    assert "it answered a client within the last minute" in remedy
    assert "kill" not in remedy


@pytest.mark.parametrize("state", ["R", "D", "thread"])
def test_process_at_work_is_not_to_be_ended(root: Path, state: str) -> None:
    with _holder(root, state):
        remedy = _silence(root).remedy
    assert "is at work or waits for the disk" in remedy
    assert "kill" not in remedy


@pytest.mark.parametrize("is_stopped", [False, True])
def test_process_without_the_lock_is_not_named(root: Path, is_stopped: bool) -> None:
    """The pid of a container is that of any process outside of it."""
    with _holder(root, "S") as pid:
        other = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
        try:
            if is_stopped:
                os.kill(other.pid, signal.SIGSTOP)
            _write_note(root, other.pid)
            silence = _silence(root)
        finally:
            other.kill()
            other.communicate()
        for each in (str(pid), str(other.pid), "kill"):
            assert each not in silence.text + silence.remedy
    assert silence.text == f"a daemon holds {root} and does not answer"
    assert "another container" in silence.remedy


@pytest.mark.skipif(
    os.geteuid() != 0 or shutil.which("unshare") is None, reason="it makes a pid namespace"
)
def test_process_of_another_pid_namespace_is_not_named(root: Path) -> None:
    (root / paths.SOCKET).touch()
    _write_note(root, 1)
    # Its own pid, there, is 1, which is another process here.
    words = ["unshare", "--pid", "--fork", "--kill-child", sys.executable, "-c", HOLDER, str(root)]
    with subprocess.Popen([*words, "S"], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        if process.stdout.readline() != b"held\n":
            pytest.skip("no pid namespace can be made here")
        note = note_of(root)
        assert note is not None
        assert process_of(root, note) is None
        assert "kill" not in _silence(root).remedy
        process.kill()


def test_lost_socket_is_left_to_the_daemon(root: Path) -> None:
    with _holder(root, "S"):
        (root / paths.SOCKET).unlink()
        os.utime(root / paths.LOCK)
        silence = _silence(root)
    assert silence.text.endswith("is gone")
    assert "the next command starts another" in silence.remedy
    assert "kill" not in silence.remedy


def test_only_one_module_advises_to_end_a_process() -> None:
    advising = {
        file.name
        for file in sources_with({"kill"})
        for node in ast.walk(ast.parse(file.read_text()))
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
        if "`kill " in node.value and "kill -HUP" not in node.value
    }
    assert advising == {"lock_holder.py"}
