"""Roots, sockets and files of other users: nothing is sent there, and nothing stays behind."""

import os
import signal
import stat
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import msgspec
import pytest
import zmq

import steno
from steno_protocol import paths
from steno_protocol.paths import LockNote
from steno_system.private_files import open_private
from steno_web.token_file import token_in

NOBODY = 65534

pytestmark = pytest.mark.skipif(
    os.geteuid() != 0, reason="only the superuser can act as several users"
)


@pytest.fixture
def shared(tmp_path: Path) -> Path:
    """A folder in which every user may make files, as /tmp."""
    folder = tmp_path / "shared"
    folder.mkdir()
    folder.chmod(0o1777)
    for above in tmp_path.parents:
        if above.stat().st_uid == os.geteuid() and above != Path("/"):
            above.chmod(above.stat().st_mode | stat.S_IXOTH)
    tmp_path.chmod(0o711)
    return folder


@pytest.fixture
def fake(shared: Path) -> Iterator[tuple[Path, int]]:
    """A socket of another user's process, and a pipe that shows what it was sent."""
    path = shared / "steno.sock"
    readable, writable = os.pipe()
    ready_read, ready_write = os.pipe()
    pid = os.fork()
    if pid == 0:
        with suppress(BaseException):
            os.setgid(NOBODY)
            os.setuid(NOBODY)
            listener = zmq.Context().socket(zmq.ROUTER)
            listener.bind(f"ipc://{path}")
            path.chmod(0o777)
            os.write(ready_write, b"1")
            while True:
                os.write(writable, b"".join(listener.recv_multipart()))
        os._exit(0)
    os.close(writable)
    os.close(ready_write)
    assert os.read(ready_read, 1) == b"1"
    os.close(ready_read)
    yield path, readable
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    os.close(readable)


def sent(readable: int) -> bytes:
    """What the fake daemon was sent until now."""
    os.set_blocking(readable, False)
    with suppress(BlockingIOError):
        return os.read(readable, 1 << 16)
    return b""


def test_a_daemon_of_another_user_is_sent_nothing(
    fake: tuple[Path, int], root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, readable = fake
    with pytest.raises(steno.Unauthorized, match=f"a process of user {NOBODY} listens at"):
        steno.connect_sync(endpoint=f"ipc://{path}", timeout=10)
    monkeypatch.setenv("STENO_SOCKET", str(path))
    with pytest.raises(steno.Unauthorized, match="nothing was sent"):
        steno.connect_sync(root, timeout=10)
    assert b"hello" not in sent(readable)


def test_a_root_of_another_user_is_not_connected_to_and_keeps_its_files(
    fake: tuple[Path, int], shared: Path
) -> None:
    path, readable = fake
    theirs = shared / "home"
    theirs.mkdir(mode=0o755)
    note = LockNote(pid=1, root=str(theirs), version="1", endpoint=f"ipc://{path}")
    (theirs / paths.LOCK).write_bytes(msgspec.json.encode(note))
    for each in (theirs, theirs / paths.LOCK):
        os.chown(each, NOBODY, NOBODY)
    before = sorted(theirs.iterdir())
    with pytest.raises(steno.Unauthorized, match=f"belongs to user {NOBODY}"):
        steno.connect_sync(theirs, timeout=10)
    assert sorted(theirs.iterdir()) == before
    assert sent(readable) == b""


def test_a_lock_of_another_user_names_no_address(fake: tuple[Path, int], root: Path) -> None:
    path, readable = fake
    note = LockNote(pid=1, root=str(root), version="1", endpoint=f"ipc://{path}")
    (root / paths.LOCK).write_bytes(msgspec.json.encode(note))
    os.chown(root / paths.LOCK, NOBODY, NOBODY)
    with pytest.raises(steno.Unauthorized, match="belongs to user"):
        steno.connect_sync(root, timeout=10)
    assert sent(readable) == b""


def test_a_start_lock_is_neither_made_nor_followed_for_another_user(shared: Path) -> None:
    theirs = shared / "home"
    theirs.mkdir()
    os.chown(theirs, NOBODY, NOBODY)
    with pytest.raises(steno.Unauthorized, match="belongs to user"):
        open_private(theirs / paths.START_LOCK, os.O_RDWR | os.O_CREAT)
    assert list(theirs.iterdir()) == []


def test_a_token_file_of_another_user_is_refused(shared: Path) -> None:
    token = shared / "token"
    token.write_text("t" * 40 + "\n")
    token.chmod(0o600)
    os.chown(token, NOBODY, NOBODY)
    with pytest.raises(steno.BadRequest, match=f"belongs to user {NOBODY}"):
        token_in(token)
