"""Checks of each request before the routes, and the headers of each answer."""

from typing import Final

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from steno_web.access import Access

LOGIN: Final = "/api/login"
"""The only address below `/api` that needs no token: the one-time token is exchanged there."""

_POLICY: Final = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        # An image is fetched with the token, and then shown from the memory of the page.
        "img-src 'self' blob:",
        "connect-src 'self'",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
        # The page builds every element by its name: no text is ever parsed as HTML.
        "require-trusted-types-for 'script'",
        "trusted-types 'none'",
    )
)

HEADERS: Final = {
    "content-security-policy": _POLICY,
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), geolocation=(), microphone=()",
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
}
"""The headers of every answer."""


class Guard:
    """Refuses requests of other pages, of other names and without the token."""

    def __init__(self, app: ASGIApp, access: Access) -> None:
        self._app = app
        self._access = access

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, or answer it with the reason of its refusal."""
        if scope["type"] != "http":
            return

        async def send_guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers[name] = value
                headers.setdefault("cache-control", "no-store")
            await send(message)

        refusal = self._refusal(scope)
        app = self._app if refusal is None else refusal
        await app(scope, receive, send_guarded)

    def _refusal(self, scope: Scope) -> PlainTextResponse | None:
        headers = Headers(scope=scope)
        path: str = scope["path"]
        is_change = scope["method"] == "POST"
        if scope["method"] not in {"GET", "HEAD", "POST"}:
            return PlainTextResponse("only GET and POST", 405)
        if not self._access.is_host(headers.get("host", "")):
            return PlainTextResponse("this viewer has another name", 421)
        if not _is_own(headers, self._access, is_change=is_change):
            return PlainTextResponse("requests of other pages are refused", 403)
        if is_change and headers.get("content-type", "").partition(";")[0] != "application/json":
            return PlainTextResponse("the body has to be JSON", 415)
        needs_token = path.startswith("/api/") and path != LOGIN
        if needs_token and not self._access.has_bearer(headers.get("authorization", "")):
            return PlainTextResponse("open the address that `steno view` printed", 401)
        return None


def _is_own(headers: Headers, access: Access, *, is_change: bool) -> bool:
    """Whether a request comes from the viewer's own page, or from no page."""
    origin = headers.get("origin")
    if origin is not None and not access.is_origin(origin):
        return False
    if is_change:
        return origin is not None
    site = headers.get("sec-fetch-site", "none")
    # A link to the page may stand anywhere: what it opens has no data before its own requests.
    is_visit = (
        headers.get("sec-fetch-mode") == "navigate" and headers.get("sec-fetch-dest") == "document"
    )
    return site in {"same-origin", "none"} or is_visit
