"""The link of an async client to the owner of sessions in a cluster."""

import anyio
import anyio.abc

from steno._async.link import Link
from steno._connect.probe import hello_of
from steno._sansio.exchange import Exchange
from steno._sansio.owner_exchange import OwnerExchange
from steno_protocol.errors import Incompatible, Unauthorized, Unreachable


class OwnerLink(Link):
    """One connection to the daemon of an owner; what it carried at its end goes home.

    Args:
        home: the link of the client, whose tasks and time limit it shares.
        endpoint: the owner's address.

    Attributes:
        exchange: its requests and subscriptions.
    """

    def __init__(self, home: Link, endpoint: str) -> None:
        root = None if home.welcome is None else home.welcome.root
        target = home.target.owner_at(endpoint, root)
        exchange = OwnerExchange(hello_of(target), endpoint, repairs=home.repairs)
        super().__init__(target, home.timeout, home, exchange)
        self.exchange: OwnerExchange = exchange
        self._home = home
        # Made here, and used by the tasks that start a little later.
        self._timer = anyio.Event()
        self._wanted = anyio.Event()
        self._loop = home._loop
        self._is_started = False
        self._why = "the connection to it was lost"

    def start(self, tasks: anyio.abc.TaskGroup) -> None:
        """Run in the tasks of the client, unless it does so already."""
        if not self._is_started:
            self._is_started = True
            tasks.start_soon(self._run)

    async def _run(self) -> None:
        try:
            async with anyio.create_task_group() as self._tasks:
                self._start_timer()
                await self._guarded(self._live)
                self._tasks.cancel_scope.cancel()
        finally:
            self._hang_up(self._why)
        self._home.drop_owner(self)

    async def _live(self) -> None:
        """Connect, and keep the connection until its end."""
        try:
            self._adopt(await self._reach(needs_daemon=False))
        except Unreachable as error:
            self._why = error.message
        except (Incompatible, Unauthorized) as error:
            refusal = type(error)(f"{error.message}; that daemon owns the session")
            self._exchange.fail(refusal, for_ever=True)
        else:
            assert self._connection is not None
            await self._serve(self._connection)

    def _redirect(self, ended: Exchange | None = None) -> None:
        self._home._redirect(ended)

    def _break(self, error: Exception) -> None:
        self._home._break(error)
