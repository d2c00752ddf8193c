"""Subscriptions of the peers, in both forms of the protocol.

Up to 2025-11-25 a peer calls `resources/subscribe` for each resource, and gets updates until its
connection ends. From 2026-07-28 on it sends one `subscriptions/listen`, whose answer is the stream
of the updates.

A resource that cannot be followed any longer ends its subscriptions after a last update. A peer of
the older protocol subscribes again; the stream of a newer one ends with its result.
"""

from collections.abc import Callable
from contextlib import ExitStack
from typing import Any, Final

import anyio
import anyio.abc
import mcp_types as types
from mcp.server.connection import Connection
from mcp.server.context import ServerRequestContext
from mcp.server.session import ServerSession
from mcp.server.subscriptions import (
    ListenHandler,
    ResourceUpdated,
    ServerEvent,
)
from mcp.shared.exceptions import MCPError

from steno import Client
from steno_mcp.errors import protocol_error
from steno_mcp.limits import WATCHES_MAX
from steno_mcp.watches import Ended, Watches
from steno_protocol.errors import StenoError

Context = ServerRequestContext[Any, Any]

_STATE: Final = "steno.peer"


class Subscriptions:
    """The subscriptions of all peers of one server."""

    def __init__(self, client: Client, tasks: anyio.abc.TaskGroup) -> None:
        self._bus = _Bus()
        self._streams: set[_Stream] = set()
        self._tasks = tasks
        self._watches = Watches(client, tasks, self._publish)

    async def listen(
        self, context: Context, asked: types.SubscriptionsListenRequestParams
    ) -> types.SubscriptionsListenResult:
        """Serve the stream of one peer until it ends."""
        if len(self._streams) >= WATCHES_MAX:
            raise MCPError(
                types.INTERNAL_ERROR, f"{WATCHES_MAX} streams are open already: end some of them"
            )
        uris = dict.fromkeys(asked.notifications.resource_subscriptions or ())
        stream = _Stream(self._bus)
        with ExitStack() as stack:
            self._streams.add(stream)
            stack.callback(self._streams.remove, stream)
            for uri in uris:
                stack.callback(await self._follow(uri, stream.end))
            return await stream.serve(context, asked)

    async def subscribe(
        self, context: Context, asked: types.SubscribeRequestParams
    ) -> types.EmptyResult:
        """Send updates of a resource until it fails, or the peer unsubscribes or leaves."""
        peer = self._peer(context)
        if asked.uri not in peer.followed:
            leave = await self._follow(asked.uri, peer.forget)
            # It may have left meanwhile, or have sent the same request twice.
            if peer.is_closed or asked.uri in peer.followed:
                leave()
            else:
                peer.followed[asked.uri] = leave
        return types.EmptyResult()

    async def unsubscribe(
        self, context: Context, asked: types.UnsubscribeRequestParams
    ) -> types.EmptyResult:
        """Send no more updates of a resource."""
        leave = self._peer(context).followed.pop(asked.uri, None)
        if leave is not None:
            leave()
        return types.EmptyResult()

    def close(self) -> None:
        """End the streams of all peers."""
        for stream in self._streams:
            stream.close()

    async def _follow(self, uri: str, ended: Ended) -> Callable[[], None]:
        try:
            return await self._watches.follow(uri, ended)
        except StenoError as error:
            raise protocol_error(error, uri) from None

    def _publish(self, uri: str) -> None:
        self._bus.deliver(ResourceUpdated(uri))

    def _peer(self, context: Context) -> "_Peer":
        # The SDK describes the exit stack and the state of a connection as a handler's, and has no
        # public way from a request to its connection.
        connection: Connection = context.session._connection  # pyright: ignore[reportPrivateUsage]
        peer = connection.state.get(_STATE)
        if not isinstance(peer, _Peer):
            peer = connection.state[_STATE] = _Peer(context.session)
            unsubscribe = self._bus.subscribe(peer.deliver)
            connection.exit_stack.callback(peer.close)
            connection.exit_stack.callback(unsubscribe)
            self._tasks.start_soon(peer.send)
        return peer


class _Bus:
    """The updates of all resources; unlike the bus of the SDK it delivers without a wait."""

    def __init__(self) -> None:
        self._listeners: dict[object, Callable[[ServerEvent], None]] = {}

    def deliver(self, event: ServerEvent) -> None:
        """Pass an event to each listener."""
        for listener in self._listeners.values():
            listener(event)

    async def publish(self, event: ServerEvent) -> None:
        """Pass an event to each listener, in the form that the SDK asks for."""
        self.deliver(event)

    def subscribe(self, listener: Callable[[ServerEvent], None]) -> Callable[[], None]:
        """Add a listener, and return the function that removes it."""
        key = object()
        self._listeners[key] = listener

        def unsubscribe() -> None:
            self._listeners.pop(key, None)

        return unsubscribe


class _Stream:
    """The answer to one `subscriptions/listen`, with a handler of its own that ends only it."""

    def __init__(self, bus: _Bus) -> None:
        self._handler = ListenHandler(bus, max_buffered_events=WATCHES_MAX)
        self._error: MCPError | None = None

    async def serve(
        self, context: Context, asked: types.SubscriptionsListenRequestParams
    ) -> types.SubscriptionsListenResult:
        """Send updates until the peer leaves or the stream is ended.

        Raises:
            MCPError: a resource has failed before the stream began.
        """
        if self._error is not None:
            raise self._error
        return await self._handler(context, asked)

    def end(self, uri: str, error: StenoError) -> None:
        """End the stream after the updates so far, as one of its resources has failed."""
        self._error = protocol_error(error, uri)
        self.close()

    def close(self) -> None:
        """End the stream after the updates so far."""
        self._handler.close()


class _Peer:
    """A connection with subscriptions.

    Attributes:
        followed: the resources with a watch that has not failed, and what leaves it.
        is_closed: the connection has ended.
    """

    def __init__(self, session: ServerSession) -> None:
        self._session = session
        self._scope = anyio.CancelScope()
        self._updated: dict[str, None] = {}
        self._news = anyio.Event()
        self.followed: dict[str, Callable[[], None]] = {}
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

    def forget(self, uri: str, _: StenoError) -> None:
        """Drop a resource that has failed; a later request subscribes to it anew."""
        self.followed.pop(uri, None)

    def close(self) -> None:
        """End all subscriptions."""
        self.is_closed = True
        self._scope.cancel()
        for leave in self.followed.values():
            leave()
        self.followed.clear()
