"""Bad input of peers, and the replies to it."""

import json
import os
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import zmq

import steno
from steno_protocol import limits
from support.crowd import wait_until
from support.daemon_in_thread import DaemonInThread
from support.framing import command_frames, request_frames
from support.raw_peer import ANSWER_MS, RawPeer

GOOD = b'{"role":"user","content":"good"}'

BAD_RECORDS = {
    "not JSON": b"hello",
    "a reserved role": b'{"role":"_owner","content":"x"}',
    "a newline in a string": b'{"role":"user","content":"a\nb"}',
    "nesting 100 000 deep": b'{"role":"user","content":' + b"[" * 100_000 + b"]" * 100_000 + b"}",
}

BAD_SESSIONS = {
    "a parent": "../etc",
    "a control character": "a\x07b",
    "10 000 characters": "a" * 10_000,
}


@pytest.fixture(scope="module")
def served_root(shared_root: Path) -> Iterator[Path]:
    """A root whose one daemon has to survive all of this."""
    with DaemonInThread(shared_root):
        yield shared_root


@pytest.fixture
def root(served_root: Path) -> Path:
    """The root of all tests of this module."""
    return served_root


def busy_answers(peer: RawPeer) -> int:
    errors: dict[str, int] = peer.ask("stats")["errors"]
    return errors.get("busy", 0)


@pytest.fixture
def demo(request: pytest.FixtureRequest) -> str:
    """A session of this test alone."""
    return f"demo-{abs(hash(request.node.name))}"


@pytest.fixture
def peer(root: Path, demo: str) -> Iterator[RawPeer]:
    """A raw peer, and a session that holds one good record before and after."""
    with steno.connect_sync(root, name="keeper") as client:
        session = client.open(demo, follow=False)
        session.append_message(json.loads(GOOD), key="good")
        peer = RawPeer(root)
        yield peer
        peer.close()
        lines = list(session.lines())
        assert lines[0] == b'{"role":"user","content":"good","_by":"keeper","_id":"good"}\n'
        assert all(json.loads(line) for line in lines)
        assert session.append_message({"role": "user", "content": "still here"}).durability


@pytest.mark.parametrize("record", BAD_RECORDS.values(), ids=BAD_RECORDS.keys())
def test_a_bad_record_is_refused_and_nothing_is_written(
    peer: RawPeer, demo: str, record: bytes
) -> None:
    answer = peer.ask("append", GOOD, record, session=demo, key="bad")
    assert (answer["kind"], answer["code"]) == ("error", "bad_request"), answer
    # A newline in a string is another line of the message.
    assert "record 2 of 2" in answer["message"] or "3 lines that end" in answer["message"]
    assert peer.ask("stat", session=demo)["head"] == "0:1"


def test_only_a_record_over_the_limit_is_refused(peer: RawPeer, demo: str) -> None:
    frame = b'{"role":"user","content":"%b"}'
    room = limits.RECORD_BYTES_MAX - len(frame) + 2
    largest = frame % (b"x" * room)
    assert peer.ask("append", largest, session=demo, key="largest")["kind"] == "ack"
    # One byte more fits the socket's own limit, so the reply names the mistake.
    answer = peer.ask("append", frame % (b"x" * (room + 1)), session=demo, key="larger")
    assert answer["code"] == "too_large", answer


@pytest.mark.parametrize("session", BAD_SESSIONS.values(), ids=BAD_SESSIONS.keys())
def test_a_bad_session_id_is_refused_and_opens_nothing(
    peer: RawPeer, root: Path, session: str
) -> None:
    before = paths_in(root)
    for command in ("open", "stat", "append", "read", "timeline", "subscribe"):
        fields = {"append": {"key": "k"}, "subscribe": {"subscription": "s"}}.get(command, {})
        records = (GOOD,) if command == "append" else ()
        answer = peer.ask(command, *records, session=session, **fields)
        assert answer.get("code") == "bad_request", (command, answer)
    assert paths_in(root) == before


def paths_in(root: Path) -> list[Path]:
    """All paths but the files of other tests' sessions, whose recovery points may come late."""
    return sorted(path for path in root.rglob("*") if not path.parent.name.startswith("demo-"))


@pytest.mark.parametrize("command", ["open", "append", "read", "stat"])
def test_a_link_that_leads_out_of_the_root_is_not_followed(
    peer: RawPeer, root: Path, tmp_path: Path, command: str
) -> None:
    (root / "sessions" / f"out-{command}").symlink_to(tmp_path)
    fields = {"key": "k"} if command == "append" else {}
    records = (GOOD,) if command == "append" else ()
    answer = peer.ask(command, *records, session=f"out-{command}/inner", **fields)
    assert answer["kind"] == "error", answer
    assert "symbolic link" in answer["message"]
    assert list(tmp_path.iterdir()) == []


def test_a_session_file_that_is_a_link_or_a_pipe_is_refused(peer: RawPeer, root: Path) -> None:
    for name in ("link", "pipe"):
        folder = root / "sessions" / name
        folder.mkdir()
        target = folder / "context.jsonl"
        if name == "link":
            target.symlink_to("/etc/passwd")
        else:
            os.mkfifo(target)
        for command, records in (("append", (GOOD,)), ("read", ())):
            fields = {"key": "k"} if command == "append" else {}
            answer = peer.ask(command, *records, session=name, **fields)
            assert answer["kind"] == "error", (name, command, answer)


BAD_HEADERS = {
    "not JSON": b"hello",
    "an unknown command": b'{"command":"explode"}',
    "a malformed key": b'{"command":"clear","session":"demo","key":"a b"}',
    "nesting": b"[" * 100_000,
}


@pytest.mark.parametrize("header", BAD_HEADERS.values(), ids=BAD_HEADERS.keys())
def test_reply_to_a_bad_header_names_the_mistake(peer: RawPeer, header: bytes) -> None:
    answer = peer.ask_bytes(header)
    assert (answer["kind"], answer["code"]) == ("error", "bad_request"), answer


def test_unanswerable_frames_are_ignored_and_counted(peer: RawPeer) -> None:
    before = peer.ask("status").get("ignored", 0)
    for frames in ([b""], [b"STENO/2"], [b"HTTP/1.1", b"1", b"{}"], [b"STENO/1", b"", b"{}"]):
        peer.send(*frames)
    assert peer.ask("status")["ignored"] == before + 4


def test_10_000_random_messages_leave_the_daemon_as_it_was(
    peer: RawPeer, demo: str, seed: int
) -> None:
    chance = random.Random(seed)
    commands = [b"append", b"open", b"read", b"subscribe", b"grant", b"revert_to", b"append_wire"]
    for _ in range(10_000):
        header = b'{"command":"%b","session":"s%d",%b}' % (
            chance.choice(commands),
            chance.randrange(3),
            chance.randbytes(chance.randrange(12)),
        )
        records = [chance.randbytes(chance.randrange(40)) for _ in range(chance.randrange(3))]
        frames = request_frames(b"random-%d" % chance.randrange(9), header, *records)
        if chance.random() < 0.2:
            chance.shuffle(frames)
        peer.send(*frames)
        while peer.socket.poll(0):
            peer.socket.recv_multipart()
    assert peer.ask("stat", session=demo)["kind"] == "stat"


def test_client_with_too_many_unreceived_blocks_gets_busy(
    peer: RawPeer, root: Path, demo: str
) -> None:
    record = b'{"role":"user","content":"%b"}' % (b"x" * limits.MIB)
    for number in range(4):
        assert peer.ask("append", record, session=demo, key=f"k{number}")["kind"] == "ack"
    before = busy_answers(peer)
    stalled = RawPeer(root, receive_messages=1)
    read = b'{"command":"read","session":"%b","bytes_max":%d}' % (demo.encode(), 4 * limits.MIB)
    # The blocks that may wait, those that are being read, and those in the socket.
    given_most = limits.PEER_LOANS_BYTES_MAX // (3 * limits.MIB) + limits.PEER_BLOCKS_READ_MAX + 2
    for number in range(100):
        stalled.send(*request_frames(b"%d" % number, read))

    wait_until(lambda: busy_answers(peer) - before >= 100 - given_most)
    assert peer.ask("read", session=demo)["kind"] == "lines"
    answers: list[dict[str, Any]] = []
    while len(answers) < 100:
        answers += [body for _, body in stalled.receive()]
    assert {answer["kind"] for answer in answers} == {"lines", "error"}
    refused = [answer for answer in answers if answer["kind"] == "error"]
    assert {answer["code"] for answer in refused} == {"busy"}
    assert "receive them" in refused[0]["message"]
    assert stalled.ask("read", session=demo)["kind"] == "lines"
    stalled.close()


def test_a_client_that_never_reads_hurts_nobody(peer: RawPeer, root: Path, demo: str) -> None:
    stalled = RawPeer(root, receive_messages=1)
    for number in range(20_000):
        stalled.begin(b"%d" % number, "status")
    assert peer.ask("append", GOOD, session=demo, key="after")["kind"] == "ack"
    stalled.close()


def test_only_a_frame_over_the_limit_ends_the_connection(peer: RawPeer, demo: str) -> None:
    append = {"session": demo, "key": "large"}
    largest = b"x" * (limits.FRAME_BYTES_MAX - 1)
    with peer.socket.get_monitor_socket(zmq.EVENT_DISCONNECTED) as monitor:
        assert peer.ask("append", largest, **append)["code"] == "bad_request"
        assert not monitor.poll(0)
        peer.send(*command_frames(b"larger", "append", largest + b"x", **append))
        assert monitor.poll(ANSWER_MS)
        peer.socket.disable_monitor()


def test_no_session_is_created_in_uploads_and_existing_ones_stay(
    root: Path,
) -> None:
    uploads = root / "sessions" / "demo" / "uploads"
    there = root / "sessions" / "old" / "uploads"
    for folder in (uploads, there):
        folder.mkdir(parents=True)
    (there / "context.jsonl").write_bytes(GOOD + b"\n")
    with steno.connect_sync(root) as client:
        demo = client.open("demo")
        for session in ("demo/uploads", "demo/uploads/x", "uploads", "uploads/x"):
            with pytest.raises(
                steno.BadRequest, match="'uploads' is the name of a session's folder"
            ):
                client.open(session)
            with pytest.raises(
                steno.BadRequest, match="'uploads' is the name of a session's folder"
            ):
                demo.fork(session)
        old = client.open("old/uploads")
        old.append_message({"role": "user", "content": "more"})
        assert len(old.history) == 2
    assert list(uploads.iterdir()) == []
    assert not (root / "sessions" / "uploads").exists()
