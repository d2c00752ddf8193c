"""Hostile peers of the same user on the local socket.

Other clients continue, or the daemon recovers soon; no acknowledged record is lost.
"""

import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, suppress
from pathlib import Path

import pytest

import steno
from steno import Ack
from steno._sync.session import BlockingSession
from steno_protocol import limits, paths
from support.crowd import wait_until
from support.foreground import ForegroundDaemon
from support.raw_peer import RawPeer
from support.resident import resident_bytes
from support.served_transport import GREETING, READY_OF_DEALER, large_frame

MESSAGE = {"role": "user", "content": "hi"}
RECOVERED_S = 15.0
"""It takes less than a second on an idle machine; a peer in the way would hold it up for ever."""

UNFINISHED_BYTES = 256 * limits.MIB
CONNECTIONS = 5_000
FEW_HANDLES = 256

CROWD = """
import resource, socket, sys
hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
made = []
for _ in range(int(sys.argv[2])):
    one = socket.socket(socket.AF_UNIX)
    one.settimeout(0.01)
    made.append(one)
    try:
        one.connect(sys.argv[1])
    except OSError:
        continue
print("connected", flush=True)
sys.stdin.read()
"""


@pytest.fixture
def stranger(root: Path) -> Iterator[socket.socket]:
    """A local socket that speaks no ZMTP by itself."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as one:
        yield one


def append_within(session: BlockingSession, seconds: float) -> Ack:
    """Append one message, which has to be acknowledged in time."""
    began = time.monotonic()
    ack = session.append_message(MESSAGE)
    assert time.monotonic() - began < seconds
    return ack


def test_a_message_that_never_ends_delays_no_client_and_is_freed(
    root: Path, stranger: socket.socket
) -> None:
    with ForegroundDaemon(root) as daemon, steno.connect_sync(root, spawn=False) as client:
        session = client.open("demo", follow=False)
        append_within(session, 30)
        before = resident_bytes(daemon.pid)
        stranger.connect(str(root / paths.SOCKET))
        stranger.sendall(GREETING + READY_OF_DEALER)
        frame = large_frame(limits.MIB) + bytes(limits.MIB)
        for _ in range(UNFINISHED_BYTES // limits.MIB):
            stranger.sendall(frame)
            append_within(session, RECOVERED_S)
        assert resident_bytes(daemon.pid) - before < 2 * UNFINISHED_BYTES
        stranger.close()
        # Long before the housekeeping would give it back.
        wait_until(
            lambda: resident_bytes(daemon.pid) - before < UNFINISHED_BYTES // 4,
            limits.HOUSEKEEPING_S / 2,
        )
        assert len(list(session.lines())) == 1 + UNFINISHED_BYTES // limits.MIB


@pytest.mark.slow
@pytest.mark.parametrize("message", [b"noise", b'[{"id":"1","command":"status"}]'])
def test_a_flood_of_messages_leaves_others_their_turn(root: Path, message: bytes) -> None:
    ended = threading.Event()

    def flood() -> None:
        with closing(RawPeer(root, receive_messages=1)) as peer, suppress(Exception):
            while not ended.is_set():
                peer.send(message)

    with ForegroundDaemon(root) as daemon, steno.connect_sync(root, spawn=False) as client:
        session = client.open("demo", follow=False)
        floods = [threading.Thread(target=flood) for _ in range(2)]
        for each in floods:
            each.start()
        try:
            acks = [append_within(session, RECOVERED_S) for _ in range(50)]
        finally:
            ended.set()
            for each in floods:
                each.join()
        append_within(session, RECOVERED_S)
        assert len(list(session.lines())) == len(acks) + 1
        assert client.status().pid == daemon.pid


def test_a_peer_that_reads_no_reply_delays_no_client(root: Path) -> None:
    with ForegroundDaemon(root) as daemon, steno.connect_sync(root, spawn=False) as client:
        session = client.open("demo", follow=False)
        append_within(session, 30)
        before = resident_bytes(daemon.pid)
        with closing(RawPeer(root, receive_messages=1)) as stalled:
            for number in range(4 * limits.SEND_QUEUE_MESSAGES):
                stalled.begin(b"%d" % number, "status")
            for _ in range(20):
                append_within(session, RECOVERED_S)
            assert resident_bytes(daemon.pid) - before < 64 * limits.MIB
        assert len(list(session.lines())) == 21


@pytest.mark.slow
@pytest.mark.parametrize("handles", [FEW_HANDLES, 4096])
def test_thousands_of_connections_lose_no_acknowledged_record(root: Path, handles: int) -> None:
    """libzmq accepts by itself, and aborts the process when it has no handle; a client starts the
    daemon again then."""
    start = [sys.executable, "-m", "stenod", "--root", str(root)]
    limited = ["sh", "-c", f'ulimit -n {handles}; exec "$0" "$@"']
    subprocess.run([*limited, *start], check=True, capture_output=True)
    acked = 0
    with steno.connect_sync(root, timeout=20) as client, ExitStack() as crowds:
        session = client.open("demo", follow=False)
        for _ in range(3):
            crowd = crowds.enter_context(
                subprocess.Popen(
                    [sys.executable, "-c", CROWD, str(root / paths.SOCKET), str(CONNECTIONS)],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                )
            )
            crowds.callback(crowd.kill)
            assert crowd.stdout is not None
            session.append_message(MESSAGE)
            acked += 1
            assert crowd.stdout.readline() == b"connected\n"
            session.append_message(MESSAGE)
            acked += 1
            crowd.kill()
            crowd.wait()
            append_within(session, RECOVERED_S)
            acked += 1
        assert len(list(session.lines())) == acked
    with steno.connect_sync(root) as client:
        assert len(list(client.session("demo").lines())) == acked
        client.drain()
