"""The commands that manage the daemon."""

import fcntl
import io
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from unittest.mock import Mock

import pytest

from steno_cli.commands.logs import _follow
from steno_cli.entry import main
from steno_cli.render.output import Output
from steno_protocol import __version__, limits
from support.command import Ran, Steno
from support.foreground import ForegroundDaemon

STATUS_KEYS = {
    "version", "protocol", "pid", "root", "endpoint", "remote_endpoint", "uptime_s", "mounts",
    "sessions_open",
    "clients", "queued", "appended_records", "syncs", "sync_s", "slowest_sync_s", "dropped",
    "draining",
}  # fmt: skip


def test_a_daemon_is_started_shown_and_stopped(root: Path, steno: Steno) -> None:
    started = steno("start", "--json").document
    assert set(started) == {"started", "version", "pid", "root", "endpoint"}
    assert started["started"] is True
    again = steno("start")
    assert again.out == f"{started['endpoint']}\n"
    assert "already runs" in again.err
    status = steno("status", "--json").document
    assert status.keys() >= STATUS_KEYS
    assert (status["pid"], status["root"], status["version"], status["draining"]) == (
        started["pid"], str(root), __version__, False,
    )  # fmt: skip
    assert steno("stop", "--json").document == {
        "stopped": True, "pid": started["pid"], "root": str(root),
    }  # fmt: skip
    with (root / "stenod.lock").open() as lock:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)


def test_status_is_readable(root: Path, steno: Steno) -> None:
    steno("append", "demo", "hi")
    shown = dict(line.split(maxsplit=1) for line in steno("status").out.splitlines())
    assert shown["root"] == str(root)
    assert shown["appended"] == "1 record"


@pytest.mark.parametrize("words", ["status", "stats", "clients", "top --once"])
def test_a_command_about_the_daemon_starts_none(root: Path, words: str) -> None:
    ran = Steno(root)(*words.split())
    assert (ran.code, ran.out) == (5, "")
    assert ran.err.startswith("steno: no daemon")
    assert "`steno start`" in ran.err
    assert not (root / "stenod.lock").exists()


def test_stopping_twice_is_no_failure(root: Path, steno: Steno) -> None:
    steno("start")
    assert steno("stop").code == 0
    ran = steno("stop")
    assert (ran.code, ran.out) == (0, "")
    assert "nothing to stop" in ran.err
    assert steno("stop", "--json").document == {"stopped": False, "pid": None, "root": str(root)}


def test_a_stopped_daemon_has_written_everything_and_the_next_one_knows_it(steno: Steno) -> None:
    steno("append", "demo", "hi", "--durability", "written")
    first = steno("status", "--json").document["pid"]
    ran = steno("restart", "--json").document
    assert ran["started"] is True
    assert ran["pid"] != first
    assert json.loads(steno("read", "demo").out)["content"] == "hi"


def test_a_hanging_daemon_is_reported_as_running(root: Path, steno: Steno) -> None:
    commands = ("stop", "status", "start", "sessions")
    with ForegroundDaemon(root) as daemon:
        pid = daemon.pid
        os.kill(pid, signal.SIGSTOP)
        calls = [steno(command, "--timeout", "0.3") for command in commands]
        os.kill(pid, signal.SIGCONT)
    for ran in calls:
        assert (ran.code, ran.out) == (5, "")
        assert ran.err.startswith(f"steno: pid {pid} holds {root} and is stopped: no")
        assert f"`kill -CONT {pid}`; `steno doctor`" in ran.err


def test_a_root_whose_daemon_does_not_answer_yet_cannot_be_stopped(root: Path) -> None:
    with (root / "stenod.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        ran = Steno(root)("stop", "--timeout", "0.1")
    assert ran.code == 5
    assert f"a daemon holds {root} that does not answer yet" in ran.err


def test_a_socket_outside_the_root_is_found_through_the_root(root: Path, tmp_path: Path) -> None:
    elsewhere = root / "elsewhere"
    elsewhere.mkdir()
    steno = Steno(root / "data")
    socket = str(elsewhere / "s.sock")
    assert steno("start", "--socket", socket, "--root", str(root / "data")).out == (
        f"ipc://{socket}\n"
    )
    try:
        steno("append", "demo", "hi")
        assert steno("status", "--json").document["endpoint"] == f"ipc://{socket}"
        # A socket alone means any daemon that answers there.
        other = Steno(tmp_path)
        assert json.loads(other("read", "demo", "--socket", socket).out)["content"] == "hi"
        assert " ready " in other("logs", "--socket", socket).out
        assert other("--socket", socket, "stop").code == 0
        assert other("--socket", socket, "stop").code == 5
    finally:
        steno("stop")


def test_a_root_or_socket_that_is_not_utf8_is_an_error(root: Path) -> None:
    steno, odd = Steno(root), os.fsdecode(bytes(root) + b"/\xff")
    calls = (
        steno("status", "--root", odd),
        steno("start", "--root", odd),
        steno("status", "--socket", odd),
        steno("start", "--root", str(root), "--socket", odd),
        _serve("--root", odd),
        _serve("--root", str(root), "--socket", odd),
    )
    for ran in calls:
        assert (ran.code, ran.err.count("\n")) == (1, 1)
        assert "is not UTF-8: rename the folder, or choose another" in ran.err
    assert list(root.iterdir()) == []


def test_a_daemon_that_cannot_listen_is_an_error_on_one_line(root: Path) -> None:
    ran = _serve("--root", str(root), "--socket", "/proc/x.sock")
    assert ran.code == 1
    printed = ran.err.splitlines()[-1]
    assert printed.startswith("stenod: cannot start: cannot listen at /proc/x.sock: ")
    assert printed.endswith("; choose another --socket")
    assert "Traceback" not in ran.err


def _serve(*arguments: str) -> Ran:
    command = [sys.executable, "-m", "stenod", "--foreground", *arguments]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
    return Ran(ran.returncode, ran.stdout, ran.stderr)


def test_options_of_every_command_stand_before_or_after_it(root: Path, tmp_path: Path) -> None:
    steno = Steno(tmp_path)
    steno("--root", str(root), "append", "demo", "before")
    steno("append", "demo", "after", "--root", str(root))
    before = steno("--json", "--root", str(root), "status").document
    assert before == steno("status", "--root", str(root), "--json").document | {
        key: before[key] for key in ("uptime_s", "clients")
    }
    assert before["root"] == str(root)
    assert not (tmp_path / "stenod.lock").exists()


def test_the_log_is_printed_whether_the_daemon_runs_or_not(steno: Steno) -> None:
    ran = steno("logs")
    assert (ran.code, ran.out) == (4, "")
    assert "there is no log" in ran.err
    steno("start")
    steno("stop")
    lines = steno("logs").out.splitlines()
    assert " ready " in lines[0]
    assert steno("logs", "-n", "1").out.splitlines() == lines[-1:]
    assert steno("logs", "--json").documents == [{"line": line} for line in lines]


def test_the_log_is_followed_across_its_rotation(root: Path) -> None:
    log = root / "stenod.log"
    log.write_text("first\n")
    with Steno(root).begin("logs", "-f") as follower:
        assert follower.stdout is not None
        try:
            assert follower.stdout.readline() == "first\n"
            with log.open("a") as file:
                file.write("second\n")
            assert follower.stdout.readline() == "second\n"
            log.rename(root / "stenod.log.1")
            log.write_text("third\n")
            assert follower.stdout.readline() == "third\n"
        finally:
            follower.kill()


def test_the_last_entries_before_a_rotation_are_printed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, printed = tmp_path / "stenod.log", list[bytes]()

    class Raced(io.FileIO):
        """The log as it is read while it is rotated: the moment comes when its end was seen."""

        def __iter__(self) -> Iterator[bytes]:
            yield from iter(self.readline, b"")
            if os.path.samestat(path.stat(), os.fstat(self.fileno())):
                with path.open("a") as file:
                    file.write("last\n")
                path.rename(tmp_path / "stenod.log.1")
                path.write_text("new\n")

    def wait(_: float) -> None:
        if b"new\n" in printed:
            raise KeyboardInterrupt

    path.write_text("first\n")
    monkeypatch.setattr("steno_cli.commands.logs._print", lambda _, line: printed.append(line))
    monkeypatch.setattr("steno_cli.commands.logs.time.sleep", wait)
    with pytest.raises(KeyboardInterrupt):
        _follow(path, Raced(path), Output(sys.stdout, sys.stderr, as_json=False))
    assert printed == [b"first\n", b"last\n", b"new\n"]


def test_an_error_without_a_file_is_shown_unchanged(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    errors = (OSError("x is no regular file"), OSError(28, "No space left on device"))
    for error, words in zip(errors, ("x is no", "left on device: standard input,"), strict=True):
        monkeypatch.setattr("steno_cli.commands.logs.root_in_use", Mock(side_effect=error))
        with monkeypatch.context() as stdout:
            stdout.setattr("steno_cli.entry.silence", lambda _: None)
            assert main(["logs"]) == 1
        printed = capsys.readouterr().err
        assert words in printed
        assert ("standard input" in printed) == (error.errno is not None)


def test_clients_lists_the_followers_of_a_session_by_name(steno: Steno) -> None:
    steno("append", "demo", "hi")
    with steno.begin("tail", "-f", "demo", "--name", "watcher") as follower:
        assert follower.stdout is not None
        try:
            follower.stdout.readline()
            (entry,) = steno("clients", "demo", "--json").document["clients"]
            assert set(entry) == {
                "name", "connection", "key", "pid", "connected_s", "requests", "dropped",
            "subscriptions",
            }  # fmt: skip
            assert entry["key"] is None
            assert (entry["name"], entry["pid"], entry["subscriptions"]) == (
                "watcher", follower.pid, ["demo"],
            )  # fmt: skip
            assert "watcher" in steno("clients").out
        finally:
            follower.kill()


def test_a_session_without_followers_differs_from_a_missing_one(steno: Steno) -> None:
    steno("append", "demo", "hi")
    none = steno("clients", "dem")
    assert (none.code, none.out) == (0, "")
    assert none.err.splitlines()[-1] == "steno: demo has no followers"
    assert steno("clients", "demo", "--json").document["clients"] == []
    # The name of a client is no session either.
    for form in ([], ["--json"]):
        ran = steno("clients", "root@cli", *form)
        assert (ran.code, ran.out) == (4, "")
        assert "no such session" in ran.err


def test_a_full_disk_under_stdout_is_a_failure(root: Path, steno: Steno) -> None:
    steno("append", "demo", "hi")
    with Path("/dev/full").open("w") as full:
        ran = subprocess.run(
            [*steno.words("read", "demo"), "--root", str(root)],
            stdout=full,
            stderr=subprocess.PIPE,
            check=False,
            timeout=limits.REQUEST_TIMEOUT_S,
        )
    assert ran.returncode == 1
    assert b"No space left on device" in ran.stderr
