"""The server-sent events of one page.

    event: rewrite
    data: {"incarnation":"3f2a90c1d4e5b6a7","generation":2,"kept":118,"why":"revert_to"}

    id: 3f2a90c1d4e5b6a7/2:120/0:431/3
    event: heads
    data: {"head":"2:120","wire":"0:431"}

The id is the state that a page has after an event: incarnation, position in the context, position
in the wire file, changes of D-Mails. A page that lost the stream names the last one in `after`, and
continues there. A stream that is not held ends after the events that are due, and the page opens it
again after `retry`.

heads     how far the files are durable: context, wire
rewrite   a rewrite; the lines from `kept` on are gone from the present generation
mail      a D-Mail was sent, delivered or expired
gone      the session cannot be followed any longer
daemon    {"away": bool}
"""

import re
from collections.abc import AsyncGenerator
from dataclasses import dataclass
from typing import Final

import anyio
import msgspec

from steno_protocol.errors import BadRequest
from steno_protocol.positions import Position
from steno_redact.redactor import Redactor
from steno_view.limits import (
    FEED_COMMENT_S,
    FEED_FULL_RATE_MAX,
    FEED_INTERVAL_S,
    STREAM_RETRY_MS,
)
from steno_view.pulse import Pulse
from steno_view.watches import Watch

_encode = msgspec.json.Encoder().encode
_STATE: Final = re.compile(r"([^/]*)/([^/]+)/([^/]+)/([0-9]{1,15})")


@dataclass(frozen=True, slots=True)
class PageState:
    """What a page has: the `id` of its last event."""

    incarnation: str
    head: Position
    wire_head: Position
    mails: int

    @classmethod
    def parse(cls, text: str) -> "PageState":
        """Parse an id.

        Raises:
            BadRequest: it is none.
        """
        found = _STATE.fullmatch(text)
        if found is None:
            raise BadRequest(f"{text[:80]!r} is no state of a page: reload it")
        incarnation, head, wire_head, mails = found.groups()
        return cls(incarnation, Position.parse(head), Position.parse(wire_head), int(mails))

    @classmethod
    def of(cls, watch: Watch) -> "PageState":
        """The present state of a session."""
        return cls(watch.incarnation, watch.head, watch.wire_head, watch.mails)

    def __str__(self) -> str:
        return f"{self.incarnation}/{self.head}/{self.wire_head}/{self.mails}"


class Feed:
    """The events of one page.

    Args:
        watch: the session.
        pulse: the state of the daemon.
        state: what the page has; None for the present state.
        closing: set when the viewer ends.
        redactor: masks secrets.
        is_held: the stream stays open.
    """

    def __init__(
        self,
        watch: Watch,
        pulse: Pulse,
        state: PageState | None,
        closing: anyio.Event,
        redactor: Redactor,
        *,
        is_held: bool,
    ) -> None:
        self._watch = watch
        self._pulse = pulse
        self._state = state
        self._is_away: bool | None = None
        self._closing = closing
        self._redactor = redactor
        self._is_held = is_held

    async def events(self) -> AsyncGenerator[bytes]:
        """The text of the stream, until the viewer ends or the session is gone."""
        yield f"retry: {STREAM_RETRY_MS}\n\n".encode()
        while not self._closing.is_set():
            text = self._news()
            if text:
                yield text
            if self._watch.error is not None or not self._is_held:
                return
            # Events of a busy session are joined.
            await anyio.sleep(FEED_INTERVAL_S * max(1.0, self._watch.pages / FEED_FULL_RATE_MAX))
            if not self._has_news() and not await self._wait():
                yield b": here\n\n"

    def _has_news(self) -> bool:
        return (
            self._state != PageState.of(self._watch)
            or self._is_away != self._pulse.is_away
            or self._watch.error is not None
        )

    async def _wait(self) -> bool:
        """Wait for a change; returns whether there was one before a comment is due."""
        # Taken before the tasks run: a change until then would set events that nobody waits for.
        events = self._watch.change, self._pulse.change, self._closing
        with anyio.move_on_after(FEED_COMMENT_S):
            async with anyio.create_task_group() as tasks:
                for event in events:
                    tasks.start_soon(self._until, event, tasks.cancel_scope)
            return True
        return False

    @staticmethod
    async def _until(event: anyio.Event, scope: anyio.CancelScope) -> None:
        await event.wait()
        scope.cancel()

    def _news(self) -> bytes:
        """The events between the state of the page and the present one."""
        watch, present = self._watch, PageState.of(self._watch)
        lines: list[bytes] = []
        before = self._state
        if before is not None:
            for each in watch.rewrites_since(before.incarnation, before.head):
                data = {"incarnation": watch.incarnation, "generation": each.generation}
                lines.append(_event("rewrite", {**data, "kept": each.kept, "why": each.why}))
        if before is not None and before.mails != present.mails:
            lines.append(_event("mail", {}))
        if before != present:
            heads = {"head": str(present.head), "wire": str(present.wire_head)}
            lines.append(_event("heads", heads, str(present)))
        if self._is_away != self._pulse.is_away:
            self._is_away = self._pulse.is_away
            lines.append(_event("daemon", {"away": self._is_away}))
        if watch.error is not None:
            lines.append(_event("gone", {"why": self._redactor.text(watch.error.message)}))
        self._state = present
        return b"".join(lines)


def _event(name: str, data: object, identity: str | None = None) -> bytes:
    head = f"id: {identity}\n" if identity is not None else ""
    return f"{head}event: {name}\ndata: ".encode() + _encode(data) + b"\n\n"
