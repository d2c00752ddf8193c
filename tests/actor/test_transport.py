"""The daemon's sockets, local and for other machines: bursts, limits, and ended connections."""

import os
import socket
from collections.abc import Iterator
from contextlib import AsyncExitStack, closing, suppress
from itertools import pairwise
from pathlib import Path
from socket import create_connection
from threading import Thread
from typing import cast
from urllib.parse import urlsplit

import anyio
import pytest
import zmq
from zmq.utils import garbage

from steno._connect.connection import new_key_pair
from steno_protocol import limits
from steno_protocol.credentials import KeyPair
from steno_protocol.errors import StorageFailed
from stenod.api.peers import InFlightFrames
from stenod.net.transport import Sent, Transport
from support.served_transport import (
    FAULT,
    GREETING,
    LARGE,
    READY_OF_DEALER,
    ignore,
    large_frame,
    served,
    until,
)

pytestmark = pytest.mark.anyio

both = pytest.mark.parametrize("kind", ["ipc", "tcp"])


@pytest.fixture(scope="module", params=["asyncio"])
def anyio_backend(request: pytest.FixtureRequest) -> str:
    """The daemon's sockets know asyncio's loop only."""
    return str(request.param)


@pytest.fixture
def stranger() -> Iterator[socket.socket]:
    """A local socket that speaks no ZMTP by itself."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as one:
        one.setblocking(False)
        yield one


def has_hung_up(one: socket.socket) -> bool:
    """Whether the other end closed the connection."""
    try:
        while one.recv(4096):
            pass
    except BlockingIOError:
        return False
    except ConnectionResetError:
        return True
    return True


@both
async def test_messages_arrive_in_order_and_replies_go_back(root: Path, kind: str) -> None:
    async with served(kind, root) as there:
        peer, identity = await there.come(b"one")
        for number in range(1000):
            peer.send_multipart([b"%d" % number, b"", b"body"])
        await until(lambda: len(there.messages) == 1001)
        assert [frames for _, frames in there.messages[1:]] == [
            [b"%d" % number, b"", b"body"] for number in range(1000)
        ]
        assert there.send(identity, b"a", b"", LARGE) is Sent.OK
        assert peer.recv_multipart() == [b"a", b"", LARGE]


@both
async def test_the_key_of_a_peer_is_known_only_on_a_socket_for_other_machines(
    root: Path, kind: str
) -> None:
    async with served(kind, root) as there:
        await there.come(b"one")
        if kind == "tcp":
            assert there.keys[b"one"] == there.senders[b"one"] == there.client.public
        else:
            assert there.keys[b"one"] is None
            assert there.senders[b"one"] == f"{os.getuid()}:{os.getgid()}:{os.getpid()}"


@both
async def test_a_burst_is_bounded_by_its_requests(root: Path, kind: str) -> None:
    async with served(kind, root) as there:
        peer, _ = await there.come(b"one")
        there.cost = limits.BURST_REQUESTS_MAX // 4
        there.bursts.clear()
        for number in range(40):
            peer.send(b"%d" % number)
        await until(lambda: len(there.messages) == 41)
        ends = [1, *there.bursts]
        assert max(end - begin for begin, end in pairwise(ends)) <= 4


@both
async def test_a_busy_peer_delays_no_other(root: Path, kind: str) -> None:
    async with served(kind, root) as there:
        busy, _ = await there.come(b"busy")
        other, identity = await there.come(b"other")
        for number in range(5000):
            busy.send(b"%d" % number)
        await until(lambda: len(there.messages) > 100)
        other.send(b"a request")
        before = len(there.messages)
        await until(lambda: (identity, [b"a request"]) in there.messages)
        # libzmq takes one message of each peer in turn, once its thread has received it.
        assert there.messages.index((identity, [b"a request"])) - before <= 3000


@both
async def test_a_peer_that_reads_nothing_delays_no_other_and_then_loses_messages(
    root: Path, kind: str
) -> None:
    in_flight = InFlightFrames()
    async with served(kind, root) as there:
        lazy, its_identity = await there.come(b"lazy")
        lazy.set(zmq.RCVHWM, 1)
        peer, identity = await there.come(b"one")
        sent: list[bytes] = []
        frame = LARGE[: limits.KIB]
        while (
            there.send(its_identity, message := b"%d" % len(sent), frame, in_flight=in_flight)
            is Sent.OK
        ):
            sent.append(message)
            assert len(sent) < 100_000
        assert len(sent) >= limits.SEND_QUEUE_MESSAGES
        assert in_flight.bytes > limits.SEND_QUEUE_MESSAGES * len(frame) // 2
        assert there.send(identity, b"to one") is Sent.OK
        assert peer.recv() == b"to one"
        # What was queued is not lost.
        assert [lazy.recv_multipart()[0] for _ in sent] == sent
        await until(lambda: there.send(its_identity, b"again") is Sent.OK)


@both
async def test_a_large_reply_is_copied_when_it_cannot_be_lent(
    root: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def store(*_: object) -> int:
        raise RuntimeError("can't start new thread")

    in_flight = InFlightFrames()
    async with served(kind, root) as there:
        (one, its_identity), (other, identity) = await there.come(b"one"), await there.come(b"two")
        monkeypatch.setattr(garbage.gc, "store", store)
        assert there.send(its_identity, b"to one", LARGE, in_flight=in_flight) is Sent.OK
        assert there.send(identity, b"to other", b"short") is Sent.OK
        assert one.recv_multipart() == [b"to one", LARGE]
        assert other.recv_multipart() == [b"to other", b"short"]
    assert in_flight.bytes == len(LARGE)


@both
async def test_a_connection_stands_until_it_ends(root: Path, kind: str) -> None:
    """That is found out without a message, so an idle client has nothing to read."""
    async with served(kind, root) as there:
        (ending, gone), _ = await there.come(b"ending"), await there.come(b"staying")
        first, other = there.links[b"ending"], there.links[b"staying"]
        assert first is not None
        assert first.is_open
        ending.close()
        await until(lambda: not first.is_open)
        # Its handle may be another connection's from now on.
        await there.come(b"later")
        assert not first.is_open
        assert other is not None
        assert other.is_open
        assert there.send(gone, b"nobody") is Sent.GONE


async def test_a_local_connection_without_room_is_ended(
    root: Path, stranger: socket.socket
) -> None:
    async with served("ipc", root) as there:
        there.has_room = False
        stranger.connect(str(there.path))
        await until(lambda: has_hung_up(stranger))
        there.has_room = True
        await there.come(b"one")


async def test_a_connection_of_another_machine_without_room_is_ended(root: Path) -> None:
    async with served("tcp", root) as there:
        there.has_room = False
        peer = there.connect()
        peer.send(b"one")
        await until(lambda: len(there.counts) > 1)
        assert not there.messages
        there.has_room = True
        await until(lambda: b"one" in there.links)


async def test_connections_are_counted_while_they_last(root: Path) -> None:
    async with served("tcp", root) as there, AsyncExitStack() as made:
        port = urlsplit(there.endpoint).port or 0
        for number in range(3):
            await made.enter_async_context(await anyio.connect_tcp("127.0.0.1", port))
            await until(lambda expected=number + 1: len(there.counts) == expected)
        assert there.counts == [0, 1, 2]
        await made.aclose()
        with anyio.fail_after(20):
            while there.counts[-1]:
                seen = len(there.counts)
                async with await anyio.connect_tcp("127.0.0.1", port):
                    await until(lambda before=seen: len(there.counts) > before)


async def test_connections_that_no_one_watches_delay_neither_others_nor_the_end() -> None:
    remote = Transport(lambda _: True)
    endpoint = remote.bind_tcp(
        "tcp://127.0.0.1:0", KeyPair(*new_key_pair()), lambda _: None, ignore
    )
    port = urlsplit(endpoint).port or 0
    for _ in range(1500):
        with create_connection(("127.0.0.1", port), timeout=10):
            pass
    end = Thread(target=remote.close, daemon=True)
    end.start()
    end.join(10)
    assert not end.is_alive()


async def test_half_a_message_ends_the_service(root: Path) -> None:
    nothing = cast("bytes", None)

    async def serve() -> None:
        async with served("ipc", root) as there:
            _, identity = await there.come(b"one")
            with pytest.raises(TypeError):
                there.send(identity, b"begin", nothing)
            await anyio.sleep_forever()

    with pytest.raises(ExceptionGroup) as failed, anyio.fail_after(10):
        await serve()
    assert isinstance(failed.value.exceptions[0], TypeError)


async def test_an_error_of_the_handler_ends_the_service(root: Path) -> None:
    async def serve() -> None:
        async with served("ipc", root) as there:
            there.connect().send(FAULT)
            await anyio.sleep_forever()

    with pytest.raises(ExceptionGroup) as failed, anyio.fail_after(10):
        await serve()
    assert isinstance(failed.value.exceptions[0], RuntimeError)


async def test_a_message_with_too_many_frames_is_cut_and_delays_no_other(root: Path) -> None:
    async with served("ipc", root) as there:
        long, _ = await there.come(b"long")
        peer, identity = await there.come(b"one")
        most = limits.MESSAGE_FRAMES_MAX
        long.send_multipart([b"x"] * (20 * most))
        there.bursts.clear()
        await until(lambda: len(there.messages) == 3)
        assert there.messages[-1][1] == [b"x"] * most
        long.send(b"after")
        peer.send(b"a request")
        await until(lambda: len(there.messages) == 5)
        assert (identity, [b"a request"]) in there.messages
        assert there.messages[-1][1] in ([b"after"], [b"a request"])
        # Other work had its turn between the parts that were dropped.
        assert len(there.bursts) >= 19


async def test_a_message_that_never_ends_delays_no_other(
    root: Path, stranger: socket.socket
) -> None:
    async with served("ipc", root) as there:
        stranger.connect(str(there.path))
        frames = large_frame(limits.MIB) + bytes(limits.MIB)
        left = GREETING + READY_OF_DEALER + 8 * frames
        peer, identity = await there.come(b"one")
        while left:
            with suppress(BlockingIOError):
                left = left[stranger.send(left) :]
            await anyio.lowlevel.checkpoint()
        peer.send(b"a request")
        await until(lambda: (identity, [b"a request"]) in there.messages)
        assert len(there.messages) == 2
        assert not has_hung_up(stranger)


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(b"GET / HTTP/1.1\r\n\r\n" + bytes(100), id="http"),
        pytest.param(b"\xff" * 100, id="noise"),
        pytest.param(
            GREETING + READY_OF_DEALER + large_frame(limits.FRAME_BYTES_MAX + 1), id="a large frame"
        ),
    ],
)
async def test_a_peer_that_breaks_the_protocol_is_disconnected(
    root: Path, stranger: socket.socket, data: bytes
) -> None:
    async with served("ipc", root) as there:
        stranger.connect(str(there.path))
        stranger.send(data)
        await until(lambda: has_hung_up(stranger))
        await there.come(b"one")


async def test_a_handshake_that_never_ends_is_given_up(
    root: Path, stranger: socket.socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "HANDSHAKE_MS", 20)
    async with served("ipc", root) as there:
        stranger.connect(str(there.path))
        await until(lambda: has_hung_up(stranger))


async def test_a_process_of_another_user_is_disconnected(
    root: Path, stranger: socket.socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = os.getuid()
    path = root / "stenod.sock"
    transport = Transport(lambda _: True)
    with closing(transport):
        monkeypatch.setattr(os, "getuid", lambda: own + 1)
        monkeypatch.setattr("steno_protocol.paths.check_socket_folder", ignore)
        transport.bind_ipc(path)
        stranger.connect(str(path))
        await until(lambda: has_hung_up(stranger))


async def test_only_a_transports_own_socket_is_removed(root: Path) -> None:
    path = root / "stenod.sock"
    first, second = Transport(lambda _: True), Transport(lambda _: True)
    first.bind_ipc(path)
    assert first.is_reachable
    path.rename(root / "moved")
    assert not first.is_reachable
    second.bind_ipc(path)
    assert not first.is_reachable
    first.close()
    assert second.is_reachable
    second.close()
    assert not path.exists()


async def test_a_lent_socket_stays_when_it_is_closed(root: Path) -> None:
    path = root / "stenod.sock"
    lent = socket.socket(socket.AF_UNIX)
    lent.bind(str(path))
    lent.listen()
    transport = Transport(lambda _: True)
    transport.bind_ipc(path, lent.detach())
    transport.close()
    assert path.is_socket()


async def test_a_stale_socket_is_replaced_and_nothing_else(root: Path) -> None:
    path = root / "stenod.sock"
    with socket.socket(socket.AF_UNIX) as left:
        left.bind(str(path))
    transport = Transport(lambda _: True)
    transport.bind_ipc(path)
    assert transport.is_reachable
    transport.close()
    path.write_text("a text")
    another = Transport(lambda _: True)
    with closing(another), pytest.raises(StorageFailed, match="not a socket of this user"):
        another.bind_ipc(path)
    assert path.read_text() == "a text"
