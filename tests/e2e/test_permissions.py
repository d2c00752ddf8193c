"""Permissions: files, folders, socket and root belong to one user."""

import os
import socket
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import steno
from steno.adapters._address import find_address, prepare_root
from steno_protocol import limits
from support.command import Steno
from support.crowd import wait_until
from support.daemons import end_daemon_of
from support.foreground import ForegroundDaemon

OTHER_USER = 65534
SECRET = b'{"role":"user","content":"XYZZY-plugh"}\n'

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")


@pytest.fixture
def command(root: Path) -> Iterator[Steno]:
    yield Steno(root)
    end_daemon_of(root)


def as_nobody(attempt: Callable[[], object]) -> str:
    """Run a function as another user; returns the name of its error, or `done`."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        outcome = "done"
        try:
            os.setgroups([])
            os.setgid(OTHER_USER)
            os.setuid(OTHER_USER)
            attempt()
        except OSError as error:
            outcome = type(error).__name__
        os.write(writer, outcome.encode())
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader, "rb") as pipe:
        outcome = pipe.read().decode()
    os.waitpid(child, 0)
    return outcome


def start(root: Path) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-m", "stenod", "--root", str(root)],
        capture_output=True, text=True, timeout=30, check=False,
    )  # fmt: skip


def fill(root: Path) -> None:
    """Have every kind of file made that there is."""
    with steno.connect_sync(root) as client:
        session = client.open("demo", follow=False)
        session.append_message({"role": "user", "content": "hi"})
        session.checkpoint()
        session.append_wire("TurnBegin", {}, durability="synced")
        session.revert_to(0)
        client.drain()
    with (root / "sessions/demo/context.jsonl").open("ab") as file:
        file.write(b'{"role":"us')
    with steno.connect_sync(root) as client:
        client.open("demo", follow=False)
        client.drain()


@contextmanager
def _no_umask() -> Iterator[None]:
    mask = os.umask(0)
    try:
        yield
    finally:
        os.umask(mask)


def test_every_folder_that_a_client_makes_is_its_users_alone(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STENO_HOME", str(root / "state" / "steno"))
    with _no_umask():
        assert Steno(root / "state" / "steno")("keys", "new", "laptop").code == 0
        (root / "talk").mkdir(mode=0o700)
        prepare_root(find_address(root / "talk" / "context.jsonl"))
        with steno.connect_sync(root / "other" / "root") as client:
            client.drain()
    wait_until(lambda: not (root / "other" / "root" / "stenod.sock").exists())
    made = [path for path in root.rglob("*") if path.is_dir()]
    assert {"keys", "adapters", "other"} <= {path.name for path in made}
    assert [str(path) for path in made if stat.S_IMODE(path.stat().st_mode) != 0o700] == []


def test_everything_that_a_daemon_makes_is_its_users_alone(root: Path) -> None:
    with _no_umask():
        fill(root)
    # A drain is answered before the socket goes.
    wait_until(lambda: not (root / "stenod.sock").exists())
    made = list(root.rglob("*"))
    names = {path.name for path in made}
    assert {
        "context.jsonl",
        "context_1.jsonl",
        "wire.jsonl",
        "timeline.jsonl",
        "quarantine",
    } <= names
    open_to_others = [str(path) for path in made if stat.S_IMODE(path.lstat().st_mode) & 0o077]
    # Written by this test, under its own mask, and never by the daemon.
    assert open_to_others == []


@as_root
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_another_user_reaches_neither_socket_nor_files(root: Path) -> None:
    with ForegroundDaemon(root):
        with steno.connect_sync(root) as client:
            client.open("demo", follow=False).append_message({"role": "user", "content": "hi"})
        # The permissions hold also below an opened root.
        root.chmod(0o755)
        address = str(root / "stenod.sock")
        files = [path for path in root.rglob("*") if path.is_file()]

        def connect() -> None:
            with socket.socket(socket.AF_UNIX) as peer:
                peer.connect(address)

        assert as_nobody(connect) == "PermissionError"
        reached = [str(path) for path in files if as_nobody(path.read_bytes) != "PermissionError"]
        assert reached == []


def test_a_socket_beside_a_long_root_lies_in_no_folder_of_others(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    long = root / ("r" * limits.SOCKET_PATH_BYTES_MAX)
    long.mkdir(mode=0o700)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(root))
    folder = root / f"steno-{os.getuid()}"
    folder.mkdir()
    folder.chmod(0o777)
    ran = start(long)
    assert (ran.returncode, f"lie in {folder}" in ran.stderr) == (1, True)
    with pytest.raises(steno.Unauthorized, match="another user could replace it"):
        steno.connect_sync(long)
    assert list(folder.iterdir()) == []
    folder.chmod(0o700)
    with steno.connect_sync(long) as client:
        client.open("demo")
    end_daemon_of(long)


def test_a_daemon_leaves_no_core_file(root: Path) -> None:
    with ForegroundDaemon(root) as daemon:
        bounds = Path(f"/proc/{daemon.pid}/limits").read_text().splitlines()
    (core,) = [line.split() for line in bounds if line.startswith("Max core file size")]
    assert core[4:6] == ["0", "0"]


@pytest.mark.parametrize("kind", ["link", "fifo", "folder"])
@pytest.mark.slow
def test_irregular_session_file_is_never_read(command: Steno, kind: str) -> None:
    command("append", "demo", "hi")
    command("stop")
    secret = command.root / "secret.jsonl"
    secret.write_bytes(SECRET)
    for name in ("context.jsonl", "wire.jsonl", "timeline.jsonl"):
        file = command.root / "sessions" / "demo" / name
        file.unlink(missing_ok=True)
        match kind:
            case "link":
                file.symlink_to(secret)
            case "fifo":
                os.mkfifo(file)
            case _:
                file.mkdir()
        for words in (
            ["read", "demo"],
            ["wire", "demo"],
            ["verify", "demo"],
            ["append", "demo", "x"],
        ):
            ran = command(*words, "--timeout", "10")
            assert "XYZZY" not in ran.out + ran.err
        if name == "context.jsonl":
            assert ran.code != 0
        file.rmdir() if kind == "folder" else file.unlink()
    assert secret.read_bytes() == SECRET


def test_no_link_on_the_way_to_a_session_is_followed(command: Steno) -> None:
    outside = command.root / "outside" / "demo"
    outside.mkdir(parents=True)
    (outside / "context.jsonl").write_bytes(SECRET)
    command("append", "other", "hi")
    (command.root / "sessions" / "link").symlink_to(outside.parent)
    for words in (["read", "link/demo"], ["verify", "link/demo"], ["append", "link/demo", "x"]):
        ran = command(*words)
        assert ran.code != 0
        assert "XYZZY" not in ran.out + ran.err
    assert (outside / "context.jsonl").read_bytes() == SECRET
    assert "link" not in command("sessions").out


def test_damage_is_reported_without_its_contents(command: Steno) -> None:
    command("append", "demo", "hi")
    context = command.root / "sessions" / "demo" / "context.jsonl"
    with context.open("ab") as file:
        file.write(b'{"role":"us' + SECRET + b"XYZZY\n" + SECRET)
    calls = [
        command("verify", "demo"),
        command("repair", "demo"),
        command("repair", "demo", "--apply"),
    ]
    assert [ran.code for ran in calls] == [7, 0, 0]
    assert not any("XYZZY" in ran.out + ran.err for ran in calls)
    assert "XYZZY" not in (command.root / "stenod.log").read_text()
