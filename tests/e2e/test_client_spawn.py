"""How a client finds, starts or rejects its daemon."""

import fcntl
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from argparse import Namespace
from collections.abc import Callable
from contextlib import ExitStack, closing, suppress
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import msgspec
import pytest

import steno_system as system
from steno import BlockingClient, Incompatible, StenoError, Unreachable, connect_sync
from steno._connect import probe, spawn, start_lock
from steno._connect.last_words import LastWords
from steno._connect.lock_holder import note_of, silence_of
from steno._connect.start_lock import StartLock
from steno._connect.target import make_target
from steno_cli.doctor.daemon import check_lock
from steno_protocol import commands, limits, paths
from steno_protocol.messages import Request
from support.crowd import wait_until
from support.daemon_in_thread import DaemonInThread
from support.foreground import ForegroundDaemon, daemon_of_tests
from support.racers import wait_for_jitter
from support.scripted_daemon import Answers, Script, ScriptedDaemon, welcome

pytestmark = pytest.mark.forked(False)

CLIENT = """
import sys, steno
with steno.connect_sync(sys.argv[1], timeout=100) as client:
    client.open("demo", follow=False).append_message({"role": "user", "content": sys.argv[2]})
    print(client.welcome.pid)
"""


STARTER_THAT_DIES = """
import os, sys
fork = os.fork

def fork_and_die():
    pid = fork()
    if pid:
        os._exit(0)
    return pid

os.fork = fork_and_die
from stenod.cli import main
main(["--root", sys.argv[1]])
"""


def ready_count(root: Path) -> int:
    return (root / paths.LOG).read_text().count(" ready ")


@pytest.mark.slow
def test_fifty_clients_at_once_end_with_one_daemon(root: Path) -> None:
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", CLIENT, str(root), str(number)],
            stdout=subprocess.PIPE,
            text=True,
        )
        for number in range(50)
    ]
    pids = {process.communicate()[0].strip() for process in processes}
    assert [process.returncode for process in processes] == [0] * 50
    assert len(pids) == 1
    assert ready_count(root) == 1
    with connect_sync(root) as client:
        contents = [entry["content"] for entry in client.open("demo").history]
    assert sorted(contents, key=int) == [str(number) for number in range(50)]


@pytest.mark.slow
def test_a_daemon_that_stands_still_is_waited_for_and_not_doubled(root: Path) -> None:
    with connect_sync(root) as client:
        pid = client.status().pid
    os.kill(pid, signal.SIGSTOP)
    reached: list[int] = []

    def reach() -> None:
        with connect_sync(root) as late:
            reached.append(late.status().pid)

    thread = threading.Thread(target=reach)
    thread.start()
    try:
        wait_until_somebody_starts(root)
    finally:
        os.kill(pid, signal.SIGCONT)
        thread.join()
    assert reached == [pid]
    assert ready_count(root) == 1


@pytest.mark.parametrize("spawn", [True, False])
def test_a_stopped_daemon_is_named_with_the_command_that_continues_it(
    root: Path, spawn: bool
) -> None:
    with ForegroundDaemon(root) as daemon:
        os.kill(daemon.pid, signal.SIGSTOP)
        with pytest.raises(Unreachable) as raised:
            connect_sync(root, spawn=spawn, timeout=0.2)
        with pytest.raises(Unreachable, match="no answer within"):
            connect_sync(root, spawn=spawn, timeout=0)
        pid = daemon.pid
        os.kill(daemon.pid, signal.SIGCONT)
    message = raised.value.message
    assert message.startswith(f"pid {pid} holds {root} and is stopped: no answer within")
    assert f"kill -CONT {pid}" in message
    assert not (root / paths.LOG).exists()


@pytest.mark.parametrize("spawn", [True, False])
def test_a_daemon_without_its_socket_is_named(root: Path, spawn: bool) -> None:
    path = root / paths.SOCKET
    with daemon_of_tests(root, "e2e.blind_daemon") as daemon:
        path.unlink()
        with pytest.raises(Unreachable) as raised:
            connect_sync(root, spawn=spawn, timeout=0.2)
        pid = daemon.pid
    assert raised.value.message.startswith(f"pid {pid} holds {root}, but its socket {path} is gone")
    assert "the next command starts another" in raised.value.message
    assert "kill" not in raised.value.message


def test_a_daemon_of_another_user_is_not_to_be_killed(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with ForegroundDaemon(root) as daemon:
        note = note_of(root)
        assert note is not None
        own = os.geteuid()
        monkeypatch.setattr(system, "own_user", lambda: own + 1)
        silence = silence_of(root, note)
        assert silence.text == f"pid {daemon.pid} holds {root} and listens to user {own} alone"
        assert silence.remedy.startswith("run steno as that user")


@pytest.mark.slow
def test_a_daemon_that_is_used_notices_soon_that_its_socket_was_removed(root: Path) -> None:
    with (
        ForegroundDaemon(root) as daemon,
        connect_sync(root, spawn=False, timeout=limits.ROOM_CHECK_S) as client,
    ):
        (root / paths.SOCKET).unlink()
        end = time.monotonic() + limits.HOUSEKEEPING_S / 3
        with suppress(StenoError):
            while time.monotonic() < end:
                client.status()
        assert time.monotonic() < end, "it goes on, and nobody new can come"
        assert daemon.wait() == 0
        assert any(" socket_lost " in line for line in daemon.log)


def test_a_slow_start_is_an_error_with_the_time_waited(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    endless = tmp_path / "python"
    endless.write_text("#!/bin/sh\nexec tail -f /dev/null\n")
    endless.chmod(0o700)
    monkeypatch.setattr(sys, "executable", str(endless))
    with pytest.raises(Unreachable, match=r"not ready within [1-9]\d*\.\d s"):
        connect_sync(root, timeout=2)


def test_a_removed_socket_costs_the_next_command_a_moment(root: Path) -> None:
    with ForegroundDaemon(root) as daemon:
        (root / paths.SOCKET).unlink()
        # Of a client that waits a third of the time after which an idle daemon used to look.
        with connect_sync(root, timeout=limits.HOUSEKEEPING_S / 3) as client:
            client.open("demo")
            client.drain()
        assert daemon.wait() == 0
        assert any(" socket_lost " in line for line in daemon.log)


def test_a_moved_root_costs_the_next_command_a_moment(root: Path) -> None:
    moved = root / "moved"
    first = root / "first"
    first.mkdir(mode=0o700)
    with ForegroundDaemon(first) as daemon:
        first.rename(moved)
        with connect_sync(moved, timeout=limits.HOUSEKEEPING_S / 3) as client:
            assert client.welcome.root == str(moved)
            client.drain()
        assert daemon.wait() == 0


def test_a_daemon_without_clients_writes_nothing_and_one_that_answers_leaves_a_sign(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "ROOT_WATCH_S", 0.01)
    monkeypatch.setattr(limits, "LIFE_SIGN_S", 0.0)
    with DaemonInThread(root):
        lock = root / paths.LOCK
        with connect_sync(root, spawn=False) as client:
            os.utime(lock, (1, 1))
            client.status()
            wait_until(lambda: lock.stat().st_mtime > 1)

        def stays_quiet() -> bool:
            os.utime(lock, (1, 1))
            wait_for_jitter(0.2)
            return lock.stat().st_mtime == 1

        # The client's farewell leaves a last sign.
        wait_until(stays_quiet)


LOGGING = """#!/bin/sh
echo '2026-01-01 00:00:00,000 INFO asked servers="a, b"' >> '{log}'
exec tail -f /dev/null
"""
GIVING_UP = """#!/bin/sh
if rm '{log}.first'; then
    (sleep 1; echo '2026-01-01 00:00:00,000 ERROR cannot_start error="wrong key"' >> '{log}') &
    exec tail -f /dev/null
fi
exit 3
"""


@pytest.mark.parametrize(
    ("script", "said"),
    [(LOGGING, 'it said: .* INFO asked servers="a, b"'), (GIVING_UP, "and said: wrong key")],
)
def test_a_start_that_takes_too_long_shows_the_daemons_last_words(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str, said: str
) -> None:
    log = root / paths.LOG
    log.write_text('2025-01-01 00:00:00,000 ERROR cannot_start error="long ago"\n')
    Path(f"{log}.first").touch()
    mute = tmp_path / "python"
    mute.write_text(script.format(log=log))
    mute.chmod(0o700)
    monkeypatch.setattr(sys, "executable", str(mute))
    monkeypatch.setattr(limits, "SPAWN_TIMEOUT_S", 0.5)
    with pytest.raises(Unreachable, match=said) as raised:
        connect_sync(root, timeout=6)
    assert "long ago" not in raised.value.message


@pytest.mark.slow
def test_no_daemon_is_started_after_the_deadline(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now_s = [0.0]

    def silent(_target: object, _deadline: float) -> probe.Unreachable:
        # As when the daemon of a moved root ends after half a minute.
        now_s[0] += 31.0
        return probe.Unreachable("ipc://old.sock", "no daemon listens at ipc://old.sock")

    start = Mock()
    monkeypatch.setattr(spawn, "time", Mock(monotonic=lambda: now_s[0]))
    monkeypatch.setattr(spawn, "probe", silent)
    monkeypatch.setattr(spawn, "_start", start)
    target = make_target(root, None, None, spawn=True)
    with pytest.raises(Unreachable, match=r"no daemon listens at ipc://old\.sock"):
        spawn.ensure(target.resolved(), 0.0, 30.0)
    assert not start.called


def test_the_error_of_a_slow_start_names_the_whole_wait(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now_s = [30.0]

    def endless(*_: object, timeout: float, **__: object) -> None:
        now_s[0] += timeout
        raise subprocess.TimeoutExpired("stenod", timeout)

    monkeypatch.setattr(spawn, "time", Mock(monotonic=lambda: now_s[0]))
    monkeypatch.setattr("subprocess.run", endless)
    with pytest.raises(Unreachable, match=r"stenod was not ready within 7\.0 s"):
        spawn._start(str(root), 24.0, 31.0, LastWords(str(root)), is_last=True)


def test_a_start_that_takes_too_long_is_tried_again(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hung = tmp_path / "hung"
    hung.touch()
    slow = tmp_path / "python"
    slow.write_text(
        f"#!/bin/sh\nif rm '{hung}'; then exec tail -f /dev/null; fi\n"
        f"exec '{sys.executable}' \"$@\"\n"
    )
    slow.chmod(0o700)
    monkeypatch.setattr(sys, "executable", str(slow))
    monkeypatch.setattr(limits, "SPAWN_TIMEOUT_S", 3.0)

    def be_patient_with_the_next() -> None:
        wait_until(lambda: not hung.exists())
        monkeypatch.setattr(limits, "SPAWN_TIMEOUT_S", 60.0)

    patience = threading.Thread(target=be_patient_with_the_next)
    patience.start()
    with connect_sync(root, timeout=60) as client:
        assert client.status().sessions_open == 0
    patience.join()
    assert not hung.exists()


def wait_until_somebody_starts(root: Path) -> None:
    """Return once a client holds the start lock. To try it would be to keep that client from it."""
    lock = root / paths.START_LOCK
    wait_until(
        lambda: lock.exists() and f":{lock.stat().st_ino} " in Path("/proc/locks").read_text()
    )


@pytest.mark.parametrize("killed", [2, 3])
def test_a_daemon_that_is_killed_while_it_starts_is_started_again(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, killed: int
) -> None:
    lives = tmp_path / "lives"
    lives.write_text("x" * killed)
    mortal = tmp_path / "python"
    mortal.write_text(
        f"#!/bin/sh\nif [ -s '{lives}' ]; then truncate -s -1 '{lives}'; kill -9 $$; fi\n"
        f"exec '{sys.executable}' \"$@\"\n"
    )
    mortal.chmod(0o700)
    monkeypatch.setattr(sys, "executable", str(mortal))
    if killed == limits.STARTS_MAX:
        with pytest.raises(Unreachable, match=r"started 3 times .* without a word"):
            connect_sync(root)
    else:
        with connect_sync(root) as client:
            assert client.status().sessions_open == 0
    assert lives.read_text() == ""


def test_a_daemon_outlives_its_killed_starter(root: Path) -> None:
    subprocess.run([sys.executable, "-c", STARTER_THAT_DIES, str(root)], check=True)
    log = root / paths.LOG
    wait_until(lambda: log.exists() and " ready " in log.read_text())
    with connect_sync(root, spawn=False) as client:
        client.open("demo")
    assert "cannot_start" not in log.read_text()


@pytest.mark.parametrize("timeout", [30.0, 16.0])
@pytest.mark.slow
def test_a_held_start_lock_blocks_no_start_for_ever(
    root: Path, monkeypatch: pytest.MonkeyPatch, timeout: float
) -> None:
    monkeypatch.setattr(limits, "START_LOCK_S", 0.2 if timeout == 30.0 else 60.0)
    stopped = os.open(root / paths.START_LOCK, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(stopped, fcntl.LOCK_EX)
        with connect_sync(root, timeout=timeout) as client:
            client.drain()
    finally:
        os.close(stopped)


def test_a_daemon_inherits_no_handle_of_its_starter(root: Path) -> None:
    lock = os.open(root / paths.START_LOCK, os.O_RDWR | os.O_CREAT, 0o600)
    reader, writer = os.pipe()
    fcntl.flock(lock, fcntl.LOCK_EX)
    command = [sys.executable, "-m", "stenod", "--root", str(root)]
    try:
        subprocess.run(command, pass_fds=(lock, writer), check=True)
    finally:
        os.close(lock)
        os.close(writer)
    with connect_sync(root, spawn=False) as client, closing(StartLock(str(root), 60.0)) as other:
        assert other.try_turn()
        with os.fdopen(reader, "rb") as pipe:
            os.set_blocking(reader, False)
            assert pipe.read() == b"", "nobody else holds the other end"
        client.drain()


def test_waiting_clients_start_one_daemon_at_a_time(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now_s = [0.0]
    monkeypatch.setattr(start_lock, "time", Mock(monotonic=lambda: now_s[0]))
    with ExitStack() as stack:
        locks = [stack.enter_context(closing(StartLock(str(root), 5.0))) for _ in range(4)]
        turns: list[list[bool]] = []
        for now_s[0] in (0.0, 4.9, 5.0, 9.9, 10.0, 15.0):
            turns.append([lock.try_turn() for lock in locks])
        ours = [sum(each) for each in turns]
        assert ours == [1, 1, 2, 2, 3, 4]
        assert turns[-2] == [True, True, True, False], "a client keeps its turn"


def test_waiting_for_a_daemon_backs_off() -> None:
    pauses = [spawn._pause_s(waited_s) for waited_s in (0.0, 0.1, 1.0, 5.0, 1000.0)]
    assert pauses[0] == pauses[1] == limits.START_LOCK_POLL_S
    assert pauses[1] < pauses[2] < pauses[3] <= pauses[4] == limits.RECONNECT_S_MAX


def test_a_dead_socket_is_detected_without_a_wait(root: Path) -> None:
    target = make_target(root, None, None, spawn=False).resolved()
    with ForegroundDaemon(root) as daemon:
        daemon.kill()
    assert (root / paths.SOCKET).exists()
    for _ in ("left behind", "removed"):
        found = probe.probe(target, 0.0)
        assert isinstance(found, probe.Unreachable)
        assert "no daemon listens" in found.why
        (root / paths.SOCKET).unlink(missing_ok=True)
    with ForegroundDaemon(root):
        ready = probe.probe(target, time.monotonic() + 30)
        assert isinstance(ready, probe.Ready)
        ready.connection.close()


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_a_child_forked_during_a_start_does_not_keep_the_start_lock(
    root: Path,
) -> None:
    lock = StartLock(str(root), 60.0)
    assert lock.try_turn()
    may_end, end = os.pipe()
    is_forked, notify = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(end)
        os.write(notify, b"x")
        os.read(may_end, 1)
        os._exit(0)
    try:
        os.read(is_forked, 1)
        lock.close()
        with closing(StartLock(str(root), 60.0)) as other:
            assert other.try_turn()
    finally:
        for handle in (end, may_end, is_forked, notify):
            os.close(handle)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_a_daemon_is_started_without_any_folder_for_temporary_files(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    full = OSError(28, "No space left on device")
    monkeypatch.setattr("tempfile.TemporaryFile", Mock(side_effect=full))
    with connect_sync(root) as client:
        client.drain()


def test_a_start_without_memory_for_its_output_is_an_error(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    full = OSError(23, "Too many open files in system")
    monkeypatch.setattr("os.memfd_create", Mock(side_effect=full))
    with pytest.raises(Unreachable, match=r"stenod cannot be run as .*Too many open files"):
        connect_sync(root)


def test_any_content_of_the_lock_file_is_tolerated(root: Path) -> None:
    (root / paths.LOCK).write_bytes(b'{"pid":1,"version":"\xff"}')
    (found,) = [each.text for each in check_lock(Namespace(), root)]
    assert found == "no daemon holds the root: one is started when it is needed"
    with connect_sync(root) as client:
        client.drain()


def test_an_unusable_root_is_an_error(root: Path) -> None:
    file = root / "file"
    file.write_text("")
    for place in (file, file / "below"):
        with pytest.raises(Unreachable, match=r"cannot be used: .*file is no folder; choose"):
            connect_sync(place)


def test_the_daemon_imports_no_module_from_the_working_folder(root: Path, tmp_path: Path) -> None:
    (tmp_path / "queue.py").write_text("raise SystemExit('imported from the working folder')")
    (tmp_path / "stenod.py").write_text("raise SystemExit('imported from the working folder')")
    subprocess.run(
        [sys.executable, "-P", "-c", CLIENT, str(root), "x"],
        cwd=tmp_path,
        check=True,
        stdout=subprocess.DEVNULL,
    )


def test_another_roots_daemon_is_not_believed(root: Path) -> None:
    with ScriptedDaemon(root, root="/elsewhere") as daemon:
        with pytest.raises(Incompatible, match="/elsewhere"):
            connect_sync(root, endpoint=daemon.endpoint)
        write_note(root, daemon)
        with pytest.raises(Incompatible, match="/elsewhere"):
            connect_sync(root)


def test_an_older_daemon_is_asked_to_drain_and_replaced(root: Path) -> None:
    speak = speaking(root, 0)

    def old(request: Request) -> Answers | None:
        if isinstance(request.command, commands.Drain):
            daemon.stop()
        return speak(request)

    with ScriptedDaemon(root, old) as daemon:
        write_note(root, daemon)
        with connect_sync(root) as client:
            assert client.status().root == str(root)
        assert any(isinstance(command, commands.Drain) for command in daemon.requests)


def closes(taken: socket.socket) -> None:
    """Hang up at once."""
    taken.close()


def answers_otherwise(taken: socket.socket) -> None:
    """Speak another protocol, as a web server does."""
    with suppress(OSError):
        taken.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")
    taken.close()


@pytest.mark.parametrize("act", [closes, answers_otherwise])
@pytest.mark.parametrize("by", ["endpoint", "root"])
def test_a_program_that_hangs_up_is_not_called_absent(
    root: Path, act: Callable[[socket.socket], None], by: str
) -> None:
    def serve(listening: socket.socket) -> None:
        with suppress(OSError):
            while True:
                act(listening.accept()[0])

    path = root / paths.SOCKET
    where: dict[str, Any] = {"root": root} if by == "root" else {"endpoint": f"ipc://{path}"}
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(path))
        listening.listen()
        fake = threading.Thread(target=serve, args=(listening,))
        fake.start()
        try:
            with pytest.raises(Unreachable) as raised:
                connect_sync(spawn=False, timeout=1, **where)
        finally:
            listening.shutdown(socket.SHUT_RDWR)
            fake.join()
    reason = f"no daemon: the program that listens at ipc://{path} hangs up: it is no stenod"
    assert raised.value.message.startswith(reason)


def test_a_stopped_daemon_at_an_address_is_not_called_absent(root: Path) -> None:
    with ForegroundDaemon(root) as daemon:
        os.kill(daemon.pid, signal.SIGSTOP)
        with pytest.raises(Unreachable, match="did not answer in time"):
            connect_sync(endpoint=daemon.endpoint, timeout=0.5)
        os.kill(daemon.pid, signal.SIGCONT)


def test_an_endpoint_that_no_socket_takes_is_unreachable() -> None:
    with pytest.raises(Unreachable, match=r"tcp://\.\.:7117 cannot be connected to"):
        connect_sync(endpoint="tcp://..:7117")


def test_the_name_of_a_client_says_which_program_and_process_it_is(root: Path) -> None:
    with connect_sync(root) as client:
        assert isinstance(client, BlockingClient)
        assert client.name.endswith(f"-{os.getpid()}")
        assert client.status().clients == 1
        assert client.clients().clients[0].name == client.name


def speaking(root: Path, protocol: int) -> Script:
    def script(request: Request) -> Answers | None:
        if isinstance(request.command, commands.Hello):
            return [(welcome(str(root), protocol), None)]
        return None

    return script


def write_note(root: Path, daemon: ScriptedDaemon) -> None:
    note = paths.LockNote(pid=1, version="0", root=str(root), endpoint=daemon.endpoint)
    (root / paths.LOCK).write_bytes(msgspec.json.encode(note))


FEW_HANDLES = """
import os, resource, sys, steno
resource.setrlimit(resource.RLIMIT_NOFILE, (200, 200))
import steno._sync.client, steno._connect.lock_holder
handles = []
try:
    while True:
        handles.append(os.open(os.devnull, os.O_RDONLY))
except OSError:
    pass
for _ in range(int(sys.argv[2])):
    os.close(handles.pop())
try:
    steno.connect_sync(sys.argv[1], timeout=1).open("demo").wait_for("0:9", timeout=0)
    print("reached")
except steno.Unreachable as error:
    print(error.message)
for handle in handles:
    os.close(handle)
steno.connect_sync(sys.argv[1], spawn=False).close()
"""


@pytest.mark.parametrize("left", [0, 1, 2])
def test_a_process_out_of_handles_gets_an_error_and_lives_on(root: Path, left: int) -> None:
    with ForegroundDaemon(root):
        done = subprocess.run(
            [sys.executable, "-c", FEW_HANDLES, str(root), str(left)],
            capture_output=True,
            text=True,
            check=False,
        )
    assert (done.returncode, done.stderr) == (0, "")
    assert "no file handles left" in done.stdout
    assert "ulimit -n" in done.stdout
