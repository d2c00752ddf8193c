"""Remote clients: admission by key, rights, and revocation."""

import json
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

import steno
from steno._connect.connection import new_key_pair
from steno._connect.key_files import client_key
from steno_cli.connection import local_root
from steno_protocol import credentials, limits, paths
from steno_protocol.commands import Append, Configuration, Read
from steno_protocol.credentials import ClientKey, KeyPair
from steno_protocol.replies import Ack, ConfigurationReport, Lines
from support.daemon_in_thread import DaemonInThread
from support.remote_access import allow, endpoint_of, listen, revoke

HELLO = {"role": "user", "content": "a secret thought"}
ANSWER_S = 600.0
"""A client that waits for its deadline does not end before the test's own time limit."""


@pytest.fixture
def keys(root: Path) -> dict[str, Path]:
    """Key files of clients that may read, write and administer."""
    return {right: allow(root, right, right) for right in ("read", "write", "admin")}


@pytest.fixture
def daemon(root: Path, keys: dict[str, Path]) -> Iterator[DaemonInThread]:
    """A daemon that listens on loopback."""
    listen(root)
    with DaemonInThread(root) as daemon:
        yield daemon


@pytest.fixture
def endpoint(daemon: DaemonInThread) -> str:
    """Its address."""
    return endpoint_of(daemon)


def key_of(root: Path, name: str) -> Path:
    return root / credentials.KEYS_FOLDER / f"{name}.key"


def connect(root: Path, endpoint: str, name: str) -> steno.BlockingClient:
    return steno.connect_sync(endpoint=endpoint, key_file=key_of(root, name))


def save(path: Path, key: ClientKey) -> Path:
    path.write_text(credentials.encode_client_key(key, "test"))
    path.chmod(0o600)
    return path


@pytest.mark.skipif(not Path("/proc/net/if_inet6").exists(), reason="the system has no IPv6")
def test_daemon_listens_at_an_ipv6_address(root: Path) -> None:
    allow(root, "laptop")
    listen(root, "[::1]")
    with DaemonInThread(root) as daemon:
        endpoint = endpoint_of(daemon)
        assert endpoint.startswith("tcp://[::1]:")
        with connect(root, endpoint, "laptop") as laptop:
            assert laptop.status().remote_endpoint == endpoint
            assert laptop.open("demo").append_message(HELLO).durability == "synced"


def test_a_client_that_may_only_read_sees_no_path_of_the_machine(root: Path, endpoint: str) -> None:
    with connect(root, endpoint, "write") as writer:
        folder = writer.open("demo").append_message(HELLO) and writer.stat("demo").folder
        assert writer.status().root == writer.welcome.root == str(root)
        assert folder.startswith(str(root))
    with connect(root, endpoint, "read") as reader:
        assert (reader.welcome.root, reader.status().root, reader.status().endpoint) == ("", "", "")
        assert reader.stat("demo").folder == ""
        with pytest.raises(steno.Unauthorized) as refused:
            reader.request(Configuration(), ConfigurationReport)
        assert str(root) not in refused.value.message
        for wrong in ("nowhere", "mount:nowhere", "a/../b"):
            with pytest.raises(steno.StenoError) as failed:
                reader.stat(wrong)
            assert str(root) not in str(failed.value)
        assert local_root(reader) is None


def test_each_right_includes_the_lower_ones(root: Path, endpoint: str) -> None:
    with connect(root, endpoint, "write") as writer:
        writer.open("demo").append_message(HELLO)
    with connect(root, endpoint, "read") as reader:
        session = reader.session("demo")
        assert [record.record["content"] for record in session.records()] == [HELLO["content"]]
        with pytest.raises(
            steno.Unauthorized, match="the key read has the right read, and append needs"
        ):
            session.append_message(HELLO)
    with connect(root, endpoint, "write") as writer:
        with pytest.raises(steno.Unauthorized, match="needs the right admin"):
            writer.delete("demo")
        assert len(list(writer.session("demo").records())) == 1
    with connect(root, endpoint, "admin") as admin:
        admin.delete("demo")
        admin.drain()


def test_remote_client_reads_everything_through_the_daemon(root: Path, endpoint: str) -> None:
    lines = [b'{"role":"user","content":"%s"}\n' % (b"x" * 5000)] * 500
    folder = root / paths.SESSIONS / "long"
    folder.mkdir(parents=True)
    (folder / paths.CONTEXT).write_bytes(b"".join(lines))
    with connect(root, endpoint, "read") as reader:
        reply, block = reader.request(Read(session="long"), Lines)
        assert len(block) < len(b"".join(lines))
        assert reply.source is None
        assert list(reader.session("long").lines()) == lines


def test_client_without_a_valid_key_is_refused_long_before_its_deadline(
    root: Path, endpoint: str, daemon: DaemonInThread, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "REMOTE_PROBE_TIMEOUT_S", ANSWER_S)
    server = client_key(key_of(root, "write")).server
    stranger = save(root / "stranger.key", ClientKey(KeyPair(*new_key_pair()), server))
    own = client_key(key_of(root, "write")).own
    elsewhere = save(root / "elsewhere.key", ClientKey(own, new_key_pair()[0]))
    for key_file, error in (
        (None, steno.Unauthorized),
        (stranger, steno.Unauthorized),
        (elsewhere, steno.Unreachable),
    ):
        with pytest.raises(error, match=r"key"):
            steno.connect_sync(endpoint=endpoint, key_file=key_file, timeout=ANSWER_S)
    log = "".join(daemon.log)
    assert "not_admitted" in log
    assert own.secret not in log


def test_connected_client_is_refused_after_its_revocation(root: Path, endpoint: str) -> None:
    with connect(root, endpoint, "write") as writer, steno.connect_sync(root) as local:
        session = writer.open("demo")
        session.append_message(HELLO)
        revoke(root, "write")
        local.open("demo").append_message({"role": "user", "content": "after"})
        with pytest.raises(steno.Unauthorized, match="no longer"):
            session.append_message(HELLO)
        with pytest.raises(steno.Unauthorized, match="no longer"):
            session.history  # noqa: B018  # the request for it is refused
    with pytest.raises(steno.Unauthorized):
        connect(root, endpoint, "write")
    with connect(root, endpoint, "read") as reader:
        assert len(list(reader.session("demo").records())) == 2


def test_daemon_with_a_readable_key_does_not_start(root: Path) -> None:
    allow(root, "laptop")
    listen(root)
    server = root / credentials.KEYS_FOLDER / credentials.SERVER_FILE
    server.chmod(0o640)
    with pytest.raises(steno.Unauthorized, match="chmod 600"):
        DaemonInThread(root).start()
    server.unlink()
    with pytest.raises(steno.Unauthorized, match="steno keys new"):
        DaemonInThread(root).start()


def test_flood_of_refused_handshakes_blocks_no_client(root: Path, endpoint: str) -> None:
    def connect_without_key() -> None:
        for _ in range(20):
            with pytest.raises(steno.StenoError):
                steno.connect_sync(endpoint=endpoint, timeout=10)

    strangers = [threading.Thread(target=connect_without_key) for _ in range(4)]
    for stranger in strangers:
        stranger.start()
    for _ in range(10):
        with connect(root, endpoint, "write") as client:
            client.open("demo", follow=False).append_message(HELLO)
    for stranger in strangers:
        stranger.join(60)
    with steno.connect_sync(root) as local:
        assert len(local.open("demo").history) == 10


def test_author_over_tcp_is_the_name_of_the_key(root: Path, endpoint: str) -> None:
    with steno.connect_sync(
        endpoint=endpoint, key_file=key_of(root, "write"), name="planner"
    ) as client:
        session = client.open("demo")
        session.append_message(HELLO)
        session.append_message([HELLO, HELLO])
        session.append_wire("TurnBegin", {"user_input": "x"})
        session.checkpoint()
        session.revert_to(0)
        client.rename("demo", "other")
    folder = root / "sessions" / "other"
    lines = (folder / "context_1.jsonl").read_bytes().splitlines()
    lines += (folder / "wire.jsonl").read_bytes().splitlines()[1:]
    authors = {(each["_by"], each["_claim"]) for each in map(json.loads, lines)}
    assert authors == {("write", "planner")}
    with steno.connect_sync(root, spawn=False) as local:
        entries = local.timeline("other")
        assert [entry.kind for entry in entries] == ["created", "reverted", "renamed"]
        assert {(entry.by, entry.claim) for entry in entries} == {("write", "planner")}


def test_claim_of_a_remote_client_cannot_name_another_author(root: Path, endpoint: str) -> None:
    with connect(root, endpoint, "write") as client:
        client.open("demo", follow=False)
        forged = Append(session="demo", key="k", by="admin", claim="admin-too")
        client.request(forged, Ack, [json.dumps(HELLO).encode()])
    [line] = (root / "sessions" / "demo" / "context.jsonl").read_bytes().splitlines()
    assert (json.loads(line)["_by"], json.loads(line)["_claim"]) == ("write", "admin")


def test_author_on_the_same_machine_stays_its_own_name(root: Path, daemon: DaemonInThread) -> None:
    with steno.connect_sync(root, spawn=False, name="planner") as client:
        client.open("demo", follow=False).append_message(HELLO)
        assert [entry.key for entry in client.clients().clients] == [None]
    [line] = (root / "sessions" / "demo" / "context.jsonl").read_bytes().splitlines()
    assert json.loads(line)["_by"] == "planner"
    assert "_claim" not in json.loads(line)
