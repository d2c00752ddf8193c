"""Subscriptions of MCP peers whose requests overlap with each other and with a deletion."""

from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import anyio
import pytest

from interop.frameworks import framework
from support.followed_sessions import FollowedSessions, until

mcp = framework("mcp")
types = framework("mcp_types")
subscriptions = framework("steno_mcp.subscriptions")

pytestmark = [pytest.mark.anyio, pytest.mark.interop]

URI = "steno://session/x"
OTHER = "steno://session/y"


class _Connection:
    """A connection of a peer of the older protocol."""

    def __init__(self) -> None:
        self.state: dict[str, Any] = {}
        self.exit_stack = AsyncExitStack()


class _Peer:
    """A peer, which is also the context and the session of its requests."""

    def __init__(self, server: Any) -> None:
        self._server = server
        self._connection = _Connection()
        self.session = self
        self.updates: list[str] = []
        self.answers = 0

    async def send_resource_updated(self, uri: str) -> None:
        self.updates.append(uri)

    async def subscribe(self) -> None:
        await self._server.subscribe(self, types.SubscribeRequestParams(uri=URI))
        self.answers += 1

    async def unsubscribe(self) -> None:
        await self._server.unsubscribe(self, types.UnsubscribeRequestParams(uri=URI))

    async def leave(self) -> None:
        await self._connection.exit_stack.aclose()


@asynccontextmanager
async def serving() -> AsyncGenerator[tuple[Any, FollowedSessions, Any]]:
    """The subscriptions of a server, the sessions behind them, and a task group."""
    async with anyio.create_task_group() as tasks:
        daemon = FollowedSessions()
        yield subscriptions.Subscriptions(daemon, tasks), daemon, tasks
        tasks.cancel_scope.cancel()


async def test_two_subscribes_at_once_are_one_subscription_that_can_be_renewed() -> None:
    async with serving() as (server, daemon, tasks):
        peer = _Peer(server)
        for number in range(2):
            tasks.start_soon(peer.subscribe)
            tasks.start_soon(peer.subscribe)
            events = await daemon.subscription(number)
            events.begun.set()
            await until(lambda: peer.answers == 2)
            events.failed.set()
            await until(lambda: peer.updates)
            assert peer.updates == [URI]
            peer.answers = 0
            peer.updates.clear()
        assert len(daemon.subscriptions) == 2


async def test_each_peer_of_a_failed_watch_subscribes_anew() -> None:
    async with serving() as (server, daemon, _):
        peers = [_Peer(server) for _ in range(3)]
        (await _begun(daemon, 0, peers[0])).failed.set()
        await until(lambda: peers[0].updates)
        second = await _begun(daemon, 1, *peers)
        await peers[2].unsubscribe()
        for peer in peers:
            peer.updates.clear()
        second.failed.set()
        await until(lambda: peers[0].updates and peers[1].updates)
        assert [peer.updates for peer in peers] == [[URI], [URI], []]


async def test_a_peer_that_leaves_during_its_second_subscribe_follows_nothing() -> None:
    async with serving() as (server, daemon, tasks):
        peer = _Peer(server)
        (await _begun(daemon, 0, peer)).failed.set()
        await until(lambda: peer.updates)
        tasks.start_soon(peer.subscribe)
        second = await daemon.subscription(1)
        await peer.leave()
        second.begun.set()
        await until(lambda: peer.answers == 2)
        # A watch without users has ended, so that another peer begins a new one.
        await _begun(daemon, 2, _Peer(server))


async def test_a_stream_is_refused_when_a_resource_fails_before_it_begins() -> None:
    async with serving() as (server, daemon, tasks):
        refusals: list[Any] = []

        async def listen() -> None:
            wanted = types.SubscriptionFilter(resource_subscriptions=[URI, OTHER])
            asked = types.SubscriptionsListenRequestParams.model_construct(notifications=wanted)
            with pytest.raises(mcp.MCPError, match="no session") as caught:
                await server.listen(None, asked)
            refusals.append(caught.value)

        peer = _Peer(server)
        first = await _begun(daemon, 0, peer)
        tasks.start_soon(listen)
        second = await daemon.subscription(1)
        first.failed.set()
        await until(lambda: peer.updates)
        second.begun.set()
        await until(lambda: refusals)
        assert refusals[0].error.data == {"uri": URI}


async def _begun(daemon: FollowedSessions, number: int, *peers: _Peer) -> Any:
    """Let peers subscribe, and begin the subscription that the first of them needs."""
    async with anyio.create_task_group() as tasks:
        for peer in peers:
            tasks.start_soon(peer.subscribe)
        events = await daemon.subscription(number)
        events.begun.set()
    return events
