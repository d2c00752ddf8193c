"""Clients from other machines: let in by their key, held to their right, and put out again."""

import os
import re
import resource
import stat
import subprocess
import threading
import time
from pathlib import Path

import pytest
import zmq

import steno
from steno._connect.connection import new_key_pair
from steno._connect.key_files import client_key
from steno_protocol import commands, credentials, limits, paths
from steno_protocol.commands import Read, command_name
from steno_protocol.credentials import ClientKey, KeyPair
from steno_protocol.messages import encode_request
from steno_protocol.replies import Lines
from steno_protocol.rights import Right, right_needed
from support.command import Steno

LISTENING = re.compile(r'listening endpoint="(tcp://127\.0\.0\.1:\d+)"')
HELLO = {"role": "user", "content": "a secret thought"}
TOLD_WITHIN_S = 2.0
ANSWER_MS = 20_000


@pytest.fixture
def endpoint(root: Path) -> str:
    """Where a daemon listens on loopback; the clients read, write and admin have keys."""
    call = Steno(root)
    for right in ("read", "write", "admin"):
        assert call("keys", "new", right, "--right", right).code == 0
    (root / paths.CONFIG).write_text('[network]\nlisten = "tcp://127.0.0.1:*"\n')
    assert call("start").code == 0
    found = LISTENING.search((root / paths.LOG).read_text())
    assert found is not None
    return found[1]


def key_of(root: Path, name: str) -> Path:
    return root / credentials.KEYS_FOLDER / f"{name}.key"


def connect(root: Path, endpoint: str, name: str) -> steno.BlockingClient:
    return steno.connect_sync(endpoint=endpoint, key_file=key_of(root, name))


def save(path: Path, key: ClientKey) -> Path:
    path.write_text(credentials.encode_client_key(key, "test"))
    path.chmod(0o600)
    return path


def test_status_shows_the_address_for_other_machines(root: Path, endpoint: str) -> None:
    with connect(root, endpoint, "read") as reader:
        assert reader.status().remote_endpoint == endpoint
    shown = Steno(root)("status").out
    assert endpoint in shown
    assert f"ipc://{root}/{paths.SOCKET}" in shown


@pytest.mark.skipif(not Path("/proc/net/if_inet6").exists(), reason="the system has no IPv6")
def test_an_address_of_the_sixth_version_of_ip_is_listened_at(root: Path) -> None:
    call = Steno(root)
    assert call("keys", "new", "laptop").code == 0
    (root / paths.CONFIG).write_text('[network]\nlisten = "tcp://[::1]:*"\n')
    assert call("start").code == 0
    with steno.connect_sync(root) as local:
        endpoint = local.status().remote_endpoint
    assert endpoint is not None
    assert endpoint.startswith("tcp://[::1]:")
    with connect(root, endpoint, "laptop") as laptop:
        assert laptop.open("demo").append_message(HELLO).durability == "synced"


def test_each_right_contains_the_one_before(root: Path, endpoint: str) -> None:
    with connect(root, endpoint, "write") as writer:
        writer.open("demo").append_message(HELLO)
    with connect(root, endpoint, "read") as reader:
        session = reader.session("demo")
        assert [record.record["content"] for record in session.records()] == [HELLO["content"]]
        with pytest.raises(steno.Unauthorized, match="read may read, and append needs"):
            session.append_message(HELLO)
    with connect(root, endpoint, "write") as writer:
        with pytest.raises(steno.Unauthorized, match="needs the right to admin"):
            writer.delete("demo")
        assert len(list(writer.session("demo").records())) == 1
    with connect(root, endpoint, "admin") as admin:
        admin.delete("demo")
        admin.drain()


def test_a_remote_client_reads_everything_through_the_daemon(root: Path, endpoint: str) -> None:
    lines = [b'{"role":"user","content":"%s"}\n' % (b"x" * 5000)] * 500
    folder = root / paths.SESSIONS / "long"
    folder.mkdir(parents=True)
    (folder / paths.CONTEXT).write_bytes(b"".join(lines))
    with connect(root, endpoint, "read") as reader:
        reply, block = reader.request(Read(session="long"), Lines)
        assert len(block) < len(b"".join(lines))
        assert reply.source is None
        assert list(reader.session("long").lines()) == lines


@pytest.mark.anyio
async def test_the_async_client_follows_over_tcp(root: Path, endpoint: str) -> None:
    async with steno.connect(endpoint=endpoint, key_file=key_of(root, "write")) as client:
        session = await client.open("demo")
        await session.append_message(HELLO)
        assert session.history == [HELLO]


def test_a_client_without_a_valid_key_is_refused_within_two_seconds(
    root: Path, endpoint: str
) -> None:
    server = client_key(key_of(root, "write")).server
    stranger = save(root / "stranger.key", ClientKey(KeyPair(*new_key_pair()), server))
    own = client_key(key_of(root, "write")).own
    elsewhere = save(root / "elsewhere.key", ClientKey(own, new_key_pair()[0]))
    for key_file, error in (
        (None, steno.Unauthorized),
        (stranger, steno.Unauthorized),
        (elsewhere, steno.Unreachable),
    ):
        begun = time.monotonic()
        with pytest.raises(error, match=r"key"):
            steno.connect_sync(endpoint=endpoint, key_file=key_file)
        assert time.monotonic() - begun < TOLD_WITHIN_S
    log = (root / paths.LOG).read_text()
    assert "not_admitted" in log
    assert own.secret not in log


def test_a_connected_client_is_refused_after_its_revocation(root: Path, endpoint: str) -> None:
    with connect(root, endpoint, "write") as writer, steno.connect_sync(root) as local:
        session = writer.open("demo")
        session.append_message(HELLO)
        assert Steno(root)("keys", "revoke", "write").code == 0
        local.open("demo").append_message({"role": "user", "content": "after"})
        with pytest.raises(steno.Unauthorized, match="no longer"):
            session.append_message(HELLO)
        with pytest.raises(steno.Unauthorized, match="no longer"):
            session.history  # noqa: B018  # to ask for it is what is refused
    with pytest.raises(steno.Unauthorized):
        connect(root, endpoint, "write")
    with connect(root, endpoint, "read") as reader:
        assert len(list(reader.session("demo").records())) == 2


def test_a_revoked_client_that_only_follows_learns_it_instead_of_the_next_event(
    root: Path, endpoint: str
) -> None:
    with connect(root, endpoint, "read") as reader, steno.connect_sync(root) as local:
        session = local.open("demo")
        follower = reader.session("demo").subscribe(after="now")
        assert isinstance(follower.next_event(timeout=30), steno.Live)
        assert Steno(root)("keys", "revoke", "read").code == 0
        session.append_message(HELLO)
        with pytest.raises(steno.Unauthorized, match="no longer"):
            follower.next_event(timeout=30)


def test_a_readable_or_damaged_client_list_admits_no_client(root: Path, endpoint: str) -> None:
    path = root / credentials.KEYS_FOLDER / credentials.CLIENTS_FILE
    path.chmod(0o644)
    with pytest.raises(steno.Unauthorized):
        connect(root, endpoint, "admin")
    path.chmod(0o600)
    connect(root, endpoint, "admin").close()
    path.write_text(path.read_text() + "[")
    with pytest.raises(steno.Unauthorized):
        connect(root, endpoint, "admin")
    assert "keys_refused" in (root / paths.LOG).read_text()


def test_a_daemon_whose_key_others_can_read_does_not_start(root: Path) -> None:
    call = Steno(root)
    call("keys", "new", "laptop")
    (root / paths.CONFIG).write_text('[network]\nlisten = "tcp://127.0.0.1:*"\n')
    server = root / credentials.KEYS_FOLDER / credentials.SERVER_FILE
    server.chmod(0o640)
    started = call("start")
    assert started.code != 0
    assert "chmod 600" in started.err
    server.unlink()
    assert "steno keys new" in call("start").err


def test_a_disk_that_is_full_leaves_no_half_of_a_key_in_the_way(root: Path, tmp_path: Path) -> None:
    call, path = Steno(root), tmp_path / "laptop.key"
    words = ("keys", "new", "laptop", "-o", str(path))
    ran = subprocess.run(
        call.words(*words), env=call.environment, capture_output=True, text=True, timeout=60,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (8, resource.RLIM_INFINITY)),
        check=False,
    )  # fmt: skip
    assert ran.returncode == 1
    assert not path.exists()
    assert list((root / credentials.KEYS_FOLDER).iterdir()) == []
    assert call(*words).code == 0


def test_key_files_are_ours_alone_and_never_overwritten(root: Path, tmp_path: Path) -> None:
    call = Steno(root)
    assert call("keys", "new", "laptop", "-o", str(tmp_path / "laptop.key")).code == 0
    folder = root / credentials.KEYS_FOLDER
    for path in (*folder.iterdir(), tmp_path / "laptop.key"):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    again = call("keys", "new", "laptop", "-o", str(tmp_path / "other.key"))
    assert "revoke it first" in again.err
    assert not (tmp_path / "other.key").exists()
    assert (
        "never overwritten" in call("keys", "new", "tablet", "-o", str(folder / "server.key")).err
    )
    assert [entry["name"] for entry in call("keys", "list", "--json").document["clients"]] == [
        "laptop"
    ]
    assert "names no key" in call("keys", "new", "a/b").err


def test_a_key_file_that_others_can_read_or_that_is_a_link_is_refused(
    root: Path, tmp_path: Path
) -> None:
    Steno(root)("keys", "new", "laptop", "-o", str(tmp_path / "laptop.key"))
    (tmp_path / "link.key").symlink_to(tmp_path / "laptop.key")
    with pytest.raises(steno.Unauthorized, match="cannot be opened"):
        client_key(tmp_path / "link.key")
    (tmp_path / "laptop.key").chmod(0o604)
    with pytest.raises(steno.Unauthorized, match="chmod 600"):
        client_key(tmp_path / "laptop.key")
    with pytest.raises(steno.NotFound, match="steno keys new"):
        client_key(tmp_path / "none.key")


def test_secrets_are_in_no_repr_and_no_error(tmp_path: Path) -> None:
    pair = KeyPair(*new_key_pair())
    path = save(tmp_path / "k.key", ClientKey(pair, new_key_pair()[0]))
    assert pair.secret not in repr(client_key(path))
    path.write_text(f'public = "{pair.secret[:-1]}"\n')
    with pytest.raises(steno.BadRequest) as refused:
        client_key(path)
    assert pair.secret[:-1] not in str(refused.value)
    path.write_text(f'secret = "{pair.secret}')
    with pytest.raises(steno.BadRequest) as refused:
        client_key(path)
    assert pair.secret not in str(refused.value)
    path.write_text(f"secret = {'[' * 10_000}")
    with pytest.raises(steno.BadRequest, match="steno keys new"):
        client_key(path)


def test_every_command_needs_a_right_and_those_that_change_nothing_need_the_least() -> None:
    needed = {name: right_needed(kind) for name, kind in commands.COMMANDS.items()}
    assert {name for name, right in needed.items() if right is Right.ADMIN} >= {"delete", "drain"}
    for name, kind in commands.COMMANDS.items():
        assert command_name(kind) == name
        if issubclass(kind, commands.Mutation):
            assert needed[name] >= Right.WRITE


def test_a_flood_of_refused_handshakes_blocks_no_client(root: Path, endpoint: str) -> None:
    def knock() -> None:
        for _ in range(20):
            with pytest.raises(steno.StenoError):
                steno.connect_sync(endpoint=endpoint, timeout=10)

    knockers = [threading.Thread(target=knock) for _ in range(4)]
    for knocker in knockers:
        knocker.start()
    for _ in range(10):
        with connect(root, endpoint, "write") as client:
            client.open("demo", follow=False).append_message(HELLO)
    for knocker in knockers:
        knocker.join(60)
    with steno.connect_sync(root) as local:
        assert len(local.open("demo").history) == 10


@pytest.mark.skipif(os.getuid() != 0, reason="only root can become somebody else")
@pytest.mark.slow
def test_another_user_of_the_machine_is_not_heard_even_where_the_folder_is_open(
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
    """Whether a daemon answers somebody else's hello."""
    socket = zmq.Context().socket(zmq.DEALER)
    socket.connect(f"ipc://{path}")
    socket.send_multipart(encode_request(b"1", commands.Hello(protocol=2), ()))
    return b"answer" if socket.poll(limits.HANDSHAKE_MS) else b"silence"
