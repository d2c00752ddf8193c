"""The process of `steno view`: sockets, signals, and the address that it prints."""

import contextlib
import signal
import socket
import tempfile
import webbrowser
from collections.abc import Awaitable, Callable, Generator
from dataclasses import dataclass
from html import escape
from pathlib import Path
from urllib.parse import quote

import anyio
import anyio.to_thread
import uvicorn

from steno._async.client import Client
from steno.viewer.access import Access
from steno.viewer.app import Finding, Viewer, make_app
from steno.viewer.limits import SHUTDOWN_S
from steno.viewer.pulse import Pulse
from steno.viewer.search import SearchService
from steno.viewer.watches import Watches


@dataclass(frozen=True, slots=True)
class Door:
    """Where a viewer is reached.

    Attributes:
        listener: the listening socket.
        access: the token and the names.
    """

    listener: socket.socket
    access: Access

    def address(self, session: str | None) -> str:
        """The address of the page, with the token in its fragment."""
        at = "" if session is None else f"&session={quote(session, safe='')}"
        return f"{self.access.address}#token={self.access.token}{at}"


def listen(host: str, port: int) -> Door:
    """Listen at an address; port 0 is a free one.

    Raises:
        OSError: it is in use, or not of this machine.
    """
    family, kind, number, _, address = socket.getaddrinfo(
        host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
    )[0]
    listener = socket.socket(family, kind, number)
    try:
        # The next view may use the same port at once.
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        listener.listen(128)
    except OSError:
        listener.close()
        raise
    names = (socket.gethostname().lower(), socket.getfqdn().lower())
    return Door(listener, Access(host, listener.getsockname()[1], names))


async def serve(
    door: Door,
    client: Client,
    root: str,
    diagnose: Callable[[], list[Finding]],
    ready: Callable[[], Awaitable[None]],
    search: SearchService,
    *,
    may_write: bool = False,
) -> None:
    """Serve pages until SIGINT, SIGTERM or SIGHUP.

    Args:
        door: where it is reached; its socket is closed at the end.
        client: an open client of the daemon.
        root: what the page shows as the place of the sessions.
        diagnose: the doctor's checks.
        ready: called once requests are answered.
        search: the search over all sessions; closed at the end.
        may_write: the page offers changes.
    """
    closing = anyio.Event()
    async with anyio.create_task_group() as tasks:
        pulse = Pulse(client)
        watches = Watches(client, tasks)
        viewer = Viewer(
            door.access, client, watches, pulse, closing, diagnose, search, root, may_write
        )
        server = _Server(_config(viewer), ready)
        tasks.start_soon(pulse.beat)
        tasks.start_soon(_end_at_signal, server, closing)
        await server.serve([door.listener])
        await anyio.to_thread.run_sync(search.close)
        tasks.cancel_scope.cancel()


@contextlib.contextmanager
def private_page(address: str) -> Generator[str]:
    """The address of a file that leads a browser on to the viewer; removed at the end.

    The browser gets this one on its command line, which every user of the machine can read: the
    address of the viewer contains the token.
    """
    with tempfile.TemporaryDirectory(prefix="steno-view-") as folder:
        path = Path(folder, "view.html")
        target = escape(address, quote=True)
        path.write_text(
            f'<!doctype html><meta charset="utf-8"><title>steno view</title>'
            f'<meta http-equiv="refresh" content="0; url={target}"><a href="{target}">view</a>'
        )
        yield path.as_uri()


async def open_browser(page: str) -> bool:
    """Open a page in the browser of this machine; returns False if there is none."""
    return await anyio.to_thread.run_sync(webbrowser.open, page)


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


def _config(viewer: Viewer) -> uvicorn.Config:
    return uvicorn.Config(
        make_app(viewer),
        http="h11",
        loop="asyncio",
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        timeout_graceful_shutdown=SHUTDOWN_S,
    )


async def _end_at_signal(server: uvicorn.Server, closing: anyio.Event) -> None:
    """End the streams of the pages, then the server; a second signal does not wait for them."""
    with anyio.open_signal_receiver(signal.SIGINT, signal.SIGTERM, signal.SIGHUP) as signals:
        async for _ in signals:
            server.force_exit = server.should_exit
            server.should_exit = True
            closing.set()
