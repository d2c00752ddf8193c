"""Overload: many connections, silent followers, lost replies, restarts."""

import json
import os
import platform
import random
import resource
import subprocess
import sys
import threading
from argparse import Namespace
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from pathlib import Path
from socket import AF_UNIX
from socket import socket as unix_socket

import pytest
import zmq

import steno
from steno_cli.doctor.daemon import check_daemon
from steno_protocol import limits, paths
from steno_protocol.commands import Stats
from steno_protocol.records import stamp_of
from steno_protocol.replies import StatsReport
from support.crowd import wait_until
from support.foreground import ForegroundDaemon
from support.framing import answers_of, request_frames
from support.raw_peer import RawPeer
from support.resident import resident_bytes

CONNECTIONS = 1_000
SOCKETS_A_CONTEXT = 500
FOLLOWERS = 50
STALLED_READERS = 30
READERS = 4
EVENTS = 20_000
BATCH = 500
FEW_FILES = 256
ANSWER_MS = 30_000
TESTS = Path(__file__).parents[1]


@contextmanager
def sockets(
    root: Path, count: int, *, receive_messages: int = 1000
) -> Iterator[list["zmq.Socket[bytes]"]]:
    """Connections of one process, each with a bounded queue of unreceived messages."""
    contexts: list[zmq.Context[zmq.Socket[bytes]]] = []
    made: list[zmq.Socket[bytes]] = []
    try:
        for number in range(count):
            if number % SOCKETS_A_CONTEXT == 0:
                contexts.append(zmq.Context())
            socket = contexts[-1].socket(zmq.DEALER)
            made.append(socket)
            socket.set(zmq.LINGER, 0)
            socket.set(zmq.RCVTIMEO, ANSWER_MS)
            socket.set(zmq.RCVHWM, receive_messages)
            socket.connect(f"ipc://{root}/stenod.sock")
        yield made
    finally:
        for socket in made:
            socket.close(linger=0)
        for context in contexts:
            context.term()


def ask(socket: "zmq.Socket[bytes]", *records: bytes, **header: object) -> None:
    socket.send_multipart(request_frames(b"1", json.dumps(header).encode(), *records))


def answer(socket: "zmq.Socket[bytes]") -> str:
    [(_, body)] = answers_of(socket.recv_multipart())
    return str(body["kind"])


@pytest.fixture
def many_files() -> Iterator[None]:
    """This process may have as many open files as the machine allows."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (before[1], before[1]))
    if before[1] < 4 * CONNECTIONS:
        pytest.skip(f"this machine allows {before[1]} open files")
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, before)


@pytest.mark.usefixtures("many_files")
@pytest.mark.slow
def test_a_thousand_connections_are_all_answered_and_forgotten(root: Path) -> None:
    record = b'{"role":"user","content":"x"}'
    with ForegroundDaemon(root) as daemon:
        with sockets(root, CONNECTIONS) as peers:
            for number, peer in enumerate(peers):
                # The daemon opens a bounded number at a time and refuses the others as busy.
                ask(peer, command="open", session=f"s{number % 20}")
            for number, peer in enumerate(peers):
                while answer(peer) == "error":
                    ask(peer, command="open", session=f"s{number % 20}")
            for number, peer in enumerate(peers):
                session, key = f"s{number % 20}", f"k{number}"
                ask(peer, record, command="append", session=session, key=key)
            assert {answer(peer) for peer in peers} == {"ack"}
            with steno.connect_sync(root) as client:
                client.open("another").append_message({"role": "user", "content": "hi"})
        with steno.connect_sync(root) as client:
            assert sum(len(list(client.session(f"s{n}").lines())) for n in range(20)) == CONNECTIONS
            while client.status().clients > 1:
                # A peer that hung up is noticed when something is sent to it.
                continue
        assert resident_bytes(daemon.pid) < 300 * limits.MIB


@pytest.mark.parametrize(
    "handles",
    [
        pytest.param(6, marks=pytest.mark.slow),
        pytest.param(12, marks=pytest.mark.slow),
        limits.HANDLES_MIN - 1,
    ],
)
def test_a_daemon_that_could_hardly_open_anything_says_so_and_does_not_start(
    root: Path, handles: int
) -> None:
    script = f'ulimit -n {handles}; exec "$0" -m stenod --root "$@"'
    for more in ([], ["--foreground"]):
        command = ["sh", "-c", script, sys.executable, str(root), *more]
        ran = subprocess.run(command, check=False, capture_output=True, text=True)
        assert ran.returncode == 1
        assert ran.stderr == (
            f"stenod: cannot start: this process may have {handles} files open, and a daemon needs"
            f" at least {limits.HANDLES_MIN}: raise the limit (ulimit -n)\n"
        )


def test_the_fewest_handles_are_enough_for_a_burst_of_connections(root: Path) -> None:
    daemon = ForegroundDaemon(root)
    daemon.handles_max = limits.HANDLES_MIN
    with daemon, ExitStack() as open_ones:
        clients = [
            open_ones.enter_context(steno.connect_sync(root, spawn=False)) for _ in range(16)
        ]
        session = clients[0].open("demo")
        for _ in range(200):
            burst = open_ones.enter_context(unix_socket(AF_UNIX))
            burst.setblocking(False)
            with suppress(BlockingIOError):
                burst.connect(str(root / paths.SOCKET))
        # libzmq has accepted those before it when it accepts another client.
        open_ones.enter_context(steno.connect_sync(root, spawn=False))
        session.append_message({"role": "user", "content": "hi"})
        assert session.revert_to(session.checkpoint()).head.generation == 1


def connect_until_refused(root: Path, connected: ExitStack) -> None:
    """Take every handle; a client that only has to wait for the processor is asked again."""
    refusal = ""
    while "has no file handle left for another client" not in refusal:
        try:
            connected.enter_context(steno.connect_sync(root, spawn=False, timeout=1))
        except steno.Unreachable as error:
            refusal = str(error)


def test_clients_beyond_the_handle_limit_are_refused_until_others_leave(root: Path) -> None:
    daemon = ForegroundDaemon(root)
    daemon.handles_max = FEW_FILES
    message = {"role": "user", "content": "hi"}
    with daemon, steno.connect_sync(root, spawn=False) as client, ExitStack() as mute:
        session = client.open("demo", follow=False)
        while " no_handles " not in "".join(daemon.log):
            one = mute.enter_context(unix_socket(AF_UNIX))
            one.connect(str(root / paths.SOCKET))
            # Clients do not come quicker than the daemon's loop turns.
            client.status()
        connect_until_refused(root, mute)
        stats = client.request(Stats(), StatsReport)[0]
        assert stats.turned_away >= 2
        assert FEW_FILES - stats.open_files >= FEW_FILES // 8
        # Connected clients continue, also with commands that need handles.
        assert session.append_message(message)
        assert session.fork("another").stat().head == "0:1"
        mute.close()
        with steno.connect_sync(root) as late:
            assert late.session("demo").append_message(message).head.line == 2
        findings = [found.text for found in check_daemon(Namespace(timeout=None), root)]
        assert any(
            "ended at once since it was started: no file handle" in each for each in findings
        )


def test_deaf_followers_cost_bounded_memory_and_delay_no_client(root: Path) -> None:
    event = json.dumps({"timestamp": 1.0, "message": {"type": "Step", "payload": {"x": "y" * 200}}})
    with ForegroundDaemon(root) as daemon, steno.connect_sync(root) as client:
        session = client.open("demo", follow=False)
        with sockets(root, FOLLOWERS) as peers:
            for peer in peers:
                ask(peer, command="subscribe", session="demo", subscription="s", file="wire")
            assert {answer(peer) for peer in peers} == {"subscribed"}
            before = resident_bytes(daemon.pid)
            batch = [json.loads(event)] * BATCH
            for _ in range(EVENTS // BATCH):
                session.append_wire(batch, durability="synced")
            grown = resident_bytes(daemon.pid) - before
        # A window each at the most, however much was written.
        assert grown < FOLLOWERS * limits.SUBSCRIPTION_WINDOW_BYTES
        assert len(list(session.wire_lines())) == EVENTS + 1


def test_readers_that_take_no_answers_cost_bounded_memory_together(root: Path) -> None:
    record = {"role": "user", "content": "x" * 100_000}
    read = {"command": "read", "session": "demo", "bytes_max": limits.READ_AHEAD_BYTES_MAX}
    with ForegroundDaemon(root) as daemon, steno.connect_sync(root) as client:
        session = client.open("demo", follow=False)
        for _ in range(2):
            session.append_message([record] * 100)
        before = resident_bytes(daemon.pid)
        with sockets(root, STALLED_READERS, receive_messages=1) as peers:
            for peer in peers:
                for number in range(limits.PEER_LOANS_BYTES_MAX // limits.READ_AHEAD_BYTES_MAX):
                    peer.send_multipart(request_frames(b"%d" % number, json.dumps(read).encode()))
            while client.request(Stats(), StatsReport)[0].errors.get("busy", 0) < STALLED_READERS:
                assert resident_bytes(daemon.pid) - before < 2 * limits.UNREAD_BYTES_MAX
            # A client that receives its replies is served meanwhile.
            assert len(list(session.lines())) == 200
        # Long before the housekeeping would give it back.
        wait_until(
            lambda: resident_bytes(daemon.pid) - before < limits.UNREAD_BYTES_MAX // 2,
            limits.HOUSEKEEPING_S / 2,
        )


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="other C libraries are left alone")
def test_memory_of_large_reads_is_returned(root: Path) -> None:
    record = {"role": "user", "content": "x" * 100_000}
    large = limits.SUBSCRIPTION_WINDOW_BYTES_MAX
    with ForegroundDaemon(root) as daemon, steno.connect_sync(root) as client:
        session = client.open("demo", follow=False)
        for _ in range(2):
            session.append_message([record] * 100)
        before = resident_bytes(daemon.pid)
        with sockets(root, READERS) as peers:
            for _ in range(8):
                for peer in peers:
                    ask(peer, command="read", session="demo", bytes_max=large)
                for peer in peers:
                    assert answer(peer) == "lines"
        # 55 MiB; with the bounds that the C library finds by itself, 170 to 220.
        assert resident_bytes(daemon.pid) - before < 7 * large


def test_a_connection_of_many_followers_costs_little_and_gets_all_once_it_reads(root: Path) -> None:
    record = {"role": "user", "content": "x" * 20_000}
    with ForegroundDaemon(root) as daemon, steno.connect_sync(root) as client:
        session = client.open("demo", follow=False)
        session.append_message([record] * 200)
        before = resident_bytes(daemon.pid)
        with closing(RawPeer(root, receive_messages=1)) as stalled:
            for number in range(FOLLOWERS):
                asked = {"session": "demo", "subscription": f"s{number}", "after": "0:0"}
                stalled.begin(b"%d" % number, "subscribe", **asked, window=16 * limits.MIB)
            for _ in range(100):
                session.append_message(record)
            assert resident_bytes(daemon.pid) - before < 5 * limits.PEER_EVENTS_BYTES_MAX
            reached = dict.fromkeys(range(FOLLOWERS), "0:0")
            while set(reached.values()) != {"0:300"}:
                for name, body in stalled.receive():
                    if body.get("kind") == "records":
                        assert body["first"] == reached[int(name)]
                        reached[int(name)] = body["next"]


class LossyProxy:
    """Stands between clients and a daemon and loses most answers.

    Args:
        root: of the daemon.
        lost: how many answers of a hundred.
    """

    def __init__(self, root: Path, lost: int) -> None:
        self.endpoint = f"ipc://{root}/proxy.sock"
        self._lost = lost
        self._context = zmq.Context()
        self._front = self._context.socket(zmq.ROUTER)
        self._front.bind(self.endpoint)
        self._root = root
        self._backs: dict[bytes, zmq.Socket[bytes]] = {}
        self._stop = self._context.socket(zmq.PAIR)
        self._stop.bind("inproc://stop")
        self._thread = threading.Thread(target=self._run)
        self._chance = random.Random(self._lost)

    def __enter__(self) -> "LossyProxy":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        stop = self._context.socket(zmq.PAIR)
        stop.connect("inproc://stop")
        stop.send(b"")
        self._thread.join(30)
        for socket in (stop, self._stop, self._front, *self._backs.values()):
            socket.close(linger=0)
        self._context.term()

    def _run(self) -> None:
        poller = zmq.Poller()
        poller.register(self._front, zmq.POLLIN)
        poller.register(self._stop, zmq.POLLIN)
        while True:
            ready = dict(poller.poll())
            if self._stop in ready:
                return
            for client, back in list(self._backs.items()):
                if back in ready:
                    self._answer(client, back.recv_multipart())
            if self._front in ready:
                client, *frames = self._front.recv_multipart()
                if client not in self._backs:
                    self._backs[client] = back = self._context.socket(zmq.DEALER)
                    back.connect(f"ipc://{self._root}/stenod.sock")
                    poller.register(back, zmq.POLLIN)
                self._backs[client].send_multipart(frames)

    def _answer(self, client: bytes, frames: list[bytes]) -> None:
        is_ack = any(b'"ack"' in frame for frame in frames)
        if not is_ack or self._chance.randrange(100) >= self._lost:
            self._front.send_multipart([client, *frames])


@pytest.mark.slow
def test_a_storm_of_repeats_behind_a_proxy_that_loses_answers_applies_each_once(
    root: Path,
) -> None:
    with ForegroundDaemon(root), LossyProxy(root, lost=50) as proxy:
        with steno.connect_sync(endpoint=proxy.endpoint, timeout=120) as client:
            session = client.open("demo", follow=False)
            acks = [
                session.append_message({"role": "user", "content": f"{number}"})
                for number in range(3)
            ]
        peer = RawPeer(root)
        keys = [f"storm-{number}" for number in range(20)]
        record = b'{"role":"user","content":"storm"}'
        for _ in range(100):
            for key in keys:
                header = {"command": "append", "session": "demo", "key": key, "repeat": True}
                peer.send(*request_frames(key.encode(), json.dumps(header).encode(), record))
        assert peer.ask("status")["kind"] == "status"
        peer.close()
        with steno.connect_sync(root) as client:
            lines = list(client.session("demo").lines())
        found = [stamp.key for line in lines if (stamp := stamp_of(line)) is not None]
        assert found == [*(ack.key for ack in acks), *keys]


ROUNDS = 12


@pytest.mark.slow
def test_repeated_drains_under_load_lose_nothing(root: Path) -> None:
    path = os.pathsep.join([str(TESTS), os.environ.get("PYTHONPATH", "")])
    writers = [
        subprocess.Popen(
            [sys.executable, "-m", "support.racers", "work", str(root), "1000000"],
            env={**os.environ, "PYTHONPATH": path},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for _ in range(2)
    ]
    said: list[list[str]] = [[], []]
    readers = [
        threading.Thread(target=lambda w=writer, s=lines: s.extend(w.stdout))
        for writer, lines in zip(writers, said, strict=True)
    ]
    for reader in readers:
        reader.start()
    with steno.connect_sync(root) as client:
        session = client.open("race", follow=False)
        for _ in range(ROUNDS):
            head = session.stat().head
            while session.stat().head == head:
                pass
            client.drain()
        for writer in writers:
            assert writer.stdin is not None
            writer.stdin.close()
        for reader, writer in zip(readers, writers, strict=True):
            reader.join(60)
            assert writer.wait(60) == 0
            assert writer.stdout is not None
            writer.stdout.close()
        lines = list(session.lines())
    held = [
        stamp.key for line in lines if (stamp := stamp_of(line)) is not None and not stamp.index
    ]
    assert len(held) == len(set(held))
    keys = [json.loads(line)["key"] for lines in said for line in lines]
    assert set(keys) <= set(held)
