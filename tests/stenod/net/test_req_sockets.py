"""REQ sockets, whose requests begin with an empty frame."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import zmq

from steno._connect.key_files import client_key
from steno_protocol import PROTOCOL_VERSION, paths
from support.daemon_in_thread import DaemonInThread
from support.framing import answers_of, request_frames
from support.lines import user
from support.raw_peer import ANSWER_MS
from support.remote_access import allow, endpoint_of, listen


@pytest.fixture(params=["ipc", "tcp"])
def socket(root: Path, request: pytest.FixtureRequest) -> Iterator["zmq.Socket[bytes]"]:
    """A REQ socket that is connected to a daemon, as on this machine or from another one."""
    is_remote = request.param == "tcp"
    if is_remote:
        key_file = allow(root, "laptop")
        listen(root)
    with (
        DaemonInThread(root) as daemon,
        zmq.Context() as context,
        context.socket(zmq.REQ) as made,
    ):
        made.set(zmq.LINGER, 0)
        made.set(zmq.RCVTIMEO, ANSWER_MS)
        if is_remote:
            key = client_key(key_file)
            made.set(zmq.CURVE_SERVERKEY, key.server.encode())
            made.set(zmq.CURVE_PUBLICKEY, key.own.public.encode())
            made.set(zmq.CURVE_SECRETKEY, key.own.secret.encode())
        made.connect(endpoint_of(daemon) if is_remote else f"ipc://{root / paths.SOCKET}")
        yield made


def ask(socket: "zmq.Socket[bytes]", *records: bytes, **fields: Any) -> list[bytes]:
    socket.send_multipart(request_frames(b"1", json.dumps(fields).encode(), *records))
    return socket.recv_multipart()


def test_req_socket_gets_a_reply_to_each_request(socket: "zmq.Socket[bytes]") -> None:
    session = {"session": "demo"}
    ask(socket, command="hello", protocol=PROTOCOL_VERSION, name="req", pid=1)
    ask(socket, command="open", key="o", **session)
    for number in range(3):
        frames = ask(socket, user("hi"), command="append", key=f"k{number}", **session)
        [(name, body)] = answers_of(frames)
        assert (name, body["head"]) == (b"1", f"0:{number + 1}")
    *_, block = ask(socket, command="read", **session)
    assert block.count(b"\n") == 3
    [(_, refused)] = answers_of(ask(socket, command="stat", session="missing"))
    assert refused["code"] == "not_found"
