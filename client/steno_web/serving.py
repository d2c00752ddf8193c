"""A web server on one socket, until a signal ends it."""

import contextlib
import logging
import signal
import socket
from collections.abc import Awaitable, Callable, Generator
from dataclasses import dataclass

import anyio
import uvicorn
from starlette.types import ASGIApp

from steno_web.access import Access
from steno_web.connections import bounded_protocol
from steno_web.limits import BACKLOG_MAX, SHUTDOWN_S


@dataclass(frozen=True, slots=True)
class Door:
    """Where a server is reached.

    Attributes:
        listener: the listening socket.
        access: the token and the names.
    """

    listener: socket.socket
    access: Access


def listen(host: str, port: int, token: str | None = None) -> Door:
    """Listen at an address.

    Args:
        host: an address or a name of this machine.
        port: 0 is a free one.
        token: the token of the door; None for a fresh one.

    Raises:
        OSError: it is in use, or not of this machine.
    """
    family, kind, number, _, address = socket.getaddrinfo(
        host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
    )[0]
    listener = socket.socket(family, kind, number)
    try:
        # The next server may use the same port at once.
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        listener.listen(BACKLOG_MAX)
    except OSError:
        listener.close()
        raise
    names = (socket.gethostname().lower(), socket.getfqdn().lower())
    where = (host, listener.getsockname()[1], names)
    return Door(listener, Access(*where) if token is None else Access(*where, token=token))


async def serve_app(
    door: Door,
    app: ASGIApp,
    ready: Callable[[], Awaitable[None]],
    closing: Callable[[], None],
) -> None:
    """Serve an application until SIGINT, SIGTERM or SIGHUP.

    Args:
        door: where it is reached; its socket is closed at the end.
        app: the application.
        ready: called once requests are answered.
        closing: called at the first signal, to end the streams of the application.
    """
    server = _Server(_config(app, door.access), ready)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(_end_at_signal, server, closing)
        await server.serve([door.listener])
        tasks.cancel_scope.cancel()


class _Server(uvicorn.Server):
    """uvicorn without signal handlers of its own: it would raise the signal again at its end."""

    def __init__(self, config: uvicorn.Config, ready: Callable[[], Awaitable[None]]) -> None:
        super().__init__(config)
        self._ready = ready

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start serving, then report it."""
        await super().startup(sockets)
        await self._ready()

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None]:
        """Leave the signals to `_end_at_signal`."""
        yield


def _config(app: ASGIApp, access: Access) -> uvicorn.Config:
    return uvicorn.Config(
        app,
        http=bounded_protocol(access),
        # As many are accepted at once; more of them would take all handles before one is refused.
        backlog=BACKLOG_MAX,
        loop="asyncio",
        ws="none",
        lifespan="off",
        log_config=None,
        # A warning for each malformed request would let strangers fill the terminal.
        log_level=logging.ERROR,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        timeout_graceful_shutdown=SHUTDOWN_S,
    )


async def _end_at_signal(server: uvicorn.Server, closing: Callable[[], None]) -> None:
    """End the streams, then the server; a second signal does not wait for them."""
    with anyio.open_signal_receiver(signal.SIGINT, signal.SIGTERM, signal.SIGHUP) as signals:
        async for _ in signals:
            server.force_exit = server.should_exit
            server.should_exit = True
            closing()
