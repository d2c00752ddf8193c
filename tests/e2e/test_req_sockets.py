"""A REQ socket, which puts an empty frame before each request, gets its answers."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import zmq

from steno._connect.key_files import client_key
from steno_protocol import PROTOCOL_VERSION, credentials, paths
from support.command import Steno
from support.foreground import ForegroundDaemon
from support.framing import answers_of, request_frames
from support.lines import user
from support.raw_peer import ANSWER_MS

LISTENING = re.compile(r'listening endpoint="(tcp://127\.0\.0\.1:\d+)"')


@pytest.fixture(params=["ipc", "tcp"])
def socket(root: Path, request: pytest.FixtureRequest) -> Iterator["zmq.Socket[bytes]"]:
    """A REQ socket on the daemon of a root, on this machine or as from another one."""
    is_remote = request.param == "tcp"
    if is_remote:
        assert Steno(root)("keys", "new", "laptop", "--right", "write").code == 0
        (root / paths.CONFIG).write_text('[network]\nlisten = "tcp://127.0.0.1:*"\n')
    with (
        ForegroundDaemon(root) as daemon,
        zmq.Context() as context,
        context.socket(zmq.REQ) as made,
    ):
        made.set(zmq.LINGER, 0)
        made.set(zmq.RCVTIMEO, ANSWER_MS)
        if is_remote:
            key = client_key(root / credentials.KEYS_FOLDER / "laptop.key")
            made.set(zmq.CURVE_SERVERKEY, key.server.encode())
            made.set(zmq.CURVE_PUBLICKEY, key.own.public.encode())
            made.set(zmq.CURVE_SECRETKEY, key.own.secret.encode())
        found = LISTENING.search(daemon.wait_for("listening")) if is_remote else None
        made.connect(daemon.endpoint if found is None else found[1])
        yield made


def ask(socket: "zmq.Socket[bytes]", *records: bytes, **fields: Any) -> list[bytes]:
    socket.send_multipart(request_frames(b"1", json.dumps(fields).encode(), *records))
    return socket.recv_multipart()


def test_a_req_socket_is_answered_as_often_as_it_asks(socket: "zmq.Socket[bytes]") -> None:
    session = {"session": "demo"}
    ask(socket, command="hello", protocol=PROTOCOL_VERSION, name="req", pid=1)
    ask(socket, command="open", key="o", **session)
    for number in range(3):
        frames = ask(socket, user("hi"), command="append", key=f"k{number}", **session)
        [(name, body)] = answers_of(frames)
        assert (name, body["head"]) == (b"1", f"0:{number + 1}")
    *_, block = ask(socket, command="read", **session)
    assert block.count(b"\n") == 3
    [(_, refused)] = answers_of(ask(socket, command="stat", session="nobody"))
    assert refused["code"] == "not_found"
