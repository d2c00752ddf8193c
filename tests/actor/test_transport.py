"""The daemon's socket when the system has nothing left to give."""

from collections.abc import Callable, Generator
from contextlib import AsyncExitStack, closing, suppress
from pathlib import Path
from socket import create_connection
from threading import Thread
from typing import cast
from urllib.parse import urlsplit

import anyio
import pytest
import zmq
from anyio.abc import TaskGroup
from zmq.utils import garbage

from steno._transport import new_key_pair
from steno_protocol import limits
from steno_protocol.credentials import KeyPair
from stenod.peers import Loans
from stenod.remote import RemoteTransport
from stenod.transport import Sent, SocketLink, Transport

LARGE = b"x" * limits.LENT_FRAME_BYTES

pytestmark = pytest.mark.anyio


@pytest.fixture(scope="module", params=["asyncio"])
def anyio_backend(request: pytest.FixtureRequest) -> str:
    """The daemon's socket knows asyncio's loop only."""
    return str(request.param)


@pytest.fixture
def transport(root: Path) -> Generator[Transport]:
    transport = Transport(lambda: True)
    transport.bind(root / "stenod.sock")
    yield transport
    transport.close()


@pytest.fixture
def peers(root: Path) -> Generator[dict[bytes, zmq.Socket[bytes]]]:
    """Two that are connected, by what the daemon's socket calls them."""
    with zmq.Context() as context:
        found: dict[bytes, zmq.Socket[bytes]] = {}
        for name in (b"one", b"other"):
            found[name] = context.socket(zmq.DEALER)
            found[name].set(zmq.IDENTITY, name)
            found[name].set(zmq.LINGER, 0)
            found[name].set(zmq.RCVTIMEO, 10_000)
            found[name].connect(f"ipc://{root / 'stenod.sock'}")
            found[name].send(b"here")
        yield found
        for peer in found.values():
            peer.close()


@pytest.mark.parametrize("is_remote", [False, True])
async def test_a_connection_for_which_there_is_no_room_is_ended(
    root: Path, *, is_remote: bool
) -> None:
    asked: list[bool] = []
    transport: Transport
    if is_remote:
        remote = transport = RemoteTransport(
            KeyPair(*new_key_pair()), lambda _: None, lambda _: bool(asked.append(True)), print
        )
        address = urlsplit(remote.listen("tcp://127.0.0.1:0"))
        connection = await anyio.connect_tcp("127.0.0.1", address.port or 0)
    else:
        transport = Transport(lambda: bool(asked.append(True)))
        transport.bind(root / "stenod.sock")
        connection = await anyio.connect_unix(root / "stenod.sock")
    with closing(transport), anyio.fail_after(10):
        async with connection, anyio.create_task_group() as tasks:
            tasks.start_soon(transport.serve, lambda *_: 1, lambda: None)
            with suppress(anyio.BrokenResourceError):
                async for _ in connection:
                    pass
            tasks.cancel_scope.cancel()
    assert asked == [True]


async def test_connections_from_other_machines_are_counted_while_they_last() -> None:
    beside: list[int] = []

    def has_room(others: int) -> bool:
        beside.append(others)
        return others < 2

    remote = RemoteTransport(KeyPair(*new_key_pair()), lambda _: None, has_room, print)
    address = urlsplit(remote.listen("tcp://127.0.0.1:0"))
    with closing(remote), anyio.fail_after(10):
        async with anyio.create_task_group() as tasks, AsyncExitStack() as made:
            tasks.start_soon(remote.serve, lambda *_: 1, lambda: None)
            for number in range(4):
                one = await anyio.connect_tcp("127.0.0.1", address.port or 0)
                await made.enter_async_context(one)
                while len(beside) <= number:
                    await anyio.lowlevel.checkpoint()
            assert beside == [0, 1, 2, 2]
            await made.aclose()
            while beside[-1]:
                told = len(beside)
                async with await anyio.connect_tcp("127.0.0.1", address.port or 0):
                    while len(beside) == told:
                        await anyio.lowlevel.checkpoint()
            tasks.cancel_scope.cancel()


async def test_connections_that_nobody_looks_at_hold_up_neither_the_next_ones_nor_the_end() -> None:
    remote = RemoteTransport(KeyPair(*new_key_pair()), lambda _: None, lambda _: True, print)
    port = urlsplit(remote.listen("tcp://127.0.0.1:0")).port or 0
    for _ in range(1500):
        with create_connection(("127.0.0.1", port), timeout=10):
            pass
    end = Thread(target=remote.close, daemon=True)
    end.start()
    end.join(10)
    assert not end.is_alive()


async def serve_until_here(transport: Transport, count: int, tasks: TaskGroup) -> None:
    """Serve in a task; returns once so many messages came, and so both peers can be sent to."""
    came: list[bytes] = []

    def take(identity: bytes, _: list[bytes]) -> int:
        came.append(identity)
        return 1

    tasks.start_soon(transport.serve, take, lambda: None)
    while len(came) < count:
        await anyio.lowlevel.checkpoint()


async def test_a_large_answer_is_copied_when_nothing_can_be_lent(
    transport: Transport,
    peers: dict[bytes, zmq.Socket[bytes]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def store(*_: object) -> int:
        raise RuntimeError("can't start new thread")

    loans = Loans()
    with anyio.fail_after(10):
        async with anyio.create_task_group() as tasks:
            await serve_until_here(transport, len(peers), tasks)
            monkeypatch.setattr(garbage.gc, "store", store)
            assert transport.send(b"one", [b"to one", LARGE], loans) is Sent.OK
            assert transport.send(b"other", [b"to other", b"short"], Loans()) is Sent.OK
            tasks.cancel_scope.cancel()
    assert peers[b"one"].recv_multipart() == [b"to one", LARGE]
    assert peers[b"other"].recv_multipart() == [b"to other", b"short"]
    assert loans.bytes == len(LARGE)


async def until(is_true: Callable[[], bool]) -> None:
    """Return once it is."""
    with anyio.fail_after(10):
        while not is_true():
            await anyio.lowlevel.checkpoint()


@pytest.mark.parametrize("is_remote", [False, True])
async def test_a_connection_is_known_to_stand_until_it_ends(root: Path, *, is_remote: bool) -> None:
    """And that is found out without a message: nothing has to be taken by who is idle."""
    links: dict[bytes, SocketLink | None] = {}
    own, client = KeyPair(*new_key_pair()), KeyPair(*new_key_pair())
    transport: Transport
    if is_remote:
        remote = transport = RemoteTransport(own, lambda _: "name", lambda _: True, ignore)
        endpoint = remote.listen("tcp://127.0.0.1:0")
    else:
        transport = Transport(lambda: True)
        transport.bind(root / "stenod.sock")
        endpoint = f"ipc://{root / 'stenod.sock'}"

    def take(_: bytes, frames: list[bytes]) -> int:
        links[frames[0]] = transport.link()
        return 1

    def connect(context: "zmq.Context[zmq.Socket[bytes]]", name: bytes) -> zmq.Socket[bytes]:
        peer = context.socket(zmq.DEALER)
        peer.set(zmq.LINGER, 0)
        if is_remote:
            peer.set(zmq.CURVE_SERVERKEY, own.public.encode())
            peer.set(zmq.CURVE_PUBLICKEY, client.public.encode())
            peer.set(zmq.CURVE_SECRETKEY, client.secret.encode())
        peer.connect(endpoint)
        peer.send(name)
        return peer

    with closing(transport), zmq.Context() as context:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(transport.serve, take, lambda: None)
            ending, staying = connect(context, b"ending"), connect(context, b"staying")
            await until(lambda: len(links) == 2)
            first, other = links[b"ending"], links[b"staying"]
            assert first is not None
            assert first.stands
            ending.close()
            await until(lambda: not first.stands)
            # Its handle may be another's from now on.
            later = connect(context, b"later")
            await until(lambda: len(links) == 3)
            assert not first.stands
            assert other is not None
            assert other.stands
            staying.close()
            later.close()
            tasks.cancel_scope.cancel()


def ignore(*_: object, **__: object) -> None:
    """Nobody is told."""


async def test_half_a_message_ends_the_service(
    transport: Transport, peers: dict[bytes, zmq.Socket[bytes]]
) -> None:
    nothing = cast("bytes", None)

    async def serve() -> None:
        async with anyio.create_task_group() as tasks:
            await serve_until_here(transport, len(peers), tasks)
            with pytest.raises(TypeError):
                transport.send(b"one", [b"begin", nothing], Loans())
            await anyio.sleep_forever()

    with pytest.raises(ExceptionGroup) as failed, anyio.fail_after(10):
        await serve()
    assert isinstance(failed.value.exceptions[0], TypeError)
