"""The process of `steno view`: its address, its tasks, and the browser that shows it."""

import contextlib
import tempfile
import webbrowser
from collections.abc import Awaitable, Callable, Generator
from html import escape
from pathlib import Path
from urllib.parse import quote

import anyio
import anyio.to_thread

from steno import Client
from steno_redact.redactor import Redactor
from steno_view.app import Finding, Viewer, make_app
from steno_view.one_time_token import OneTimeToken
from steno_view.pulse import Pulse
from steno_view.search import SearchService
from steno_view.spending import SpendingService
from steno_view.watches import Watches
from steno_web.access import Access
from steno_web.serving import Door, serve_app


def page_address(access: Access, token: str, session: str | None) -> str:
    """The address of the page, with the one-time token in its fragment."""
    at = "" if session is None else f"&session={quote(session, safe='')}"
    return f"{access.address}#token={token}{at}"


async def serve(
    door: Door,
    printed: OneTimeToken,
    client: Client,
    root: str,
    diagnose: Callable[[], list[Finding]],
    ready: Callable[[], Awaitable[None]],
    search: SearchService,
    *,
    redactor: Redactor,
    spending: SpendingService,
    may_write: bool = False,
    is_watching: bool = False,
) -> None:
    """Serve pages until SIGINT, SIGTERM or SIGHUP.

    Args:
        door: where it is reached; its socket is closed at the end.
        printed: the token of the printed address.
        client: an open client of the daemon.
        root: what the page shows as the place of the sessions.
        diagnose: the doctor's checks.
        ready: called once requests are answered.
        search: the search over all sessions; closed at the end.
        redactor: masks the secrets in everything that leaves the viewer.
        spending: the tokens of the sessions; closed at the end.
        may_write: the page offers changes.
        is_watching: the transcripts of other agents are followed meanwhile.
    """
    closing = anyio.Event()
    async with anyio.create_task_group() as tasks:
        pulse = Pulse(client)
        watches = Watches(client, tasks, redactor)
        viewer = Viewer(
            door.access,
            printed,
            client,
            watches,
            pulse,
            closing,
            diagnose,
            search,
            root,
            redactor,
            spending,
            may_write,
            is_watching,
        )
        tasks.start_soon(pulse.beat)
        await serve_app(door, make_app(viewer), ready, closing.set)
        await anyio.to_thread.run_sync(search.close)
        await anyio.to_thread.run_sync(spending.close)
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
