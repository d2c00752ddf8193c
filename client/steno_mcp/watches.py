"""Followed resources: one subscription at the daemon for all peers that follow a resource."""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

import anyio
import anyio.abc

from steno import Client, Subscription
from steno.values import Live
from steno_mcp.addresses import Address
from steno_mcp.limits import UPDATE_INTERVAL_S, WATCHES_MAX
from steno_protocol.errors import Busy, StenoError

Ended = Callable[[str, StenoError], None]
"""Called with a URI and the reason when the resource cannot be followed any longer."""


@dataclass(slots=True)
class _Watch:
    """One followed resource.

    Attributes:
        users: one entry for each user, called when the watch fails.
        error: why it cannot be followed any longer.
    """

    users: list[Ended] = field(default_factory=list[Ended])
    error: StenoError | None = None
    scope: anyio.CancelScope = field(default_factory=anyio.CancelScope)
    begun: anyio.Event = field(default_factory=anyio.Event)
    changed: anyio.Event = field(default_factory=anyio.Event)


class Watches:
    """The followed resources of one server, by URI.

    Args:
        client: the client of the daemon.
        tasks: where their tasks run.
        publish: called with the URI of a resource that has changed, or whose watch has failed.
    """

    def __init__(
        self,
        client: Client,
        tasks: anyio.abc.TaskGroup,
        publish: Callable[[str], None],
    ) -> None:
        self._client = client
        self._tasks = tasks
        self._publish = publish
        self._watches: dict[str, _Watch] = {}

    def __len__(self) -> int:
        return len(self._watches)

    async def follow(self, uri: str, ended: Ended) -> Callable[[], None]:
        """Follow a resource, and publish its changes from the return on.

        Args:
            uri: the resource.
            ended: called after the last update when the resource cannot be followed any longer.
                A new call is needed to follow it again.

        Returns:
            A function that ends this use of the watch.

        Raises:
            StenoError: it cannot be followed, or too many are.
        """
        watch = self._watch(uri, Address.parse(uri))
        watch.users.append(ended)
        try:
            await watch.begun.wait()
            if watch.error is not None:
                raise watch.error
        except BaseException:
            self._leave(uri, watch, ended)
            raise
        return partial(self._leave, uri, watch, ended)

    def _leave(self, uri: str, watch: _Watch, ended: Ended) -> None:
        watch.users.remove(ended)
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
                    self._fail(uri, watch, error)
                tasks.cancel_scope.cancel()

    def _fail(self, uri: str, watch: _Watch, error: StenoError) -> None:
        # One step without a wait: a subscription is never added to a watch that has failed.
        watch.error = error
        self._forget(uri, watch)
        if watch.begun.is_set():
            # Its peers read it, and get the reason.
            self._publish(uri)
        watch.begun.set()
        for ended in watch.users:
            ended(uri, error)

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
            self._publish(uri)
            await anyio.sleep(UPDATE_INTERVAL_S)
