"""The daemon's log: one event a line, rotated, without contents of sessions."""

import json
import os
import re
import resource
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

import steno
from steno_protocol import paths
from support.command import Steno
from support.foreground import ForegroundDaemon
from support.raw_peer import RawPeer

CANARY = "XYZZY-plugh"
"""A secret that agents talk about."""

EVENT = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3} (DEBUG|INFO|WARNING|ERROR) \w+( .*)?\n")


def _secret(text: str = "") -> dict[str, str]:
    return {"role": "user", "content": f"{CANARY} {text}"}


def _talk(client: steno.BlockingClient) -> None:
    """Use every verb that takes a text, with a secret in it."""
    session = client.open("demo")
    session.write_system_prompt(f"you know {CANARY}")
    session.append_message([_secret(), _secret("too")])
    session.checkpoint(add_user_message=True)
    session.append_wire("TurnBegin", {"user_input": CANARY}, durability="synced")
    session.send_dmail(checkpoint_id=0, message=f"to myself: {CANARY}")
    session.append_message(_secret("late"))
    mail = session.pending_dmail()
    assert mail is not None
    delivered = session.deliver_dmail(mail.id)
    session.revert_to(delivered, why=f"because of {CANARY}")
    session.compact(lambda _: f"a summary with {CANARY}")
    session.clear(why=CANARY)
    session.restore_generation(0)


def _lie(root: Path) -> None:
    """Send messages that no client would, with a secret in them."""
    secret = CANARY.encode()
    records = (
        b'{"role":"user","content":"' + secret,
        b'{"role":"_' + secret + b'","content":"a"}',
        b'{"role":"user","content":"\\ud800 ' + secret + b'"}',
        b'{"role":"user","content":' + b"[" * 200 + b'"' + secret + b'"' + b"]" * 200 + b"}",
        b'{"role":"user","content":"' + secret + b'\xff"}',
        b'"' + secret + b'"',
    )
    with closing(RawPeer(root)) as peer:
        for record in records:
            assert peer.ask("append", record, session="demo", key="lie")["kind"] == "error"
            peer.ask("append_wire", record, session="demo", key="lie")
        peer.ask("write_system_prompt", session="demo", key="lie", prompt=CANARY, expect="0:0")
        peer.ask_bytes(b'{"command":"append","' + secret + b'":1}')
        peer.ask_bytes(secret)
        peer.send(b"STENO/2\n" + secret)


def _interfere(root: Path, client: steno.BlockingClient) -> None:
    """Write behind the daemon's back, whole lines and a half one, and fill the disk."""
    session = client.open("demo", follow=False)
    context = root / "sessions" / "demo" / "context.jsonl"
    with context.open("a") as file:
        file.write(json.dumps(_secret("foreign")) + "\n" + CANARY)
    session.append_message(_secret("after"))


def _errors_of(*calls: Callable[[], object]) -> list[str]:
    errors: list[str] = []
    for call in calls:
        with pytest.raises(steno.StenoError) as refused:
            call()
        errors.append(str(refused.value))
    return errors


def _meet_errors(client: steno.BlockingClient) -> list[str]:
    """The errors of another client that makes every mistake in the same session."""
    session = client.open("demo", follow=False)
    message = {"role": "user", "content": "harmless"}
    return _errors_of(
        lambda: session.append_message(message, expect="0:0"),
        lambda: session.revert_to(99),
        lambda: session.restore_generation(99),
        lambda: session.deliver_dmail("nothing"),
        lambda: session.send_dmail(checkpoint_id=99, message="x"),
        lambda: client.open("demo", exclusive=True),
        lambda: session.fork("demo"),
    )


def test_log_and_errors_of_others_contain_no_session_contents(root: Path) -> None:
    (root / "config.toml").write_text("[log]\nlevel = 'debug'\n[disk]\nslow_sync_s = 0\n")
    with (
        ForegroundDaemon(root) as daemon,
        steno.connect_sync(root, spawn=False) as client,
        steno.connect_sync(root, spawn=False) as other,
    ):
        _talk(client)
        _lie(root)
        _interfere(root, client)
        errors = _meet_errors(other)
        size = (root / "sessions" / "demo" / "context.jsonl").stat().st_size
        resource.prlimit(daemon.pid, resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))
        with pytest.raises(steno.StorageFailed):
            client.session("demo").append_message(_secret("no room"))
        daemon.wait_for(" storage_failed ")
        daemon.stop()
    log = "".join(daemon.log)
    for event in ("rewritten", "refused", "foreign_change", "slow_sync", "storage_failed", "ended"):
        assert f" {event} " in log
    assert CANARY not in log
    assert CANARY not in "".join(errors)


def test_every_event_is_one_line_with_its_fields(root: Path) -> None:
    (root / "config.toml").write_text("[log]\nlevel = 'debug'\n[disk]\nslow_sync_s = 0\n")
    steno_call = Steno(root)
    steno_call("append", "demo", "hi")
    steno_call("append", "demo", "hi", "--expect", "0:0")
    steno_call("stop")
    lines = (root / "stenod.log").read_text().splitlines(keepends=True)
    assert [line for line in lines if EVENT.fullmatch(line) is None] == []
    slow = next(line for line in lines if " slow_sync " in line)
    assert re.search(r'WARNING slow_sync session="demo" took_s=[0-9.e-]+ expected_s=0.0\n', slow)
    assert any('refused code="conflict" session="demo"' in line for line in lines)


def test_the_log_is_rotated_and_only_so_many_old_ones_are_kept(root: Path) -> None:
    (root / "config.toml").write_text("[log]\nlevel = 'debug'\nfile_bytes = '64 KiB'\nfiles = 2\n")
    steno_call = Steno(root)
    steno_call("start")
    with closing(RawPeer(root)) as peer:
        while not (root / "stenod.log.2").exists():
            for _ in range(100):
                # A long name makes a long line.
                peer.ask("stat", session=200 * "n")
    steno_call("stop")
    logs = sorted(path.name for path in root.glob("stenod.log*"))
    assert logs == ["stenod.log", "stenod.log.1", "stenod.log.2"]
    assert all((root / name).stat().st_size <= 64 * 1024 for name in logs)
    assert steno_call("logs", "-n", "1").out.split()[3] == "ended"


@pytest.mark.parametrize("kind", ["a FIFO", "a folder", "a socket", "a symbolic link"])
def test_an_unwritable_log_is_an_error_at_once(root: Path, kind: str) -> None:
    log = root / paths.LOG
    target = root / "precious"
    with socket.socket(socket.AF_UNIX) as unix:
        match kind:
            case "a FIFO":
                os.mkfifo(log)
            case "a folder":
                log.mkdir()
            case "a symbolic link":
                target.touch()
                log.symlink_to(target)
            case _:
                unix.bind(str(log))
        ran = Steno(root)("start")
        assert (ran.code, ran.out) == (5, "")
        message = f"{log} is {kind}, and has to be a regular file: move it away"
        assert message in ran.err
        words = ["--foreground", "--root", str(root), "--log", str(log)]
        daemon = subprocess.run(
            [sys.executable, "-m", "stenod", *words],
            capture_output=True, text=True, timeout=30, check=False,
        )  # fmt: skip
        assert (daemon.returncode, daemon.stderr) == (1, f"stenod: cannot start: {message}\n")
    assert not target.exists() or not target.read_bytes()


@pytest.mark.parametrize("is_moved", [False, True])
def test_a_log_that_was_removed_or_moved_away_is_begun_anew(root: Path, is_moved: bool) -> None:
    steno_call = Steno(root)
    steno_call("append", "demo", "hi")
    log = root / "stenod.log"
    if is_moved:
        log.rename(root / "aside")
    else:
        log.unlink()
    steno_call("clear", "demo")
    assert " rewritten " in steno_call("logs").out
    assert log.stat().st_mode & 0o777 == 0o600
    pid = json.loads(steno_call("status", "--json").out)["pid"]
    # libzmq and the interpreter write their last words there, too.
    assert {Path(f"/proc/{pid}/fd/{handle}").readlink() for handle in (1, 2)} == {log}


def test_the_next_daemon_logs_that_the_last_one_was_killed(root: Path) -> None:
    with ForegroundDaemon(root) as daemon:
        killed = daemon.pid
        daemon.kill()
        daemon.start()
        assert f" WARNING left_by_killed pid={killed} " in daemon.wait_for(" left_by_killed ")
        daemon.stop()
        daemon.start()
        daemon.wait_for(" ready ", 2)
        assert len([line for line in daemon.log if " left_by_killed " in line]) == 1


def test_a_signal_that_is_to_rotate_a_log_ends_no_daemon(root: Path) -> None:
    with ForegroundDaemon(root) as daemon:
        for number in (signal.SIGUSR1, signal.SIGUSR2, signal.SIGHUP):
            os.kill(daemon.pid, number)
        daemon.wait_for(" config_read ")
