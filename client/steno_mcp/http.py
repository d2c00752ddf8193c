"""A server over streamable HTTP, behind a token."""

from collections.abc import Awaitable, Callable
from typing import Final

from mcp.server.transport_security import TransportSecuritySettings
from starlette.datastructures import Headers
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from steno import Client
from steno_mcp.limits import BODY_BYTES_MAX, HTTP_IDLE_S, HTTP_SESSIONS_MAX
from steno_mcp.server import serving
from steno_redact.redactor import Redactor
from steno_web.access import Access
from steno_web.serving import Door, serve_app

PATH: Final = "/mcp"
"""The path of the only route."""


async def serve_http(
    door: Door,
    client: Client,
    redactor: Redactor,
    ready: Callable[[], Awaitable[None]],
    *,
    read_only: bool,
) -> None:
    """Serve any number of peers until SIGINT, SIGTERM or SIGHUP.

    Args:
        door: where it is reached; its socket is closed at the end.
        client: an open client of the daemon.
        ready: called once requests are answered.
        redactor: masks the secrets in every answer.
        read_only: leave out the tools that change sessions.
    """
    async with serving(client, redactor, read_only=read_only) as served:
        app = served.server.streamable_http_app(
            streamable_http_path=PATH,
            max_request_body_size=BODY_BYTES_MAX,
            session_idle_timeout=HTTP_IDLE_S,
            max_sessions=HTTP_SESSIONS_MAX,
            # The gate checks Host and Origin, also for other addresses than those of loopback.
            transport_security=TransportSecuritySettings(enable_dns_rebinding_protection=False),
        )
        async with served.server.session_manager.run():
            gate = Gate(app, door.access)
            await serve_app(door, gate, ready, served.subscriptions.close)


class Gate:
    """Refuses requests to other names, from other pages, and without the token."""

    def __init__(self, app: ASGIApp, access: Access) -> None:
        self._app = app
        self._access = access

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, or answer it with the reason of its refusal."""
        if scope["type"] != "http":
            return
        app = self._refusal(Headers(scope=scope)) or self._app
        await app(scope, receive, send)

    def _refusal(self, headers: Headers) -> PlainTextResponse | None:
        if not self._access.is_host(headers.get("host", "")):
            return PlainTextResponse("this server has another name", 421)
        origin = headers.get("origin")
        if origin is not None and not self._access.is_origin(origin):
            return PlainTextResponse("requests of other pages are refused", 403)
        if not self._access.has_bearer(headers.get("authorization", "")):
            return PlainTextResponse(
                "send the token that `steno mcp --http` uses: Authorization: Bearer TOKEN",
                401,
                {"www-authenticate": "Bearer"},
            )
        return None
