"""The daemon's socket for other machines: who may stay, who is still there, and what is lent."""

from collections.abc import AsyncGenerator, Callable
from contextlib import AsyncExitStack, asynccontextmanager, closing, suppress
from socket import create_connection
from threading import Thread
from typing import cast
from urllib.parse import urlsplit

import anyio
import pytest
import zmq
from zmq.utils import garbage

from steno._connect.remote_connection import new_key_pair
from steno_protocol import limits
from steno_protocol.credentials import KeyPair
from stenod.api.clients import InFlightFrames
from stenod.net.remote import RemoteTransport, SocketLink
from stenod.net.transport import Sent

LARGE = b"x" * limits.LENT_FRAME_BYTES

pytestmark = pytest.mark.anyio


@pytest.fixture(scope="module", params=["asyncio"])
def anyio_backend(request: pytest.FixtureRequest) -> str:
    """The daemon's sockets know asyncio's loop only."""
    return str(request.param)


async def until(is_true: Callable[[], bool]) -> None:
    """Return once it is."""
    with anyio.fail_after(10):
        while not is_true():
            await anyio.lowlevel.checkpoint()


def ignore(*_: object, **__: object) -> None:
    """Nobody is told."""


class Served:
    """A socket that is served, and those who came to it.

    Attributes:
        identities: what the socket calls those who said something, by what they said.
        links: their connections.
    """

    def __init__(self, context: "zmq.Context[zmq.Socket[bytes]]") -> None:
        self.own, self.client = KeyPair(*new_key_pair()), KeyPair(*new_key_pair())
        self.transport = RemoteTransport(self.own, lambda _: "name", lambda _: True, ignore)
        self.endpoint = self.transport.listen("tcp://127.0.0.1:0")
        self.identities: dict[bytes, bytes] = {}
        self.links: dict[bytes, SocketLink | None] = {}
        self._context = context

    def take(self, identity: bytes, frames: list[bytes]) -> int:
        """Remember who said what."""
        self.identities[frames[0]] = identity
        self.links[frames[0]] = self.transport.link()
        return 1

    async def come(self, name: bytes) -> zmq.Socket[bytes]:
        """Have somebody connect and say a name."""
        peer = self._context.socket(zmq.DEALER)
        peer.set(zmq.LINGER, 0)
        peer.set(zmq.RCVTIMEO, 10_000)
        peer.set(zmq.CURVE_SERVERKEY, self.own.public.encode())
        peer.set(zmq.CURVE_PUBLICKEY, self.client.public.encode())
        peer.set(zmq.CURVE_SECRETKEY, self.client.secret.encode())
        peer.connect(self.endpoint)
        peer.send(name)
        await until(lambda: name in self.identities)
        return peer


@asynccontextmanager
async def served() -> AsyncGenerator[Served]:
    """A socket that is served in the block."""
    with zmq.Context() as context:
        one = Served(context)
        with closing(one.transport):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(one.transport.serve, one.take, lambda: None)
                yield one
                tasks.cancel_scope.cancel()


async def test_a_connection_for_which_there_is_no_room_is_ended() -> None:
    asked: list[bool] = []
    remote = RemoteTransport(
        KeyPair(*new_key_pair()), lambda _: None, lambda _: bool(asked.append(True)), ignore
    )
    address = urlsplit(remote.listen("tcp://127.0.0.1:0"))
    connection = await anyio.connect_tcp("127.0.0.1", address.port or 0)
    with closing(remote), anyio.fail_after(10):
        async with connection, anyio.create_task_group() as tasks:
            tasks.start_soon(remote.serve, lambda *_: 1, lambda: None)
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

    remote = RemoteTransport(KeyPair(*new_key_pair()), lambda _: None, has_room, ignore)
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
    remote = RemoteTransport(KeyPair(*new_key_pair()), lambda _: None, lambda _: True, ignore)
    port = urlsplit(remote.listen("tcp://127.0.0.1:0")).port or 0
    for _ in range(1500):
        with create_connection(("127.0.0.1", port), timeout=10):
            pass
    end = Thread(target=remote.close, daemon=True)
    end.start()
    end.join(10)
    assert not end.is_alive()


async def test_a_large_answer_is_copied_when_nothing_can_be_lent(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def store(*_: object) -> int:
        raise RuntimeError("can't start new thread")

    in_flight = InFlightFrames()
    async with served() as there:
        one, other = await there.come(b"one"), await there.come(b"other")
        names, send = there.identities, there.transport.send
        monkeypatch.setattr(garbage.gc, "store", store)
        assert send(names[b"one"], [b"to one", LARGE], in_flight) is Sent.OK
        assert send(names[b"other"], [b"to other", b"short"], InFlightFrames()) is Sent.OK
        assert one.recv_multipart() == [b"to one", LARGE]
        assert other.recv_multipart() == [b"to other", b"short"]
        one.close()
        other.close()
    assert in_flight.bytes == len(LARGE)


async def test_a_connection_is_known_to_stand_until_it_ends() -> None:
    """And that is found out without a message: nothing has to be taken by who is idle."""
    async with served() as there:
        ending, staying = await there.come(b"ending"), await there.come(b"staying")
        first, other = there.links[b"ending"], there.links[b"staying"]
        assert first is not None
        assert first.stands
        ending.close()
        await until(lambda: not first.stands)
        # Its handle may be another's from now on.
        later = await there.come(b"later")
        assert not first.stands
        assert other is not None
        assert other.stands
        staying.close()
        later.close()


async def test_half_a_message_ends_the_service() -> None:
    nothing = cast("bytes", None)

    async def serve() -> None:
        async with served() as there:
            peer = await there.come(b"one")
            with pytest.raises(TypeError):
                there.transport.send(
                    there.identities[b"one"], [b"begin", nothing], InFlightFrames()
                )
            peer.close()
            await anyio.sleep_forever()

    with pytest.raises(ExceptionGroup) as failed, anyio.fail_after(10):
        await serve()
    assert isinstance(failed.value.exceptions[0], TypeError)
