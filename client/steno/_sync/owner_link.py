"""The link of a blocking client to the owner of sessions in a cluster."""

import time

from steno._connect.connection import Connection
from steno._connect.probe import hello_of
from steno._sansio.exchange import Exchange
from steno._sansio.owner_exchange import OwnerExchange
from steno._sync.link import BlockingLink
from steno_protocol.errors import Incompatible, Unauthorized, Unreachable


class BlockingOwnerLink(BlockingLink):
    """One connection to the daemon of an owner; what it carried at its end goes home.

    It is used in the turns of the client's link.

    Args:
        home: the link of the client.
        endpoint: the owner's address.

    Attributes:
        exchange: its requests and subscriptions.
    """

    def __init__(self, home: BlockingLink, endpoint: str) -> None:
        target = home.target.owner_at(endpoint, home.welcome.root)
        exchange = OwnerExchange(hello_of(target), endpoint, home.on_stale, home.repairs)
        super().__init__(target, home.timeout, home, exchange)
        self.exchange: OwnerExchange = exchange
        self._home = home

    def _connect_again(self, until: float) -> Connection | None:
        try:
            ready = self._go_on_connecting(time.monotonic(), until)
        except Unreachable as error:
            self._hang_up(error.message)
        except (Incompatible, Unauthorized) as error:
            refusal = type(error)(f"{error.message}; that daemon owns the session")
            self._exchange.fail(refusal, for_ever=True)
            self._hang_up(error.message)
        else:
            if ready is not None:
                self._adopt(ready)
        return self._connection

    def _hang_up(self, why: str) -> None:
        super()._hang_up(why)
        self._home.drop_owner(self)

    def _redirect(self, ended: Exchange | None = None) -> None:
        self._home._redirect(ended)

    def _pay(self) -> None:
        self._home._pay()
