"""The routes of the page and of its API."""

import math
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass
from datetime import date
from hashlib import blake2b
from importlib import resources
from typing import Any, Final, cast

import anyio
import anyio.to_thread
import msgspec
from starlette.applications import Starlette
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from steno import Client
from steno_agents.usage_table import BYS, By
from steno_protocol.errors import (
    BadRequest,
    Busy,
    Conflict,
    Exists,
    NotFound,
    StenoError,
    TooLarge,
    Unauthorized,
    Unreachable,
)
from steno_protocol.positions import Position
from steno_redact.redactor import Redactor
from steno_view.changes import Changes
from steno_view.dashboard import Dashboard
from steno_view.export import Format, exported
from steno_view.feed import Feed, PageState
from steno_view.guard import LOGIN, Guard
from steno_view.limits import BODY_BYTES_MAX, DASHBOARD_AGE_S
from steno_view.one_time_token import OneTimeToken
from steno_view.origins import Origins
from steno_view.pulse import Pulse, Shared
from steno_view.queries import Queries
from steno_view.search import SearchService
from steno_view.spending import SpendingService
from steno_view.streams import StreamPlaces
from steno_view.watches import Watches
from steno_web.access import Access

Finding = Mapping[str, str]
"""One finding of the doctor: its check, state, text and remedy."""

Answer = Callable[[Request], Awaitable[Response]]
"""The function that answers a route."""

_TYPES: Final = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}

_STATUSES: Final[tuple[tuple[type[StenoError], int], ...]] = (
    (BadRequest, 400),
    (Unauthorized, 403),
    (NotFound, 404),
    (Conflict, 409),
    (Exists, 409),
    (TooLarge, 413),
    (Busy, 429),
    (Unreachable, 503),
)


@dataclass(frozen=True, slots=True)
class Viewer:
    """The parts of a viewer that its routes use.

    Attributes:
        access: the token and the names of this viewer.
        printed: the token of the printed address.
        client: the client of the daemon.
        watches: the followed sessions.
        pulse: the state of the daemon.
        closing: set when the viewer ends.
        diagnose: the doctor's checks; runs in a thread.
        search: the search over all sessions.
        root: what the page shows as the place of the sessions.
        redactor: masks the secrets in everything that leaves the viewer.
        spending: the tokens of the sessions.
        may_write: the page offers changes.
        is_watching: the transcripts of other agents are followed meanwhile.
    """

    access: Access
    printed: OneTimeToken
    client: Client
    watches: Watches
    pulse: Pulse
    closing: anyio.Event
    diagnose: Callable[[], list[Finding]]
    search: SearchService
    root: str
    redactor: Redactor
    spending: SpendingService
    may_write: bool = False
    is_watching: bool = False


class _EventStream(StreamingResponse):
    """A stream of events, and what is released at its end.

    A browser that leaves before the first event never starts the generator: the generator itself
    cannot release anything.
    """

    def __init__(self, events: AsyncGenerator[bytes], held: AsyncExitStack) -> None:
        super().__init__(events, media_type="text/event-stream")
        self._held = held

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the events, then release what they needed."""
        async with self._held:
            await super().__call__(scope, receive, send)


class _Routes:
    """One method for each route."""

    def __init__(self, viewer: Viewer) -> None:
        self._viewer = viewer
        origins = Origins(viewer.client, viewer.redactor)
        self._queries = Queries(
            viewer.client, viewer.watches, viewer.pulse, viewer.redactor, origins
        )
        dashboard = Dashboard(
            viewer.client, viewer.pulse, origins, viewer.spending, viewer.redactor
        )
        self._dashboard = Shared(dashboard.look, DASHBOARD_AGE_S)
        self._changes = Changes(viewer.client, viewer.redactor, is_allowed=viewer.may_write)
        self._files = _static_files()
        self._places = StreamPlaces()

    def all(self) -> list[Route]:
        """The routes."""
        answers: dict[str, Answer] = {
            "/api/sessions": self.sessions,
            "/api/counts": self.counts,
            "/api/session": self.session,
            "/api/rows": self.rows,
            "/api/image": self.image,
            "/api/outline": self.outline,
            "/api/tree": self.tree,
            "/api/end": self.end,
            "/api/compare": self.compare,
            "/api/wire": self.wire,
            "/api/wire/events": self.wire_events,
            "/api/dashboard": self.dashboard,
            "/api/usage": self.usage,
            "/api/now": self.now,
            "/api/export": self.export,
            "/api/search": self.search,
            "/api/search/progress": self.search_progress,
        }
        return [
            Route("/", self.page),
            Route("/static/{name}", self.static),
            Route(LOGIN, self.login, methods=["POST"]),
            Route("/api/hello", self.hello),
            Route("/api/doctor", self.doctor),
            Route("/api/events", self.events),
            Route("/api/change", self._with_daemon(self.change), methods=["POST"]),
            *(Route(path, self._with_daemon(answer)) for path, answer in answers.items()),
        ]

    async def page(self, _: Request) -> Response:
        """The page itself, which has no data."""
        return self._file("index.html")

    async def static(self, request: Request) -> Response:
        """A file of the page."""
        return self._file(request.path_params["name"])

    async def login(self, request: Request) -> Response:
        """Exchange the token of the printed address for the token of requests."""
        given = _object(await _body(request)).get("token")
        if not isinstance(given, str) or not self._viewer.printed.use(given):
            raise Unauthorized(
                "this address was used before, or it is that of another viewer: the terminal of"
                " `steno view` shows the address that works now"
            )
        return _json({"token": self._viewer.access.token})

    async def hello(self, _: Request) -> Response:
        """What the page shows on every view."""
        viewer = self._viewer
        known = {
            "root": viewer.root,
            "name": viewer.client.name,
            "may_write": viewer.may_write,
            "is_watching": viewer.is_watching,
        }
        return _json(viewer.redactor.value(known))

    async def change(self, request: Request) -> Response:
        """Make a change."""
        return _json(await self._changes.apply(await _body(request)))

    async def sessions(self, request: Request) -> Response:
        """The list; unchanged since the page asked, it is not sent again."""
        body = msgspec.json.encode(await self._queries.sessions())
        live = msgspec.json.encode(
            {"live": sorted(self._viewer.pulse.followed()), "away": self._viewer.pulse.is_away}
        )
        return _tagged(request, body[:-1] + b"," + live[1:])

    async def dashboard(self, request: Request) -> Response:
        """What runs now and what ran today; unchanged since the page asked, it is not sent."""
        return _tagged(request, msgspec.json.encode(await self._dashboard.get()))

    async def usage(self, request: Request) -> Response:
        """Tokens and cost of all sessions, as far as they were read."""
        given = request.query_params
        by = given.getlist("by") or ["program", "model"]
        if not set(by) <= set(BYS):
            raise BadRequest(f"{by!r} is no list of sums: use {', '.join(BYS)}")
        entries = await self._viewer.pulse.sessions()
        since = _day(given.get("since"))
        table = await self._viewer.spending.table(entries, cast("list[By]", by), since)
        return _json(self._viewer.redactor.fields(table, frozenset({"by"})))

    async def counts(self, request: Request) -> Response:
        """The token counts of the sessions in sight."""
        return _json(await self._queries.counts(request.query_params.getlist("session")))

    async def session(self, request: Request) -> Response:
        """The state of one session."""
        async with self._viewer.watches.page(_asked(request, "session")) as watch:
            return _json(await self._queries.session(watch))

    async def rows(self, request: Request) -> Response:
        """The rows of a range."""
        rows = await self._queries.rows(
            _asked(request, "session"),
            request.query_params.get("incarnation", ""),
            Position.parse(_asked(request, "first")),
            Position.parse(_asked(request, "until")),
            is_whole="whole" in request.query_params,
        )
        return _json({"rows": rows})

    async def image(self, request: Request) -> Response:
        """An image of a record, of a type that contains no program."""
        media, data = await self._queries.image(
            _asked(request, "session"),
            Position.parse(_asked(request, "at")),
            _number(_asked(request, "part")),
        )
        return Response(data, media_type=media, headers={"cache-control": "private, max-age=3600"})

    async def outline(self, request: Request) -> Response:
        """Checkpoints and token counts over all generations."""
        async with self._viewer.watches.page(_asked(request, "session")) as watch:
            return _json(await self._queries.outline(watch))

    async def tree(self, request: Request) -> Response:
        """The generations."""
        return _json(await self._queries.tree(_asked(request, "session")))

    async def end(self, request: Request) -> Response:
        """The end of a past generation."""
        generation = _number(_asked(request, "generation"))
        end = await self._queries.end_of(_asked(request, "session"), generation)
        return _json({"end": str(end)})

    async def compare(self, request: Request) -> Response:
        """The differences of two states."""
        found = await self._queries.compare(
            _asked(request, "session"),
            Position.parse(_asked(request, "left")),
            Position.parse(_asked(request, "right")),
        )
        return _json(found)

    async def wire(self, request: Request) -> Response:
        """The index of the wire file."""
        async with self._viewer.watches.page(_asked(request, "session")) as watch:
            await watch.indexed()
            return _json(watch.events.document())

    async def wire_events(self, request: Request) -> Response:
        """Events with their payloads."""
        session = _asked(request, "session")
        first, end = _number(_asked(request, "first")), _number(_asked(request, "end"))
        return _json({"events": await self._queries.events(session, first, end)})

    async def now(self, _: Request) -> Response:
        """The daemon's clients and counters."""
        return _json(await self._queries.now())

    async def doctor(self, _: Request) -> Response:
        """The doctor's findings."""
        findings = await anyio.to_thread.run_sync(self._viewer.diagnose)
        return _json(self._viewer.redactor.value({"findings": findings}))

    async def events(self, request: Request) -> Response:
        """The stream of one page."""
        given = request.query_params.get("after")
        state = None if not given else PageState.parse(given)
        viewer = self._viewer
        async with AsyncExitStack() as stack:
            browser = request.query_params.get("browser", "")
            is_held = stack.enter_context(self._places.place(browser))
            watch = await stack.enter_async_context(viewer.watches.page(_asked(request, "session")))
            feed = Feed(
                watch, viewer.pulse, state, viewer.closing, viewer.redactor, is_held=is_held
            )
            return _EventStream(feed.events(), stack.pop_all())

    async def export(self, request: Request) -> Response:
        """One state of a session as a file."""
        form = Format.asked(_asked(request, "format"))
        session = self._viewer.client.session(_asked(request, "session"))
        end = Position.parse(_asked(request, "until"))
        name = form.file_name(session.id, end)
        headers = {"content-disposition": f'attachment; filename="{name}"'}
        text = exported(session, end, form, self._viewer.redactor)
        first = await anext(text)

        async def pieces() -> AsyncGenerator[bytes]:
            yield first
            async for piece in text:
                yield piece

        return StreamingResponse(pieces(), media_type=form.media_type, headers=headers)

    async def search(self, request: Request) -> Response:
        """One page of the results of a search."""
        # Imported here: SQLite is needed by nothing else.
        from steno_search.hits import Search  # noqa: PLC0415
        from steno_search.query import Filters  # noqa: PLC0415

        given = request.query_params
        order = given.get("order", "relevance")
        if order not in {"relevance", "time"}:
            raise BadRequest(f"{order[:40]!r} is no order: use relevance or time")
        filters = Filters(
            role=given.get("role") or None,
            session=given.get("session", ""),
            since=_time(given.get("since")),
            until=_time(given.get("until")),
        )
        search = Search(_asked(request, "q"), filters, "time" if order == "time" else "relevance")
        offset = _number(given.get("offset", "0"))
        return _json(await self._viewer.search.find(search, offset))

    async def search_progress(self, _: Request) -> Response:
        """How far the index is; fills it."""
        progress = await self._viewer.search.progress()
        return _json(self._viewer.redactor.value(progress))

    def _with_daemon(self, answer: Answer) -> Answer:
        """An answer that fails at once while the daemon is away, and not after its deadline."""

        async def checked(request: Request) -> Response:
            if self._viewer.pulse.is_away:
                raise Unreachable("the daemon does not answer: `steno start` starts it")
            return await answer(request)

        return checked

    def _file(self, name: str) -> Response:
        found = self._files.get(name)
        if found is None:
            return Response("there is no such file", 404)
        data, kind = found
        # A newer version of steno may serve the next page.
        return Response(data, media_type=kind, headers={"cache-control": "no-cache"})


def make_app(viewer: Viewer) -> ASGIApp:
    """The application behind its guard."""
    routes = _Routes(viewer)

    async def refused(_: Request, error: Exception) -> Response:
        return _refusal(error, viewer.redactor)

    async def left(_: Request, __: Exception) -> Response:
        return Response(status_code=400)

    handlers = {StenoError: refused, ClientDisconnect: left}
    app = Starlette(routes=routes.all(), exception_handlers=handlers)
    return Guard(app, viewer.access)


def _refusal(error: Exception, redactor: Redactor) -> Response:
    """The answer to a request that failed."""
    assert isinstance(error, StenoError)
    status = next((code for kind, code in _STATUSES if isinstance(error, kind)), 500)
    code = None if error.code is None else str(error.code)
    message = redactor.text(error.message)
    document = {"code": code, "message": message, "outcome": str(error.outcome)}
    return _json({"error": document}, status)


def _tagged(request: Request, body: bytes) -> Response:
    """An answer that is not sent again while it is the same."""
    tag = f'"{blake2b(body, digest_size=12).hexdigest()}"'
    headers = {"etag": tag, "cache-control": "no-cache"}
    if request.headers.get("if-none-match") == tag:
        return Response(status_code=304, headers=headers)
    return Response(body, media_type="application/json", headers=headers)


def _json(document: object, status: int = 200) -> Response:
    return Response(msgspec.json.encode(document), status, media_type="application/json")


async def _body(request: Request) -> bytes:
    """The body of a request.

    Raises:
        TooLarge: it is longer than any request of the page.
    """
    data = bytearray()
    async for piece in request.stream():
        data += piece
        if len(data) > BODY_BYTES_MAX:
            raise TooLarge(f"the body is over {BODY_BYTES_MAX} bytes")
    return bytes(data)


def _object(data: bytes) -> dict[str, Any]:
    """The JSON object of a body.

    Raises:
        BadRequest: it is no JSON object.
    """
    try:
        return msgspec.json.decode(data, type=dict[str, Any])
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise BadRequest(f"the body is no JSON object: {error}") from None


def _asked(request: Request, name: str) -> str:
    value = request.query_params.get(name)
    if not value:
        raise BadRequest(f"the parameter {name!r} is missing")
    return value


def _number(text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) < 16):
        raise BadRequest(f"{text[:40]!r} is no number of a line, part or generation")
    return int(text)


def _time(text: str | None) -> float | None:
    """A Unix time in seconds; None if there is none."""
    if not text:
        return None
    try:
        at = float(text)
    except ValueError:
        at = math.nan
    if not math.isfinite(at):
        raise BadRequest(f"{text[:40]!r} is no time: give Unix seconds")
    return at


def _day(text: str | None) -> str | None:
    """A day such as 2026-11-21; None if there is none."""
    if not text:
        return None
    try:
        return date.fromisoformat(text).isoformat()
    except ValueError:
        raise BadRequest(f"{text[:40]!r} is no day: give one such as 2026-11-21") from None


def _static_files() -> dict[str, tuple[bytes, str]]:
    """The files of the page by name, read once."""
    folder = resources.files("steno_view") / "static"
    found: dict[str, tuple[bytes, str]] = {}
    for file in folder.iterdir():
        kind = _TYPES.get(f".{file.name.rpartition('.')[2]}")
        if kind is not None:
            found[file.name] = file.read_bytes(), kind
    return found
