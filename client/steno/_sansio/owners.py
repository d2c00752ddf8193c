"""The owners of sessions in a cluster, and the links to their daemons.

    home daemon --held, names E--> the link to E --served--> done
         ^                              | E lost, silent, ending, or not the owner
         +---------- a pause -----------+

A client begins at its home daemon. A session whose owner was named goes there from then on, until
that daemon is lost or names another one. The drivers own the links; nothing here waits.
"""

from collections.abc import Callable
from typing import Final, Generic, Protocol, TypeVar

from steno._sansio.exchange import Exchange
from steno._sansio.follower import Follower
from steno._sansio.pending import Pending
from steno._sansio.route import Route, direct
from steno_protocol import limits, paths
from steno_protocol.commands import Command, Fork, Rename, SessionCommand, TakeIn, Undelete
from steno_protocol.errors import BadRequest


class OwnerLink(Protocol):
    """A link to the daemon of an owner."""

    @property
    def exchange(self) -> Exchange:
        """Its requests and subscriptions."""
        ...


_GO_HOME: Final = (Fork, Rename, Undelete, TakeIn)
"""Commands about two sessions, or about one that is not there yet."""

LinkT = TypeVar("LinkT", bound=OwnerLink)


class Owners(Generic[LinkT]):
    """The links to owners, and the sessions whose owners are known.

    Args:
        home: the exchange with the home daemon.
        make: makes the link to an address, without waiting for the connection.

    Attributes:
        links: the links by address.
    """

    def __init__(self, home: Exchange, make: Callable[[str], LinkT]) -> None:
        self.links: dict[str, LinkT] = {}
        self._home = home
        self._make = make
        self._sessions: dict[str, str] = {}

    def link_for(self, command: Command) -> LinkT | None:
        """The link that a new command begins at; None: home."""
        if not isinstance(command, SessionCommand) or isinstance(command, _GO_HOME):
            return None
        return self.link_of(command.session)

    def link_of(self, session: str) -> LinkT | None:
        """The link to the owner of a session, or to any while home is lost; None: home."""
        return self._owner_of(session) or (None if self._home.is_connected else self._any_link())

    def carrier(self, item: Pending | Follower) -> LinkT | None:
        """The link that carries a request or subscription; None: home."""
        if item.route is None or item.route.endpoint is None:
            return None
        return self.links.get(item.route.endpoint)

    def begin(self, item: Pending | Follower, exchange: Exchange) -> None:
        """Note the exchange that a new request or subscription begins in."""
        if exchange.endpoint is not None:
            item.route = direct(exchange.endpoint)

    def drop(self, link: LinkT) -> None:
        """Forget a link that has ended; `redirect` moves what it carried."""
        endpoint = link.exchange.endpoint
        if endpoint is not None and self.links.get(endpoint) is link:
            del self.links[endpoint]

    def leave_home(self) -> None:
        """Redirect what waits for a lost home daemon, if another daemon can be asked."""
        if self._any_link() is not None:
            self._home.redirect_sessions()

    def redirect(self, now: float, ended: Exchange | None = None) -> None:
        """Move all redirected requests and subscriptions to their next daemons.

        Args:
            now: the time on the clock of the exchanges.
            ended: the exchange of a dropped link.
        """
        sources = [self._home, *(link.exchange for link in self.links.values())]
        if ended is not None:
            sources.append(ended)
        while source := next((each for each in sources if each.redirected), None):
            # An item leaves the queue after it was moved, because of interrupts.
            item, named = source.redirected[0]
            if source.carries(item):
                self._move(item, named, source, now)
            else:
                source.drop(item)
            source.redirected.popleft()

    # --- inside ----------------------------------------------------------------------------------

    def _move(
        self, item: Pending | Follower, named: str | None, source: Exchange, now: float
    ) -> None:
        if item.route is None:
            item.route = Route()
        route = item.route
        if source.endpoint is not None and source.trouble is not None:
            route.trouble = source.trouble
        link = None
        if named is not None and route.allows(named):
            link = self._link_to(named, route)
        if link is None:
            self._turn_back(item, route, source, now)
            return
        self._note(item, link.exchange)
        left = source.leave(item)
        route.endpoint = named
        link.exchange.adopt(item, now, now)
        source.drop(item, left)

    def _turn_back(
        self, item: Pending | Follower, route: Route, source: Exchange, now: float
    ) -> None:
        """Ask the home daemon again after a pause; another one if that is not there."""
        if item.session is not None:
            self._sessions.pop(item.session, None)
        other = None if self._home.is_connected else self._any_link(but=source)
        target = self._home if other is None else other.exchange
        due = now + route.turn_back()
        left = source.leave(item)
        route.endpoint = target.endpoint
        target.adopt(item, now, due)
        source.drop(item, left)

    def _owner_of(self, session: str) -> LinkT | None:
        endpoint = self._sessions.get(session)
        return None if endpoint is None else self.links.get(endpoint)

    def _any_link(self, but: Exchange | None = None) -> LinkT | None:
        links = (link for link in self.links.values() if link.exchange is not but)
        return next((link for link in links if link.exchange.is_connected), None)

    def _note(self, item: Pending | Follower, owner: Exchange) -> None:
        """Note the owner of the session, and move its subscriptions along."""
        session = item.session
        is_move = isinstance(item, Pending) and isinstance(item.command, _GO_HOME)
        if session is None or is_move or owner.endpoint is None:
            return
        before = self._owner_of(session)
        self._sessions.pop(session, None)
        while len(self._sessions) >= limits.OWNED_SESSIONS_MAX:
            del self._sessions[next(iter(self._sessions))]
        self._sessions[session] = owner.endpoint
        if before is not None and before.exchange is not owner:
            before.exchange.redirect_followers(session, owner.endpoint)

    def _link_to(self, endpoint: str, route: Route) -> LinkT | None:
        """The link to a named address, made if need be; None if it cannot be."""
        link = self.links.get(endpoint)
        if link is not None:
            return link
        if len(self.links) >= limits.OWNER_LINKS_MAX:
            route.trouble = f"this client is connected to {len(self.links)} owners"
            return None
        try:
            paths.check_endpoint(endpoint)
        except BadRequest as error:
            route.trouble = error.message
            return None
        link = self.links[endpoint] = self._make(endpoint)
        return link
