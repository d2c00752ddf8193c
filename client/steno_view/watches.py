"""Sessions that pages follow, each with one subscription for all its pages.

A watch knows how far the session's files are durable, and its rewrites. Its pages get positions
from it and read the records in sight themselves, so that a page costs the daemon no more than the
rows in sight.
"""

import math
from collections import deque
from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from typing import Final, assert_never

import anyio
import anyio.abc

from steno import Client, Session
from steno.values import DmailEvent, Live, Record, RecordsEvent, Reset
from steno_protocol.errors import StenoError
from steno_protocol.positions import Position
from steno_redact.redactor import Redactor
from steno_view.limits import (
    PACE_S,
    RESETS_KEPT_MAX,
    TAIL_BYTES_MAX,
    WATCH_LINGER_S,
    WATCHES_MAX,
)
from steno_view.outline import Outline
from steno_view.turns import EventIndex

_START: Final = Position(0, 0)


@dataclass(frozen=True, slots=True)
class Rewrite:
    """A rewrite that a watch has seen.

    Attributes:
        before: incarnation and generation that it replaced.
        generation: the new generation.
        kept: the number of first lines that stay.
        why: its kind.
    """

    before: tuple[str, int]
    generation: int
    kept: int
    why: str


@dataclass(slots=True)
class Watch:
    """The state of one followed session.

    Attributes:
        session: its id.
        incarnation: its incarnation.
        head: the durable end of its context.
        wire_head: the durable end of its wire file.
        mails: how many changes of D-Mails it has seen.
        rewrites: the latest rewrites, oldest first.
        outline: checkpoints and token counts of the present generation.
        past: those of past generations, from the first line that is not in the generation before.
        events: the index of the wire file.
        tail: the last lines of the context, as they came.
        error: why it cannot be followed any longer.
        pages: how many pages follow it.
    """

    session: str
    incarnation: str = ""
    head: Position = _START
    wire_head: Position = _START
    mails: int = 0
    rewrites: list[Rewrite] = field(default_factory=list[Rewrite])
    outline: Outline = field(default_factory=Outline)
    past: dict[int, Outline] = field(default_factory=dict[int, Outline])
    events: EventIndex = field(default_factory=EventIndex)
    tail: deque[RecordsEvent] = field(default_factory=deque[RecordsEvent])
    error: StenoError | None = None
    pages: int = 0
    _is_begun: bool = False
    _changed: anyio.Event = field(default_factory=anyio.Event)

    @property
    def change(self) -> anyio.Event:
        """The event of the next change."""
        return self._changed

    async def begun(self) -> None:
        """Wait until the heads are known.

        Raises:
            StenoError: the session cannot be followed.
        """
        while not self._is_begun and self.error is None:
            await self._changed.wait()
        self.check()

    async def indexed(self) -> None:
        """Wait until the outline and the index contain what the heads say now.

        Raises:
            StenoError: the session cannot be followed.
        """
        while self.outline.end < self.head.line or self.events.end < self.wire_head.line:
            self.check()
            await self._changed.wait()

    def check(self) -> None:
        """Raise the error that ended the watch, if any."""
        if self.error is not None:
            raise self.error

    def rewrites_since(self, incarnation: str, position: Position) -> list[Rewrite]:
        """The rewrites between a state that a page has and the present one.

        A page that slept too long gets one that keeps nothing.
        """
        before = (incarnation, position.generation)
        if before == (self.incarnation, self.head.generation):
            return []
        for number, each in enumerate(self.rewrites):
            if each.before == before:
                return self.rewrites[number:]
        return [Rewrite(before, self.head.generation, 0, "away")]

    def latest(self, start: Position, end: Position) -> list[Record] | None:
        """The records of a range that has just been written; None if they must be read."""
        if not self.tail or start < self.tail[0].first or end > self.tail[-1].next:
            return None
        parts = [each for each in self.tail if each.next > start and each.first < end]
        return [
            record for part in parts for record in part.records() if start <= record.cursor < end
        ]

    async def follow(self, session: Session) -> None:
        """Follow the session until it is gone."""
        try:
            async with session.subscribe("now", records="both", pace=PACE_S) as events:
                async for event in events:
                    self.incarnation = self.incarnation or events.incarnation or ""
                    await self._take(session, event)
                    self._notify()
        except StenoError as error:
            self.error = error
        self._notify()

    async def _take(
        self, session: Session, event: RecordsEvent | Live | Reset | DmailEvent
    ) -> None:
        match event:
            case Live() if event.file == "context":
                self.head = event.head
                self._begin()
                await self._read_outline(session)
            case Live():
                self.wire_head = event.head
                self._begin()
                await self._read_events(session)
            case RecordsEvent() if event.file == "context":
                self.head = max(self.head, event.next)
                self.outline.apply(event.first.line, event.lines())
                self._keep(event)
            case RecordsEvent():
                self.wire_head = max(self.wire_head, event.next)
                self._add_events(event)
            case Reset():
                self._follow_reset(event)
            case DmailEvent():
                self.mails += 1
            case _:
                assert_never(event)

    def _begin(self) -> None:
        self._is_begun = True
        # Before the files are read: pages need the heads first.
        self._notify()

    async def _read_outline(self, session: Session) -> None:
        """Take in the lines from before the subscription, the file's own where it can be read."""
        number = 0
        async for line in session.lines(Position(self.head.generation, 0), self.head):
            self.outline.apply(number, (line,))
            number += 1
        self.outline.end = max(self.outline.end, self.head.line)

    async def _read_events(self, session: Session) -> None:
        async for event in session.wire_records(Position(0, 0), self.wire_head):
            self.events.add(event)
        self.events.end = max(self.events.end, self.wire_head.line)

    def _keep(self, event: RecordsEvent) -> None:
        """Keep the lines for the pages, which ask for them next."""
        if self.tail and self.tail[-1].next != event.first:
            self.tail.clear()
        self.tail.append(event)
        while sum(len(each.block) for each in self.tail) > TAIL_BYTES_MAX:
            self.tail.popleft()

    def _add_events(self, event: RecordsEvent) -> None:
        for record in event.wire_records():
            self.events.add(record)
        self.events.end = max(self.events.end, event.next.line)

    def _follow_reset(self, event: Reset) -> None:
        is_new = event.incarnation != self.incarnation
        if event.file == "wire":
            self.events.cut(event.kept)
            self.wire_head = event.head
            return
        self.tail.clear()
        before = (self.incarnation, self.head.generation)
        self.rewrites.append(Rewrite(before, event.generation, event.kept, event.why))
        del self.rewrites[:-RESETS_KEPT_MAX]
        rest = self.outline.cut(event.kept)
        if is_new:
            self.past.clear()
        else:
            self.past.setdefault(before[1], rest)
        self.incarnation = event.incarnation
        # Its lines are on the disk already, although their events still have to arrive.
        self.head = event.head

    def _notify(self) -> None:
        changed, self._changed = self._changed, anyio.Event()
        changed.set()


class Watches:
    """The watches of one viewer."""

    def __init__(self, client: Client, tasks: anyio.abc.TaskGroup, redactor: Redactor) -> None:
        self._client = client
        self._tasks = tasks
        self._redactor = redactor
        self._watches: dict[str, tuple[Watch, anyio.CancelScope]] = {}

    @asynccontextmanager
    async def page(self, session: str) -> AsyncGenerator[Watch]:
        """The watch of a session, for as long as a page needs it; it begins with the first one.

        Raises:
            StenoError: the session cannot be followed.
        """
        watch, scope = self._watch(session)
        with _used(watch, scope):
            await watch.begun()
            yield watch

    def known(self, session: str) -> Watch | None:
        """The watch of a session that a page follows."""
        found = self._watches.get(session)
        return None if found is None else found[0]

    def _watch(self, session: str) -> tuple[Watch, anyio.CancelScope]:
        found = self._watches.get(session)
        # A watch at its deadline stays here until its task runs again.
        if found is not None and not found[1].cancel_called:
            return found
        self._make_room()
        watch = Watch(session, events=EventIndex(mask=self._redactor.text))
        scope = anyio.CancelScope()
        self._watches[session] = watch, scope
        self._tasks.start_soon(self._follow, watch, scope)
        return watch, scope

    async def _follow(self, watch: Watch, scope: anyio.CancelScope) -> None:
        with scope:
            await watch.follow(self._client.session(watch.session))
        self._end(watch)

    def _make_room(self) -> None:
        unused = [watch for watch, _ in self._watches.values() if not watch.pages]
        if len(self._watches) >= WATCHES_MAX and unused:
            self._end(unused[0])

    def _end(self, watch: Watch) -> None:
        found = self._watches.get(watch.session)
        if found is not None and found[0] is watch:
            del self._watches[watch.session]
            found[1].cancel()


@contextmanager
def _used(watch: Watch, scope: anyio.CancelScope) -> Generator[None]:
    """Count a page of a watch, whose task ends a while after its last page.

    The task has a deadline instead of a second task that waits: a page that is cancelled, or closed
    by the garbage collector, can set it.
    """
    watch.pages += 1
    scope.deadline = math.inf
    try:
        yield
    finally:
        watch.pages -= 1
        if not watch.pages:
            scope.deadline = anyio.current_time() + WATCH_LINGER_S
