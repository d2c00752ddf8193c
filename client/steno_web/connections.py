"""Connections that have not proven the token: few, and closed soon."""

import asyncio

from uvicorn.protocols.http.h11_impl import H11Protocol

from steno_web.access import Access
from steno_web.limits import STRANGER_S, STRANGERS_MAX


def bounded_protocol(access: Access) -> type[H11Protocol]:
    """The protocol of one server's connections.

    A connection is a stranger's until a request on it has the token. If there are too many of them,
    the oldest one makes room: a browser proves itself as soon as it is connected, and does not wait
    behind connections that say nothing.

    Args:
        access: the token.
    """
    strangers: dict[asyncio.BaseProtocol, asyncio.TimerHandle] = {}

    class Connection(H11Protocol):
        def connection_made(  # type: ignore[override]  # narrowed by uvicorn, too
            self, transport: asyncio.Transport
        ) -> None:
            super().connection_made(transport)
            strangers[self] = self.loop.call_later(STRANGER_S, self.drop)
            if len(strangers) > STRANGERS_MAX:
                oldest = next(iter(strangers))
                assert isinstance(oldest, Connection)
                oldest.drop()

        def data_received(self, data: bytes) -> None:
            super().data_received(data)
            # Assigned with the first request.
            if self in strangers and self.headers:
                given = dict(self.headers).get(b"authorization", b"")
                if access.has_bearer(given.decode("latin-1")):
                    self._settle()

        def connection_lost(self, exc: Exception | None) -> None:
            self._settle()
            super().connection_lost(exc)

        def drop(self) -> None:
            """Close a stranger's connection."""
            self._settle()
            self.transport.abort()

        def _settle(self) -> None:
            timer = strangers.pop(self, None)
            if timer is not None:
                timer.cancel()

    return Connection
