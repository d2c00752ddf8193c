"""The session service of Google's ADK (2.x), backed by steno.

    async with steno.connect() as client:
        runner = Runner(agent=agent, app_name="shop", session_service=StenoSessionService(client))

A session of ADK is a session of steno, `google-adk/<app>/<user>/<session>`. Its stream `events` has
its initial state as the first record, and then an event each, whose delta changes the state:

    {"session": "talk", "app": "shop", "user": "ada", "state": {"till": 3}, "time": 1764331200.5}
    {"event": {"author": "user", ...}, "delta": {"till": 4}}

State of the app and of a user are deltas, too, in the stream `state` of the sessions
`google-adk/<app>/_==state` and `google-adk/<app>/<user>/_==state`.
"""

from collections.abc import Mapping
from contextlib import suppress
from time import time
from typing import TYPE_CHECKING, Any, Final
from uuid import uuid4

import steno
from steno.adapters._batches import batches_of, behind
from steno.adapters._names import DIGEST, digest_of, segment_or_digest
from steno.adapters._optional import base_class, framework
from steno.parts import original

_SHARED: Final = f"{DIGEST}state"
"""The session with the state of an app or of a user: no name has this segment."""

_SEGMENT_CHARS_MAX: Final = 72
"""Characters of one of the three names, so that they fit into one id."""

State = dict[str, Any]
Session = Any
Event = Any

if TYPE_CHECKING:

    class _SessionService:
        """What the interface itself defines, for programs that are checked without ADK."""

        def _apply_temp_state(self, session: Session, event: Event) -> None: ...

        def _trim_temp_delta_state(self, event: Event) -> Event: ...

        def _commit_event_to_session(self, session: Session, event: Event) -> Event: ...

else:
    _SessionService = base_class("google.adk.sessions.base_session_service", "BaseSessionService")


class StenoSessionService(_SessionService):
    """A `BaseSessionService` whose events are on the disk when `append_event` returns.

    Any number of processes may use one session: an event is appended only behind the events that
    the session object has, and otherwise `StaleSessionError` asks for `get_session`. An event that
    is appended again, with its id, is stored once.

    Args:
        client: an open client; its owner closes it after the last use of the service.
        prefix: the first segment of the ids of the sessions.

    Raises:
        ModuleNotFoundError: ADK is not installed; the message names the extra.
    """

    def __init__(self, client: steno.Client, prefix: str = "google-adk") -> None:
        self._scopes = _adk("sessions._session_util").extract_json_safe_state_delta
        self._client = client
        self._prefix = prefix

    async def create_session(
        self, *, app_name: str, user_id: str, state: State | None = None,
        session_id: str | None = None,
    ) -> Session:  # fmt: skip
        """Create a session; without an id it gets a new one.

        Raises:
            AlreadyExistsError: there is a session with the id.
            StenoError: it could not be stored; see its `outcome`.
        """
        session_id = str(uuid4()) if session_id is None else session_id
        scopes = self._scopes(state or {})
        record = {
            "session": session_id, "app": app_name, "user": user_id,
            "state": scopes["session"], "time": time(),
        }  # fmt: skip
        place = self._place(app_name, user_id, session_id)
        [lines] = batches_of([record], place)
        shared = self._shared(app_name, user_id, scopes)
        opened = await self._client.open(place, follow=False)
        try:
            ack = await (await opened.stream("events")).append(lines, expect="0:0")
        except steno.Conflict as error:
            exists = _adk("errors.already_exists_error").AlreadyExistsError
            raise exists(f"Session with id {session_id} already exists.") from error
        await self._share(shared)
        return await self._loaded([record], ack.head, with_events=False)

    async def get_session(
        self, *, app_name: str, user_id: str, session_id: str, config: Any = None
    ) -> Session | None:
        """Return a session with its state and its events; None if there is none.

        The config chooses among the events; the state is that of all.
        """
        session = await self._read(self._place(app_name, user_id, session_id), with_events=True)
        if session is not None and config is not None:
            after, count = config.after_timestamp, config.num_recent_events
            recent = [each for each in session.events if not after or each.timestamp >= after]
            session.events = recent if count is None else recent[max(0, len(recent) - count) :]
        return session

    async def list_sessions(self, *, app_name: str, user_id: str | None = None) -> Any:
        """Return the sessions of a user, or of all, without events, the last changed one last."""
        start = f"{self._place(app_name)}/"
        whose = start if user_id is None else f"{self._place(app_name, user_id)}/"
        found = [
            await self._read(each.session, with_events=False)
            for each in await self._client.sessions(whose)
            if each.session.removeprefix(start).count("/") == 1
            and not each.session.endswith(f"/{_SHARED}")
        ]
        sessions = [each for each in found if each is not None]
        sessions.sort(key=lambda each: (each.last_update_time, each.user_id, each.id))
        return _adk("sessions.base_session_service").ListSessionsResponse(sessions=sessions)

    async def delete_session(self, *, app_name: str, user_id: str, session_id: str) -> None:
        """Move a session to the trash; nothing if it is missing."""
        with suppress(steno.NotFound):
            await self._client.delete(self._place(app_name, user_id, session_id))

    async def get_user_state(self, *, app_name: str, user_id: str) -> State:
        """Return the state of a user, without the prefix `user:`."""
        return await self._state(self._place(app_name, user_id))

    async def append_event(self, session: Session, event: Event) -> Event:
        """Store an event, then the state of the app and of the user; all is on the disk on return.

        Raises:
            StaleSessionError: the session has events that the object has not: get it again.
            SessionNotFoundError: there is no such session.
            Conflict: the session has another event with the id.
            StenoError: it could not be stored; see its `outcome`.
        """
        if event.partial:
            return event
        self._apply_temp_state(session, event)
        event = self._trim_temp_delta_state(event)
        scopes = self._scopes(event.actions.state_delta or {})
        dumped = event.model_dump(exclude_none=True, mode="json")
        place = self._place(session.app_name, session.user_id, session.id)
        [lines] = batches_of([{"event": dumped, "delta": scopes["session"]}], place)
        shared = self._shared(session.app_name, session.user_id, scopes)
        try:
            ack = await self._append(place, lines, session, event)
        except (steno.NotFound, steno.OutcomeUnknown) as error:
            # The daemon does not deny that a deleted session had the key of the event.
            if error.code != "not_found":
                raise
            missing = _adk("errors.session_not_found_error").SessionNotFoundError
            raise missing(f"Session {session.id} not found.") from error
        await self._share(shared, event.id)
        session.last_update_time = event.timestamp
        session._storage_update_marker = str(ack.head)
        if ack.duplicate and any(each.id == event.id for each in session.events):
            return event
        return self._commit_event_to_session(session, event)

    async def _append(
        self, place: str, lines: list[bytes], session: Session, event: Event
    ) -> steno.Ack:
        stream = await self._client.session(place).stream("events")
        expect = session._storage_update_marker or await self._head(stream, session)
        key = digest_of(event.id) if event.id else None
        try:
            return await stream.append(lines, key=key, expect=expect)
        except steno.Conflict as error:
            if error.head == expect:
                raise
            raise _adk("errors._stale_session_error").StaleSessionError(
                f"the session {session.id!r} has events that this object has not: get it again with"
                " get_session, and append the event to that one"
            ) from error

    async def _head(self, stream: steno.Stream, session: Session) -> str:
        """The end of the session that an object without a mark of this service stands for."""
        rows = await stream.last(1)
        stored: State = original(rows[0].record).get("event", {}) if rows else {}
        known = session.events[-1].id if session.events else None
        if stored.get("timestamp", 0.0) > session.last_update_time and stored.get("id") != known:
            return "0:0"
        # A position that no stream has, if the creation of the session was cut short.
        return str(behind(rows[0])) if rows else "0:1"

    async def _read(self, place: str, *, with_events: bool) -> Session | None:
        stream = await self._client.session(place).stream("events")
        try:
            rows = [row async for row in stream.records()]
        except steno.NotFound:
            return None
        records = [original(row.record) for row in rows]
        if not records or "session" not in records[0]:
            return None
        return await self._loaded(records, behind(rows[-1]), with_events=with_events)

    async def _loaded(
        self, records: list[State], head: steno.Position, *, with_events: bool
    ) -> Session:
        """The session of its records, with the state that it has together with all others."""
        first, *others = records
        state = dict(first["state"])
        for each in others:
            state.update(each["delta"])
        app, user = first["app"], first["user"]
        for prefix, place in (("app:", self._place(app)), ("user:", self._place(app, user))):
            shared = await self._state(place)
            state |= {f"{prefix}{name}": value for name, value in shared.items()}
        last = others[-1]["event"]["timestamp"] if others else first["time"]
        event = _adk("events.event").Event
        events = [event.model_validate(each["event"]) for each in others if with_events]
        session = _adk("sessions").Session(
            id=first["session"], app_name=app, user_id=user, state=state, events=events,
            last_update_time=last,
        )  # fmt: skip
        session._storage_update_marker = str(head)
        return session

    async def _state(self, place: str) -> State:
        stream = await self._client.session(f"{place}/{_SHARED}").stream("state")
        state: State = {}
        with suppress(steno.NotFound):
            async for row in stream.records():
                state |= original(row.record)["delta"]
        return state

    def _shared(self, app: str, user: str, scopes: Mapping[str, State]) -> dict[str, list[bytes]]:
        """The deltas of an app and of a user, by their sessions."""
        places = {"app": self._place(app), "user": self._place(app, user)}
        return {
            place: batches_of([{"delta": scopes[scope]}], place)[0]
            for scope, place in places.items()
            if scopes[scope]
        }

    async def _share(self, deltas: Mapping[str, list[bytes]], event: str = "") -> None:
        for place, lines in deltas.items():
            session = await self._client.open(f"{place}/{_SHARED}", follow=False)
            key = digest_of(place, event) if event else None
            await (await session.stream("state")).append(lines, key=key)

    def _place(self, *names: str) -> str:
        segments = [segment_or_digest(each, _SEGMENT_CHARS_MAX) for each in names]
        return "/".join([self._prefix, *segments])


def _adk(module: str) -> Any:
    return framework(f"google.adk.{module}", "google-adk")
