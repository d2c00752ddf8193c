"""`steno doctor`: without a daemon, beside a healthy and a hanging one, on broken roots."""

import errno
import fcntl
import io
import json
import os
import re
import resource
import signal
import socket
import stat
import time
from argparse import Namespace
from collections.abc import Callable
from contextlib import redirect_stdout
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO

import msgspec
import pytest

from steno import connect_sync
from steno._connect.lock_holder import note_of
from steno._connect.safe_open import open_regular
from steno_cli.command_limits import FAILED_LATELY_S
from steno_cli.doctor import Finding, sessions
from steno_cli.doctor.leftovers import check_leftovers
from steno_cli.doctor.root import check_disk, check_links, check_root
from steno_cli.doctor.sessions import check_sessions
from steno_cli.entry import main
from steno_protocol import PROTOCOL_VERSION, commands, credentials, paths, replies
from steno_protocol.errors import ErrorCode, StorageFailed
from steno_protocol.messages import Request
from stenod.daemon import Daemon
from support.command import Steno
from support.daemon_in_thread import DaemonInThread
from support.foreground import ForegroundDaemon, daemon_of_tests
from support.scripted_daemon import Answers, Script, ScriptedDaemon

WELL, PROBLEM = 0, 7
ODD_KINDS = ("FIFO", "socket", "folder", "symbolic link")
FOLDERS = (paths.SESSIONS, credentials.KEYS_FOLDER)
OWN_FILES = (
    "context.jsonl", "wire.jsonl", "timeline.jsonl", "state.json", "context.mark", "wire.mark",
    "context_1.jsonl",
)  # fmt: skip


def _examine(root: Path, *arguments: str) -> tuple[int, dict[str, list[dict[str, Any]]]]:
    """The exit code of the command, run in this process, and its findings by their checks."""
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(io.StringIO()) as out:
        patch.setenv("STENO_HOME", str(root))
        patch.delenv("STENO_SOCKET", raising=False)
        code = main(["doctor", "--json", *arguments])
    found: dict[str, list[dict[str, Any]]] = {}
    for finding in json.loads(out.getvalue())["findings"]:
        assert set(finding) == {"check", "state", "told", "remedy"}
        assert bool(finding["remedy"]) == (finding["state"] != "ok")
        found.setdefault(finding["check"], []).append(finding)
    return code, found


def _states(findings: list[dict[str, Any]]) -> list[str]:
    return [finding["state"] for finding in findings]


def test_a_missing_root_is_ok_and_is_not_created(root: Path) -> None:
    code, found = _examine(root, "--root", str(root / "new"))
    assert code == WELL
    assert "does not exist yet" in found["root"][0]["told"]
    assert not (root / "new").exists()


def test_a_root_that_cannot_be_created_is_a_problem(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "access", lambda path, _: path != root)
    (finding,) = check_root(Namespace(), root / "not" / "there")
    assert finding.state == "problem"
    assert f"you cannot create anything in {root}" in finding.text


def test_a_root_that_every_user_may_write_to_is_a_problem(root: Path) -> None:
    (root / "open").mkdir()
    (root / "open").chmod(0o777)
    (finding,) = check_root(Namespace(), root / "open")
    assert (finding.state, finding.remedy) == ("problem", f"`chmod 700 {root}/open`")
    # As the daemon says.
    assert finding.text.startswith(f"every user may write to {root}/open: ")
    assert "every user may write to" in Steno(root / "open")("start").err


@pytest.mark.parametrize("name", ["", "not there"])
def test_a_root_on_a_read_only_file_system_is_a_problem(
    root: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    found = list(os.statvfs(root))
    found[8] |= os.ST_RDONLY
    monkeypatch.setattr(os, "statvfs", lambda _: os.statvfs_result(found))
    (finding,) = check_root(Namespace(), root / name)
    assert (finding.state, "mount it for writing" in finding.remedy) == ("problem", True)


def test_a_healthy_daemon_is_ok_and_no_file_is_left(root: Path, steno: Steno) -> None:
    steno("append", "demo", "hi")
    before = sorted(root.iterdir())
    code, found = _examine(root)
    # Of other programs of this user.
    found.pop("leftovers", None)
    assert code == WELL, found
    assert found.keys() == {
        "versions", "root", "config", "keys", "disk", "sync", "lock", "daemon", "sessions",
    }  # fmt: skip
    assert found["daemon"][0]["told"].startswith("stenod ")
    assert "1 session, nothing to report" in found["sessions"][0]["told"]
    assert sorted(root.iterdir()) == before


def test_the_findings_are_readable(root: Path) -> None:
    root.chmod(0o755)
    shown = Steno(root).on_terminal(100, "doctor")
    assert "mode 755" in shown
    assert f"→ `chmod 700 {root}`" in shown
    # A busy or nearly full disk is another warning.
    assert re.search(r"0 problems, [1-9] warnings? on", shown)


def test_doctor_reports_a_stopped_process_with_a_remedy(root: Path) -> None:
    with ForegroundDaemon(root) as daemon:
        os.kill(daemon.pid, signal.SIGSTOP)
        code, found = _examine(root, "--timeout", "0.3")
        assert code == PROBLEM
        (finding,) = found["daemon"]
        assert finding["told"] == f"pid {daemon.pid} holds {root} and is stopped"
        assert finding["remedy"].endswith(f"`kill -CONT {daemon.pid}`")
        os.kill(daemon.pid, signal.SIGCONT)
        assert _examine(root)[0] == WELL


def test_doctor_reports_a_removed_socket(root: Path) -> None:
    with daemon_of_tests(root, "e2e.blind_daemon"):
        (root / paths.SOCKET).unlink()
        code, found = _examine(root, "--timeout", "0.3")
        assert "the next command starts another" in found["daemon"][0]["remedy"]
        assert "kill" not in found["daemon"][0]["remedy"]
    assert code == PROBLEM
    assert "is gone" in found["daemon"][0]["told"]


def test_the_socket_of_a_killed_daemon_is_harmless_and_another_file_is_not(root: Path) -> None:
    with ForegroundDaemon(root) as daemon:
        daemon.kill()
        code, found = _examine(root)
        assert (code, _states(found["socket"])) == (WELL, ["ok"])
    (root / paths.SOCKET).unlink()
    (root / paths.SOCKET).write_text("precious")
    code, found = _examine(root)
    assert (code, _states(found["socket"])) == (PROBLEM, ["problem"])


def test_doctor_accepts_a_systemd_socket_without_connecting(root: Path) -> None:
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(root / paths.SOCKET))
        listening.listen()
        listening.setblocking(False)
        code, found = _examine(root)
        assert code == WELL
        assert "which starts a daemon" in found["socket"][0]["told"]
        with pytest.raises(BlockingIOError):
            listening.accept()


def test_doctor_reports_a_daemon_of_another_version(root: Path) -> None:
    with (
        ScriptedDaemon(root, _old(root), root=str(root)) as daemon,
        (root / paths.LOCK).open("w") as lock,
    ):
        fcntl.flock(lock, fcntl.LOCK_EX)
        note = paths.LockNote(
            pid=os.getpid(), version="0.0.1", root=str(root), endpoint=daemon.endpoint
        )
        lock.write(msgspec.json.encode(note).decode())
        lock.flush()
        code, found = _examine(root)
    assert code == WELL
    (finding,) = found["daemon"]
    assert "stenod 0.0.1, pid 1" in finding["told"]
    assert finding["remedy"] == "`steno restart`"


def _old(root: Path) -> Script:
    status = replies.StatusReport(
        version="0.0.1", protocol=PROTOCOL_VERSION, pid=1, root=str(root), endpoint="",
        uptime_s=1.0, mounts={}, sessions_open=0, clients=1, queued=0, appended_records=0,
        syncs=0, sync_s=0.0, slowest_sync_s=0.0, dropped=0,
    )  # fmt: skip
    refused = replies.ErrorReply(code=ErrorCode.BAD_REQUEST, message="what?")

    def answer(request: Request) -> Answers | None:
        match request.command:
            case commands.Status():
                return [(status, None)]
            case commands.Configuration():
                return [(refused, None)]
            case _:
                return None

    return answer


@pytest.mark.parametrize("what", ["file", "config", "mount", "user"])
def test_doctor_reports_a_broken_root_and_continues(root: Path, what: str) -> None:
    broken = root
    if what == "file":
        broken = root / "file"
        broken.write_text("")
    elif what == "config":
        (root / paths.CONFIG).write_text("[log]\nlevle = 'info'\n")
    elif what == "user":
        (root / paths.CONFIG).write_text("[mounts]\nkimi = '~nosuchuser/x'\n")
    else:
        (root / paths.CONFIG).write_text("[mounts]\nkimi = '/nowhere/at/all'\n")
    code, found = _examine(root, "--root", str(broken))
    check = "root" if what == "file" else "config"
    states = {state for finding in found[check] for state in [finding["state"]]}
    assert code == (WELL if what == "mount" else PROBLEM)
    assert ("warning" if what == "mount" else "problem") in states
    assert "versions" in found
    assert "disk" in found


def test_doctor_counts_the_clients_of_other_machines(root: Path) -> None:
    assert _examine(root)[1]["keys"][0]["told"] == "no client of another machine is admitted"
    Steno(root)("keys", "new", "laptop")
    code, found = _examine(root)
    assert (code, _states(found["keys"])) == (WELL, ["ok"])
    assert found["keys"][0]["told"] == "1 client of other machines admitted"


@pytest.mark.parametrize(
    ("name", "spoil", "printed"),
    [
        (credentials.CLIENTS_FILE, lambda path: path.chmod(0o644), "chmod 600"),
        (credentials.CLIENTS_FILE, lambda path: path.write_text("[laptop]\n"), "the right of"),
        (credentials.SERVER_FILE, lambda path: path.write_text("x"), "is not TOML"),
        (credentials.SERVER_FILE, lambda path: path.unlink(), "does not start without it"),
    ],
)
def test_a_key_that_cannot_be_used_is_a_problem(
    root: Path, name: str, spoil: Callable[[Path], object], printed: str
) -> None:
    (root / paths.CONFIG).write_text("[network]\nlisten = 'tcp://127.0.0.1:7777'\n")
    Steno(root)("keys", "new", "laptop")
    spoil(root / credentials.KEYS_FOLDER / name)
    code, found = _examine(root)
    assert code == PROBLEM
    assert any(each["state"] == "problem" and printed in each["told"] for each in found["keys"])


def test_too_little_free_space_is_a_problem(root: Path) -> None:
    (root / paths.CONFIG).write_text("[disk]\nfree_bytes = '4096 TB'\n")
    code, found = _examine(root)
    assert code == PROBLEM
    assert "less than the floor" in found["disk"][0]["told"]


def test_files_that_cannot_have_two_names_are_a_problem(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert list(check_links(Namespace(), root)) == []

    def refuse(*_: object) -> None:
        raise PermissionError(errno.EPERM, os.strerror(errno.EPERM))

    monkeypatch.setattr(os, "link", refuse)
    (finding,) = check_links(Namespace(), root)
    assert finding.state == "problem"
    assert "hard links" in finding.remedy
    assert list(root.iterdir()) == []


def test_doctor_reports_a_torn_tail(root: Path, steno: Steno) -> None:
    torn = [
        ("team/a", b'{"role":"user","cont', "its last line is not finished", 1),
        ("team/b", b'{"role":"user","cont', "its last line is not finished", 4_000_000_000),
        ("team/c", b'{"role":"user"\n', "its last line is no JSON", 1),
        ("team/d", b"\0\0\0\0\n", "NUL bytes", 1),
    ]
    for session, *_ in torn:
        steno("append", session, "hi")
    steno("stop")
    for session, tail, _, changed_s in torn:
        context = root / paths.SESSIONS / session / paths.CONTEXT
        with context.open("ab") as file:
            file.write(tail)
        # The file has not changed for a while, by any clock.
        os.utime(context, (changed_s, changed_s))
    code, found = _examine(root)
    assert code == WELL
    for (session, _, printed, _), finding in zip(torn, found["sessions"], strict=True):
        assert finding["state"] == "warning"
        assert finding["told"].startswith(f"{session}: ")
        assert printed in finding["told"]
    for session, *_ in torn:
        steno("append", session, "again")
    for finding in _examine(root)[1]["sessions"]:
        assert "1 damaged part in quarantine" in finding["told"]


def test_an_unreadable_session_does_not_end_the_check_of_the_others(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in "abc":
        context = root / paths.SESSIONS / name / paths.CONTEXT
        context.parent.mkdir(parents=True)
        context.write_text("torn")
        os.utime(context, (1, 1))

    # As for another user: the tests may run as root, which ignores file modes.
    def refuse(path: Path) -> BinaryIO:
        if path.parent.name in {"a", "b"}:
            raise PermissionError(13, "Permission denied", str(path))
        return open_regular(path)

    class Foreign:
        st_uid, st_mtime, st_mode = os.getuid() + 1, 1.0, stat.S_IFREG

    really_lstat = Path.lstat
    monkeypatch.setattr(sessions, "open_regular", refuse)
    monkeypatch.setattr(
        Path, "lstat", lambda path: Foreign if path.parent.name == "a" else really_lstat(path)
    )
    found = list(check_sessions(Namespace(), root))
    assert [each.state for each in found] == ["problem", "problem", "warning"]
    first, second, third = [each.text for each in found]
    assert "a: its files belong to uid" in first
    assert f"b: {root}/sessions/b/context.jsonl cannot be read: Permission denied" in second
    assert third == "c: its last line is not finished"


def test_doctor_reports_a_slow_sync(root: Path, steno: Steno) -> None:
    (root / paths.CONFIG).write_text("[disk]\nslow_sync_s = 0\n")
    steno("append", "demo", "hi")
    _, found = _examine(root)
    assert any("a sync was slow at" in finding["told"] for finding in found["daemon"])
    shown = dict(line.split("  ", 1) for line in steno("status").out.splitlines())
    assert shown["last slow sync"].strip() != "none"
    assert json.loads(steno("status", "--json").out)["slow_sync_at"] > 0


def test_doctor_reports_commands_that_the_disk_failed(root: Path) -> None:
    with ForegroundDaemon(root) as daemon, connect_sync(root, spawn=False) as client:
        session = client.open("demo", follow=False)
        assert session.append_message({"role": "user", "content": "hi"})
        _, found = _examine(root)
        assert not any("failed by" in finding["told"] for finding in found["daemon"])
        size = (root / "sessions" / "demo" / "context.jsonl").stat().st_size
        resource.prlimit(daemon.pid, resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))
        for _ in range(2):
            with pytest.raises(StorageFailed):
                session.append_message({"role": "user", "content": "no room"})
        code, found = _examine(root)
        assert code == PROBLEM
        text = "2 commands failed by the disk since it was started (storage_failed)"
        states = {finding["told"]: finding["state"] for finding in found["daemon"]}
        assert states[text] == "problem"


def test_commands_that_failed_long_ago_are_a_warning(root: Path) -> None:
    with DaemonInThread(root) as running:

        def fail(daemon: Daemon, at: float) -> None:
            daemon._statistics.errors["storage_failed"] = 1
            daemon._statistics.failed_at["storage_failed"] = at

        for age_s, state in ((2 * FAILED_LATELY_S, "warning"), (1.0, "problem")):
            running.call(partial(fail, at=time.time() - age_s))
            _, found = _examine(root)
            states = {finding["told"]: finding["state"] for finding in found["daemon"]}
            assert states[next(text for text in states if "failed by the disk" in text)] == state


def test_a_full_disk_of_a_mount_is_a_problem(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (root / paths.CONFIG).write_text(f"[mounts]\nkimi = '{tmp_path}'\n")
    really_stat, really_statvfs = os.stat, os.statvfs
    full = os.statvfs_result((1024, 1024, 64, 60, 0, 100, 9, 9, 0, 255))

    class Elsewhere:
        st_dev = -1

    monkeypatch.setattr(
        os, "stat", lambda path, **how: Elsewhere if path == tmp_path else really_stat(path, **how)
    )
    monkeypatch.setattr(
        os, "statvfs", lambda path: full if path == tmp_path else really_statvfs(path)
    )
    _, finding = check_disk(Namespace(), root)
    assert finding.state == "problem"
    assert finding.text.startswith("the mount kimi: 0 B free")


@pytest.mark.parametrize("name", [paths.WIRE, paths.TIMELINE, paths.STATE])
def test_a_file_of_a_session_that_cannot_be_read_is_a_problem(
    root: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    folder = root / paths.SESSIONS / "demo"
    folder.mkdir(parents=True)
    (folder / paths.CONTEXT).touch()
    (folder / name).touch()
    # As for another user: the tests may run as root, which ignores file modes.
    monkeypatch.setattr(os, "access", lambda path, _: path != folder / name)
    (finding,) = check_sessions(Namespace(), root)
    assert finding.state == "problem"
    assert finding.text == f"demo: {folder / name} cannot be read: Permission denied"


def test_a_session_on_a_damaged_disk_is_a_problem(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = root / paths.SESSIONS / "demo"
    folder.mkdir(parents=True)
    (folder / paths.CONTEXT).touch()
    os.utime(folder / paths.CONTEXT, (1, 1))

    def fail(path: Path) -> BinaryIO:
        raise OSError(errno.EIO, os.strerror(errno.EIO), str(path))

    monkeypatch.setattr(sessions, "open_regular", fail)
    (finding,) = check_sessions(Namespace(), root)
    assert (finding.state, "backup" in finding.remedy) == ("problem", True)


def test_doctor_finds_a_daemon_of_another_version_on_another_root(
    root: Path, tmp_path: Path
) -> None:
    with ForegroundDaemon(root) as daemon:
        note = note_of(root)
        assert note is not None
        assert _leftovers(tmp_path, root) == []
        older = msgspec.structs.replace(note, version="0.0.1")
        (root / paths.LOCK).write_bytes(msgspec.json.encode(older))
        (finding,) = _leftovers(tmp_path, root)
        assert f"stenod 0.0.1, pid {daemon.pid}, runs on {root}; this command is" in finding.text
        assert finding.remedy.startswith(f"`steno restart --root {root}`")
        assert not any(str(root) in each.text for each in check_leftovers(Namespace(), root))


def _leftovers(own: Path, other: Path) -> list[Finding]:
    """The findings about one of the daemons of this machine."""
    return [each for each in check_leftovers(Namespace(), own) if str(other) in each.text]


@pytest.mark.parametrize("prefix", ["steno-demo-", "steno-cluster-"])
def test_doctor_finds_forgotten_roots_of_demos(
    root: Path, monkeypatch: pytest.MonkeyPatch, prefix: str
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(root))
    old, used, new = (root / f"{prefix}{name} x" for name in ("old", "used", "new"))
    for each in (old, used, new):
        each.mkdir()
    (used / paths.LOCK).touch()
    for each in (old, used):
        os.utime(each, (1, 1))
    with (used / paths.LOCK).open("rb") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        (finding,) = _leftovers(root, root)
    assert finding.text == f"{old} was left behind by a demo"
    assert finding.remedy == f"`rm -r '{old}'` removes it"


def test_a_foreign_process_at_the_socket_is_not_a_daemon(root: Path) -> None:
    with daemon_of_tests(root, "e2e.blind_daemon"), socket.socket(socket.AF_UNIX) as other:
        (root / paths.SOCKET).unlink()
        other.bind(str(root / paths.SOCKET))
        other.listen()
        code, found = _examine(root, "--timeout", "0.3")
    assert code == PROBLEM
    assert "does not answer" in found["daemon"][0]["told"]


def _put_odd(path: Path, kind: str) -> None:
    match kind:
        case "FIFO":
            os.mkfifo(path)
        case "socket":
            with socket.socket(socket.AF_UNIX) as bound:
                bound.bind(str(path))
        case "folder":
            path.mkdir()
        case _:
            path.symlink_to("nowhere")


@pytest.mark.parametrize("kind", ODD_KINDS)
def test_a_session_file_of_another_type_is_reported_and_not_opened(root: Path, kind: str) -> None:
    for number, name in enumerate(OWN_FILES):
        folder = root / paths.SESSIONS / f"s{number}"
        folder.mkdir(parents=True)
        if name != "context.jsonl":
            (folder / "context.jsonl").write_text('{"role":"user","content":"hi"}\n')
        _put_odd(folder / name, kind)
    # Files of other programs and hidden files are ignored.
    _put_odd(root / paths.SESSIONS / "s1" / "mine", kind)
    _put_odd(root / paths.SESSIONS / ".hidden", kind)
    code, found = _examine(root)
    assert code == PROBLEM
    assert [each["told"] for each in found["sessions"]] == [
        f"s{number}: {root}/sessions/s{number}/{name} is a {kind}, and has to be a regular file of"
        " its own"
        for number, name in enumerate(OWN_FILES)
    ]
    assert not (root / paths.LOCK).exists()


@pytest.mark.parametrize("kind", sorted({*ODD_KINDS} - {"folder"}))
def test_an_obstacle_among_the_sessions_is_reported(root: Path, kind: str) -> None:
    (root / paths.SESSIONS).mkdir()
    _put_odd(root / paths.SESSIONS / "s", kind)
    code, found = _examine(root)
    assert (code, _states(found["sessions"])) == (WELL, ["warning"])
    assert f"s is a {kind}: it cannot contain a session" in found["sessions"][0]["told"]


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        *((paths.CONFIG, kind) for kind in ODD_KINDS),
        *((name, "FIFO") for name in (paths.LOCK, paths.LOG, *FOLDERS)),
        *((name, "folder") for name in FOLDERS),
    ],
)
def test_a_part_of_the_root_of_another_type_is_reported(root: Path, name: str, kind: str) -> None:
    _put_odd(root / name, kind)
    code, found = _examine(root)
    # The fixture also examines the root at its end.
    (root / name).rename(root / "away")
    printed = [each["told"] for check in found.values() for each in check if each["remedy"]]
    if kind == "folder" and name in FOLDERS:
        assert (code, printed) == (WELL, [])
    else:
        assert any(f"{root / name} is a {kind}" in each for each in printed), printed


def test_other_commands_do_not_wait_for_a_fifo_in_the_root(root: Path) -> None:
    for name, command in ((paths.LOG, "logs"), (paths.CONFIG, "config"), (paths.LOCK, "stop")):
        os.mkfifo(root / name)
        ran = Steno(root)(command)
        (root / name).unlink()
        assert (ran.code, ran.out) == (1, "")
        assert f"{root / name} is a FIFO" in ran.err
    os.mkfifo(root / paths.CONFIG)
    ran = Steno(root)("start")
    assert ran.code == 5
    assert f"the configuration cannot be read: {root / paths.CONFIG} is a FIFO, and has" in ran.err


def test_doctor_reports_a_missing_present_generation_with_a_remedy(
    root: Path, steno: Steno
) -> None:
    steno("append", "team/demo", "one")
    for text in ("two", "three"):
        steno("clear", "team/demo")
        steno("append", "team/demo", text)
    steno("stop")
    folder = root / paths.SESSIONS / "team" / "demo"
    (folder / paths.CONTEXT).unlink()
    code, found = _examine(root)
    assert (code, _states(found["sessions"])) == (PROBLEM, ["problem"])
    (finding,) = found["sessions"]
    assert finding["told"] == "team/demo: it has older generations and no context.jsonl"
    move = f"mv {folder}/context_2.jsonl {folder}/context.jsonl"
    assert finding["remedy"] == f"to continue from the newest: `{move}`"
    (folder / "context_2.jsonl").rename(folder / "context.jsonl")
    assert _examine(root)[0] == WELL
    assert [each["content"] for each in steno("read", "team/demo").documents] == ["two"]


def test_an_error_about_a_missing_present_generation_has_a_remedy(root: Path, steno: Steno) -> None:
    steno("append", "demo", "one")
    steno("clear", "demo")
    steno("append", "demo-2", "another")
    steno("stop")
    folder = root / paths.SESSIONS / "demo"
    (folder / paths.CONTEXT).unlink()
    remedy = f"{folder} has older generations and no context.jsonl: move the newest"
    for command in ("read", "stat", "timeline", "tail", "show", "wire", "title", "export", "usage"):
        ran = steno(command, "demo")
        assert (ran.code, ran.out) == (4, ""), command
        # The only session with the prefix is not used instead.
        assert ran.err.startswith(f"steno: {remedy}"), command
    assert steno("dmail", "show", "demo").code == 4
    listed = steno("sessions", "demo")
    assert (listed.code, listed.out.split()[0]) == (0, "demo-2")
    assert "demo has older generations and no context.jsonl: `steno doctor`" in listed.err
    assert "no session" not in listed.err
    assert remedy in steno("delete", "demo").err
    assert remedy in steno("append", "demo", "x").err
    shown = steno("read", "demo", "--generation", "0").documents
    assert [each["content"] for each in shown] == ["one"]
