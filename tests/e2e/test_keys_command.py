"""The command `steno keys`, and the key files that it makes."""

import os
import resource
import stat
import subprocess
from pathlib import Path

import pytest
import zmq

import steno
from steno_protocol import commands, credentials, limits, paths
from steno_protocol.messages import encode_request
from support.command import Steno
from support.daemon_in_thread import DaemonInThread
from support.remote_access import endpoint_of

HELLO = {"role": "user", "content": "a secret thought"}


def test_status_shows_both_addresses_of_a_daemon(root: Path) -> None:
    call = Steno(root)
    assert call("keys", "new", "laptop").code == 0
    (root / paths.CONFIG).write_text('[network]\nlisten = "tcp://127.0.0.1:*"\n')
    with DaemonInThread(root) as daemon:
        shown = call("status").out
        assert endpoint_of(daemon) in shown
        assert f"ipc://{root}/{paths.SOCKET}" in shown
        assert call("keys", "revoke", "laptop").code == 0
        with pytest.raises(steno.Unauthorized):
            steno.connect_sync(
                endpoint=endpoint_of(daemon),
                key_file=root / credentials.KEYS_FOLDER / "laptop.key",
            )


def test_clients_shows_the_claimed_name_beside_that_of_the_key(root: Path) -> None:
    call = Steno(root)
    assert call("keys", "new", "laptop").code == 0
    (root / paths.CONFIG).write_text('[network]\nlisten = "tcp://127.0.0.1:*"\n')
    with DaemonInThread(root) as daemon:
        assert not any(line.endswith(" -  -") for line in call("clients").out.splitlines())
        with steno.connect_sync(
            endpoint=endpoint_of(daemon),
            key_file=root / credentials.KEYS_FOLDER / "laptop.key",
            name="planner",
        ) as client:
            assert client.name == "planner"
            rows = {line.split()[0]: line.split() for line in call("clients").out.splitlines()}
            assert rows["planner"][-2:] == ["-", "laptop"]
            assert all(row[-1] == "-" for name, row in rows.items() if name != "planner")
            assert "KEY" in call.on_terminal(120, "clients").splitlines()[0]


def test_full_disk_leaves_no_partial_key_file(root: Path, tmp_path: Path) -> None:
    call, path = Steno(root), tmp_path / "laptop.key"
    words = ("keys", "new", "laptop", "-o", str(path))
    ran = subprocess.run(
        # Without bytecode, of which it would write only the beginning.
        call.words(*words), env={**call.environment, "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True, text=True, timeout=60,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (8, resource.RLIM_INFINITY)),
        check=False,
    )  # fmt: skip
    assert ran.returncode == 1
    assert not path.exists()
    assert list((root / credentials.KEYS_FOLDER).iterdir()) == []
    assert call(*words).code == 0


def test_key_files_are_private_and_never_overwritten(root: Path, tmp_path: Path) -> None:
    call = Steno(root)
    assert call("keys", "new", "laptop", "-o", str(tmp_path / "laptop.key")).code == 0
    folder = root / credentials.KEYS_FOLDER
    for path in (*folder.iterdir(), tmp_path / "laptop.key"):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    again = call("keys", "new", "laptop", "-o", str(tmp_path / "other.key"))
    assert "revoke it with `steno keys revoke` first" in again.err
    assert not (tmp_path / "other.key").exists()
    assert (
        "never overwritten" in call("keys", "new", "tablet", "-o", str(folder / "server.key")).err
    )
    assert [entry["name"] for entry in call("keys", "list", "--json").document["clients"]] == [
        "laptop"
    ]
    assert "cannot name a key" in call("keys", "new", "a/b").err


@pytest.mark.skipif(os.getuid() != 0, reason="only root can become another user")
@pytest.mark.slow
def test_daemon_ignores_other_users_even_when_its_folder_is_open(
    root: Path,
) -> None:
    with steno.connect_sync(root) as client:
        client.open("demo").append_message(HELLO)
        for path in (root, root / "stenod.sock"):
            path.chmod(0o777)
        reader, writer = os.pipe()
        child = os.fork()
        if child == 0:
            os.setgid(65534)
            os.setuid(65534)
            os.write(writer, _ask_as_stranger(root / "stenod.sock"))
            os._exit(0)
        os.close(writer)
        with os.fdopen(reader, "rb") as pipe:
            assert pipe.read() == b"silence"
        os.waitpid(child, 0)
        assert client.session("demo").stat().head == "0:1"


def _ask_as_stranger(path: Path) -> bytes:
    """The reply of a daemon to the hello of another user, or its silence."""
    socket = zmq.Context().socket(zmq.DEALER)
    socket.connect(f"ipc://{path}")
    socket.send_multipart(encode_request(b"1", commands.Hello(protocol=2), ()))
    return b"answer" if socket.poll(limits.HANDSHAKE_MS) else b"silence"
