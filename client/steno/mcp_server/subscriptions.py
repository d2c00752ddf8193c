"""Subscriptions of the peers, in both forms of the protocol.

Up to 2025-11-25 a peer calls `resources/subscribe` for each resource, and gets updates until its
connection ends. From 2026-07-28 on it sends one `subscriptions/listen`, whose answer is the stream
of the updates.
"""

from contextlib import AsyncExitStack
from typing import Any, Final

import anyio
import anyio.abc
import mcp_types as types
from mcp.server.connection import Connection
from mcp.server.context import ServerRequestContext
from mcp.server.session import ServerSession
from mcp.server.subscriptions import (
    InMemorySubscriptionBus,
    ListenHandler,
    ResourceUpdated,
    ServerEvent,
)

from steno._async.client import Client
from steno.mcp_server.errors import protocol_error
from steno.mcp_server.limits import WATCHES_MAX
from steno.mcp_server.watches import Watches
from steno_protocol.errors import StenoError

Context = ServerRequestContext[Any, Any]

_STATE: Final = "steno.peer"


class Subscriptions:
    """The subscriptions of all peers of one server.

    Args:
        client: the client of the daemon.
        tasks: where their tasks run.
    """

    def __init__(self, client: Client, tasks: anyio.abc.TaskGroup) -> None:
        self._bus = InMemorySubscriptionBus()
        self._listen = ListenHandler(
            self._bus, max_subscriptions=WATCHES_MAX, max_buffered_events=WATCHES_MAX
        )
        self._tasks = tasks
        self._watches = Watches(client, tasks, self._publish)

    async def listen(
        self, context: Context, asked: types.SubscriptionsListenRequestParams
    ) -> types.SubscriptionsListenResult:
        """Serve the stream of one peer until it ends."""
        uris = dict.fromkeys(asked.notifications.resource_subscriptions or ())
        async with AsyncExitStack() as stack:
            for uri in uris:
                await self._enter(stack, uri)
            return await self._listen(context, asked)

    async def subscribe(
        self, context: Context, asked: types.SubscribeRequestParams
    ) -> types.EmptyResult:
        """Send updates of a resource to a peer until it unsubscribes or leaves."""
        peer = self._peer(context)
        if asked.uri not in peer.followed:
            stack = AsyncExitStack()
            await self._enter(stack, asked.uri)
            # It may have left meanwhile, or have sent the same request twice.
            if peer.is_closed or asked.uri in peer.followed:
                await stack.aclose()
            else:
                peer.followed[asked.uri] = stack
        return types.EmptyResult()

    async def unsubscribe(
        self, context: Context, asked: types.UnsubscribeRequestParams
    ) -> types.EmptyResult:
        """Send no more updates of a resource."""
        stack = self._peer(context).followed.pop(asked.uri, None)
        if stack is not None:
            await stack.aclose()
        return types.EmptyResult()

    def close(self) -> None:
        """End the streams of all peers."""
        self._listen.close()

    async def _enter(self, stack: AsyncExitStack, uri: str) -> None:
        try:
            await stack.enter_async_context(self._watches.following(uri))
        except StenoError as error:
            raise protocol_error(error, uri) from None

    async def _publish(self, uri: str) -> None:
        await self._bus.publish(ResourceUpdated(uri))

    def _peer(self, context: Context) -> "_Peer":
        # The SDK describes the exit stack and the state of a connection as a handler's, and has no
        # public way from a request to its connection.
        connection: Connection = context.session._connection  # pyright: ignore[reportPrivateUsage]
        peer = connection.state.get(_STATE)
        if not isinstance(peer, _Peer):
            peer = connection.state[_STATE] = _Peer(context.session)
            unsubscribe = self._bus.subscribe(peer.deliver)
            connection.exit_stack.push_async_callback(peer.aclose)
            connection.exit_stack.callback(unsubscribe)
            self._tasks.start_soon(peer.send)
        return peer


class _Peer:
    """A connection with subscriptions.

    Attributes:
        followed: what ends the subscription of each resource.
        is_closed: the connection has ended.
    """

    def __init__(self, session: ServerSession) -> None:
        self._session = session
        self._scope = anyio.CancelScope()
        self._updated: dict[str, None] = {}
        self._news = anyio.Event()
        self.followed: dict[str, AsyncExitStack] = {}
        self.is_closed: bool = False

    def deliver(self, event: ServerEvent) -> None:
        """Note an update; updates of one resource that were not sent yet are one."""
        if isinstance(event, ResourceUpdated) and event.uri in self.followed:
            self._updated[event.uri] = None
            self._news.set()

    async def send(self) -> None:
        """Send updates until the connection ends."""
        with self._scope:
            while True:
                await self._news.wait()
                self._news = anyio.Event()
                updated, self._updated = self._updated, {}
                for uri in updated:
                    await self._session.send_resource_updated(uri)

    async def aclose(self) -> None:
        """End all subscriptions."""
        self.is_closed = True
        self._scope.cancel()
        for stack in self.followed.values():
            await stack.aclose()
        self.followed.clear()
