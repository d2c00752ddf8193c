"""Followed resources: one subscription at the daemon for all peers that follow a resource."""

from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import anyio
import anyio.abc

from steno._async.client import Client
from steno._async.subscription import Subscription
from steno.mcp_server.addresses import Address
from steno.mcp_server.limits import UPDATE_INTERVAL_S, WATCHES_MAX
from steno.values import Live
from steno_protocol.errors import Busy, StenoError


@dataclass(slots=True)
class _Watch:
    """One followed resource.

    Attributes:
        users: how many peers follow it.
        error: why it cannot be followed any longer.
    """

    users: int = 0
    error: StenoError | None = None
    scope: anyio.CancelScope = field(default_factory=anyio.CancelScope)
    begun: anyio.Event = field(default_factory=anyio.Event)
    changed: anyio.Event = field(default_factory=anyio.Event)


class Watches:
    """The followed resources of one server, by URI.

    Args:
        client: the client of the daemon.
        tasks: where their tasks run.
        publish: called with the URI of a resource that has changed.
    """

    def __init__(
        self,
        client: Client,
        tasks: anyio.abc.TaskGroup,
        publish: Callable[[str], Awaitable[None]],
    ) -> None:
        self._client = client
        self._tasks = tasks
        self._publish = publish
        self._watches: dict[str, _Watch] = {}

    def __len__(self) -> int:
        return len(self._watches)

    @asynccontextmanager
    async def following(self, uri: str) -> AsyncGenerator[None]:
        """Follow a resource; each change after the beginning of the block is published.

        Raises:
            StenoError: it cannot be followed, or too many are.
        """
        watch = self._watch(uri, Address.parse(uri))
        watch.users += 1
        try:
            await watch.begun.wait()
            if watch.error is not None:
                raise watch.error
            yield
        finally:
            watch.users -= 1
            if not watch.users:
                watch.scope.cancel()
                self._forget(uri, watch)

    def _watch(self, uri: str, address: Address) -> _Watch:
        watch = self._watches.get(uri)
        if watch is None:
            if len(self._watches) >= WATCHES_MAX:
                raise Busy(
                    f"{WATCHES_MAX} resources are followed already: unsubscribe from some of them"
                )
            watch = self._watches[uri] = _Watch()
            self._tasks.start_soon(self._run, uri, address, watch)
        return watch

    def _forget(self, uri: str, watch: _Watch) -> None:
        # A watch that has failed makes room for a new one of the same resource.
        if self._watches.get(uri) is watch:
            del self._watches[uri]

    async def _run(self, uri: str, address: Address, watch: _Watch) -> None:
        with watch.scope:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self._publish_changes, uri, watch)
                try:
                    await self._follow(address, watch)
                except StenoError as error:
                    watch.error = error
                tasks.cancel_scope.cancel()
            self._forget(uri, watch)
            if watch.begun.is_set():
                # Its peers read it, and get the reason.
                await self._publish(uri)
            watch.begun.set()

    async def _follow(self, address: Address, watch: _Watch) -> None:
        async with await self._subscription(address) as events:
            watch.begun.set()
            async for event in events:
                if not isinstance(event, Live):
                    watch.changed.set()

    async def _subscription(self, address: Address) -> Subscription:
        session = self._client.session(address.session)
        match address.view:
            case "stream":
                return (await session.stream(address.stream)).subscribe("now")
            case "wire":
                return session.subscribe("now", records="wire")
            case _:
                return session.subscribe("now")

    async def _publish_changes(self, uri: str, watch: _Watch) -> None:
        while True:
            await watch.changed.wait()
            watch.changed = anyio.Event()
            await self._publish(uri)
            await anyio.sleep(UPDATE_INTERVAL_S)
