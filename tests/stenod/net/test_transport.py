"""The daemon's sockets, local and remote: bursts, limits, and ended connections."""

import asyncio
import errno
import os
import socket
from collections.abc import Awaitable, Callable, Iterator
from contextlib import AsyncExitStack, closing, suppress
from itertools import pairwise
from pathlib import Path
from threading import Thread
from typing import cast

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
    REFUSED,
    Served,
    ignore,
    large_frame,
    served,
    until,
)

pytestmark = pytest.mark.anyio

both = pytest.mark.parametrize("kind", ["ipc", "remote"])


@pytest.fixture(scope="module", params=["asyncio"])
def anyio_backend(request: pytest.FixtureRequest) -> str:
    """The transport runs on asyncio only."""
    return str(request.param)


@pytest.fixture
def stranger() -> Iterator[socket.socket]:
    """A local socket without ZMTP."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as one:
        one.setblocking(False)
        yield one


def is_disconnected(one: socket.socket) -> bool:
    """True when the other end has closed the connection."""
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
    async with served(kind, root) as server:
        peer, identity = await server.connect_named(b"one")
        for number in range(1000):
            await _send(peer, [b"%d" % number, b"", b"body"])
        await until(lambda: len(server.messages) == 1001)
        assert [frames for _, frames in server.messages[1:]] == [
            [b"%d" % number, b"", b"body"] for number in range(1000)
        ]
        assert server.send(identity, b"a", b"", LARGE) is Sent.OK
        assert peer.recv_multipart() == [b"a", b"", LARGE]


@both
async def test_only_a_remote_socket_knows_the_key_of_a_peer(root: Path, kind: str) -> None:
    async with served(kind, root) as server:
        await server.connect_named(b"one")
        if kind == "remote":
            assert server.keys[b"one"] == server.senders[b"one"] == server.client.public
        else:
            assert server.keys[b"one"] is None
            assert server.senders[b"one"] == f"{os.getuid()}:{os.getgid()}:{os.getpid()}"


@both
async def test_burst_is_bounded_by_its_requests(root: Path, kind: str) -> None:
    async with served(kind, root) as server:
        peer, _ = await server.connect_named(b"one")
        server.cost = limits.BURST_REQUESTS_MAX // 4
        server.bursts.clear()
        for number in range(40):
            await _send(peer, [b"%d" % number])
        await until(lambda: len(server.messages) == 41)
        ends = [1, *server.bursts]
        assert max(end - begin for begin, end in pairwise(ends)) <= 4


@both
async def test_messages_of_a_flood_wait_in_order_while_another_peer_sends(
    root: Path, kind: str
) -> None:
    """None is lost, none is served twice, and none overtakes another one."""
    async with served(kind, root) as server:
        flood, flood_identity, ask = await _flood_beside_another_peer(server)
        for number in range(1000):
            await _send(flood, [b"%d" % number])
            if number % 50 == 0:
                await ask()
                server.send(flood_identity, b"an answer")
        await until(lambda: len(_from(server, flood_identity)) == 1001)
        assert _from(server, flood_identity)[1:] == [[b"%d" % number] for number in range(1000)]


@both
async def test_flood_beyond_what_may_wait_is_refused_and_the_rest_is_served(
    root: Path, kind: str
) -> None:
    async with served(kind, root) as server:
        flood, flood_identity, ask = await _flood_beside_another_peer(server)
        refused: list[bytes] = []
        sent: list[bytes] = []
        while not refused:
            sent.append(b"%d" % len(sent))
            await _send(flood, [sent[-1], bytes(limits.MIB)])
            await ask()
            refused += _received(flood)

        def taken() -> list[bytes]:
            refused.extend(_received(flood))
            return [frames[0] for frames in _from(server, flood_identity)[1:]]

        await until(lambda: len(taken()) + len(refused) == len(sent))
        assert taken() == [each for each in sent if REFUSED + each not in refused]


async def _send(peer: "zmq.Socket[bytes]", frames: list[bytes]) -> None:
    await until(lambda: bool(peer.poll(0, zmq.POLLOUT)))
    peer.send_multipart(frames)


async def _flood_beside_another_peer(
    server: Served,
) -> tuple["zmq.Socket[bytes]", bytes, Callable[[], Awaitable[None]]]:
    """Return a peer whose messages cost much, its identity, and what another peer asks."""
    flood, identity = await server.connect_named(b"flood")
    other, other_identity = await server.connect_named(b"other")
    server.cost = limits.HEAVY_REQUESTS_MIN

    async def ask() -> None:
        """Send a request and wait until it is served."""
        before = len(_from(server, other_identity))
        other.send(b"a request")
        await until(lambda: len(_from(server, other_identity)) > before)

    return flood, identity, ask


def _from(server: Served, identity: bytes) -> list[list[bytes]]:
    return [frames for sender, frames in server.messages if sender == identity]


def _received(peer: "zmq.Socket[bytes]") -> list[bytes]:
    found: list[bytes] = []
    with suppress(zmq.Again):
        while True:
            found.append(peer.recv(zmq.NOBLOCK))
    return found


@both
async def test_peer_that_reads_nothing_delays_no_other_and_then_loses_messages(
    root: Path, kind: str
) -> None:
    in_flight = InFlightFrames()
    async with served(kind, root) as server:
        stalled, stalled_identity = await server.connect_named(b"stalled")
        stalled.set(zmq.RCVHWM, 1)
        peer, identity = await server.connect_named(b"one")
        sent: list[bytes] = []
        frame = LARGE[: limits.KIB]

        def is_full() -> bool:
            message = b"%d" % len(sent)
            if server.send(stalled_identity, message, frame, in_flight=in_flight) is Sent.OK:
                sent.append(message)
                assert len(sent) < 100_000
                return False
            # What libzmq's thread still moves into the kernel's buffers is not in flight any more.
            return in_flight.bytes > limits.SEND_QUEUE_MESSAGES * len(frame) // 2

        await until(is_full)
        assert len(sent) >= limits.SEND_QUEUE_MESSAGES
        assert server.send(identity, b"to one") is Sent.OK
        assert peer.recv() == b"to one"
        # Queued messages are not lost.
        assert [stalled.recv_multipart()[0] for _ in sent] == sent
        await until(lambda: server.send(stalled_identity, b"again") is Sent.OK)


@both
@pytest.mark.parametrize(
    "failure", [RuntimeError("can't start new thread"), zmq.ZMQError(errno.EMFILE)], ids=repr
)
async def test_large_reply_is_copied_when_it_cannot_be_lent(
    root: Path, kind: str, failure: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    def store(*_: object) -> int:
        raise failure

    in_flight = InFlightFrames()
    async with served(kind, root) as server:
        (one, stalled_identity), (other, identity) = (
            await server.connect_named(b"one"),
            await server.connect_named(b"two"),
        )
        monkeypatch.setattr(garbage.gc, "store", store)
        assert server.send(stalled_identity, b"to one", LARGE, in_flight=in_flight) is Sent.OK
        assert server.send(identity, b"to other", b"short") is Sent.OK
        assert one.recv_multipart() == [b"to one", LARGE]
        assert other.recv_multipart() == [b"to other", b"short"]
    assert in_flight.bytes == len(LARGE)


@both
async def test_connection_stands_until_it_ends(root: Path, kind: str) -> None:
    """The transport finds the end without a message, so an idle client has nothing to read."""
    async with served(kind, root) as server:
        (ending, gone), _ = (
            await server.connect_named(b"ending"),
            await server.connect_named(b"staying"),
        )
        first, other = server.links[b"ending"], server.links[b"staying"]
        assert first is not None
        assert first.is_open
        ending.close()
        await until(lambda: not first.is_open)
        # Another connection may reuse its handle from now on.
        await server.connect_named(b"later")
        assert not first.is_open
        assert other is not None
        assert other.is_open
        assert server.send(gone, b"too late") is Sent.GONE


async def test_local_connection_without_room_is_closed(root: Path, stranger: socket.socket) -> None:
    async with served("ipc", root) as server:
        server.has_room = False
        stranger.connect(str(server.path))
        await until(lambda: is_disconnected(stranger))
        server.has_room = True
        await server.connect_named(b"one")


async def test_first_message_finds_the_decision_about_its_connection(root: Path) -> None:
    """Otherwise a client that is turned away might get an answer to its greeting before."""
    async with served("ipc", root) as server:
        # The event loop calls the readers of events and of messages in any order.
        asyncio.get_running_loop().remove_reader(server.transport._monitor.fileno())
        server.has_room = False
        peer = server.connect()
        peer.send(b"a greeting")
        await until(lambda: b"a greeting" in server.links)
        assert server.counts
        [(identity, _)] = server.messages
        await until(lambda: server.send(identity, b"an answer") is Sent.GONE)
        assert not _received(peer)


async def test_connections_are_counted_while_they_last(root: Path) -> None:
    async with served("remote", root) as server, AsyncExitStack() as made:
        for number in range(3):
            await made.enter_async_context(await anyio.connect_unix(server.path))
            await until(lambda expected=number + 1: len(server.counts) == expected)
        assert server.counts == [0, 1, 2]
        await made.aclose()
        with anyio.fail_after(60):
            while server.counts[-1]:
                seen = len(server.counts)
                async with await anyio.connect_unix(server.path):
                    await until(lambda before=seen: len(server.counts) > before)


async def test_unwatched_connections_delay_neither_others_nor_the_end(root: Path) -> None:
    remote = Transport(lambda _: True)
    made = remote.bind_for_relay(root, KeyPair(*new_key_pair()), lambda _: None, ignore)
    for _ in range(1500):
        with socket.socket(socket.AF_UNIX) as one:
            one.connect(made.path)
    end = Thread(target=remote.close, daemon=True)
    end.start()
    end.join(60)
    assert not end.is_alive()


async def test_half_sent_message_ends_the_service(root: Path) -> None:
    nothing = cast("bytes", None)

    async def serve() -> None:
        async with served("ipc", root) as server:
            _, identity = await server.connect_named(b"one")
            with pytest.raises(TypeError):
                server.send(identity, b"begin", nothing)
            await anyio.sleep_forever()

    with pytest.raises(ExceptionGroup) as failed, anyio.fail_after(60):
        await serve()
    assert isinstance(failed.value.exceptions[0], TypeError)


async def test_no_peer_gets_another_message_after_half_of_its_own(root: Path) -> None:
    nothing = cast("bytes", None)
    with closing(Served("ipc", root)) as server:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(_serve_until_it_fails, server)
            _, first = await server.connect_named(b"one")
            _, second = await server.connect_named(b"two")
            with pytest.raises(TypeError):
                server.send(first, b"begin", nothing)
            # Other tasks still answer their peers before the service has ended.
            assert server.send(second, b"an answer") is Sent.GONE
        assert server.send(second, b"last words") is Sent.GONE


async def _serve_until_it_fails(server: Served) -> None:
    with pytest.raises(TypeError):
        await server.transport.serve(
            server.take, server.refusal, server.end_burst, server.is_waiting
        )


async def test_error_of_the_handler_ends_the_service(root: Path) -> None:
    async def serve() -> None:
        async with served("ipc", root) as server:
            server.connect().send(FAULT)
            await anyio.sleep_forever()

    with pytest.raises(ExceptionGroup) as failed, anyio.fail_after(60):
        await serve()
    assert isinstance(failed.value.exceptions[0], RuntimeError)


async def test_message_with_too_many_frames_is_cut_and_delays_no_other(root: Path) -> None:
    async with served("ipc", root) as server:
        long, _ = await server.connect_named(b"long")
        peer, identity = await server.connect_named(b"one")
        most = limits.MESSAGE_FRAMES_MAX
        long.send_multipart([b"x"] * (20 * most))
        server.bursts.clear()
        await until(lambda: len(server.messages) == 3)
        assert server.messages[-1][1] == [b"x"] * most
        long.send(b"after")
        peer.send(b"a request")
        await until(lambda: len(server.messages) == 5)
        assert (identity, [b"a request"]) in server.messages
        assert server.messages[-1][1] in ([b"after"], [b"a request"])
        # Other work had its turn between the parts that were dropped.
        assert len(server.bursts) >= 19


async def test_endless_message_delays_no_other_peer(
    root: Path, stranger: socket.socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A machine that stands still for the usual time would make libzmq close the connection.
    monkeypatch.setattr(limits, "HANDSHAKE_MS", 600_000)
    async with served("ipc", root) as server:
        peer, identity = await server.connect_named(b"one")
        stranger.connect(str(server.path))
        frames = large_frame(limits.MIB) + bytes(limits.MIB)
        unsent = GREETING + READY_OF_DEALER + 8 * frames
        while unsent:
            with suppress(BlockingIOError):
                unsent = unsent[stranger.send(unsent) :]
            await anyio.lowlevel.checkpoint()
        peer.send(b"a request")
        await until(lambda: (identity, [b"a request"]) in server.messages)
        assert len(server.messages) == 2
        assert not is_disconnected(stranger)


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
async def test_peer_that_breaks_the_protocol_is_disconnected(
    root: Path, stranger: socket.socket, data: bytes
) -> None:
    async with served("ipc", root) as server:
        stranger.connect(str(server.path))
        stranger.send(data)
        await until(lambda: is_disconnected(stranger))
        await server.connect_named(b"one")


async def test_unfinished_handshake_is_closed_at_its_deadline(
    root: Path, stranger: socket.socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "HANDSHAKE_MS", 20)
    async with served("ipc", root) as server:
        stranger.connect(str(server.path))
        await until(lambda: is_disconnected(stranger))


async def test_transport_removes_only_its_own_socket(root: Path) -> None:
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


async def test_inherited_socket_stays_when_the_transport_closes(root: Path) -> None:
    path = root / "stenod.sock"
    lent = socket.socket(socket.AF_UNIX)
    lent.bind(str(path))
    lent.listen()
    transport = Transport(lambda _: True)
    transport.bind_ipc(path, lent.detach())
    transport.close()
    assert path.is_socket()


async def test_only_a_stale_socket_is_replaced(root: Path) -> None:
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
