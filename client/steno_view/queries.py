"""What the API reads through the client."""

import os
import time
from collections.abc import Sequence
from typing import Any
from weakref import WeakValueDictionary

import anyio
import anyio.to_thread
import msgspec

from steno import Client
from steno.values import Record
from steno_present import tree
from steno_present.contract import document
from steno_present.contract import origin as origin_document
from steno_present.repairs import repair
from steno_protocol.commands import Stats
from steno_protocol.errors import BadRequest, NotFound, StenoError
from steno_protocol.positions import Position
from steno_protocol.replies import RepairedFile, SessionEntry, StatsReport
from steno_protocol.timeline_entries import TimelineEntry
from steno_redact.records import masked_record
from steno_redact.redactor import Redactor
from steno_view.compare import differences
from steno_view.feed import PageState
from steno_view.kept_rows import KeptRows, Place
from steno_view.limits import (
    COUNTS_MAX,
    GENERATIONS_COUNTED_MAX,
    LOOK_BACK_MAX,
    NOW_AGE_S,
    ROWS_MAX,
)
from steno_view.origins import Origins
from steno_view.outline import Outline
from steno_view.pulse import Pulse, Shared
from steno_view.rows import Row, Rows, hole, image_of
from steno_view.watches import Watch, Watches

_EXACT = frozenset({"session", "head", "incarnation", "forked_from", "mount", "folder"})
"""Addresses, by which the page asks for more; an id of a session is never masked."""

_TOKENS = ("head", "token_count", "token_count_with_pending", "n_checkpoints")


class Queries:
    """Answers of the API; everything comes from the daemon through one client."""

    def __init__(
        self,
        client: Client,
        watches: Watches,
        pulse: Pulse,
        redactor: Redactor,
        origins: Origins,
    ) -> None:
        self._origins = origins
        self._client = client
        self._watches = watches
        self._pulse = pulse
        self._redactor = redactor
        self._rows = KeptRows()
        self._now = Shared(self._report, NOW_AGE_S)
        self._locks = WeakValueDictionary[str, anyio.Lock]()

    async def sessions(self) -> dict[str, Any]:
        """The sessions, those that a client follows, and whether the daemon is away."""
        entries = await self._pulse.sessions()
        return {"sessions": [self._redactor.fields(_listed(each), _EXACT) for each in entries]}

    async def counts(self, sessions: Sequence[str]) -> dict[str, Any]:
        """The token counts of some sessions; one that is gone is left out."""
        found: dict[str, Any] = {}
        for session in sessions[:COUNTS_MAX]:
            try:
                stat = await self._client.stat(session)
            except StenoError:
                continue
            found[session] = {name: getattr(stat, name) for name in _TOKENS}
        return {"counts": found}

    async def session(self, watch: Watch) -> dict[str, Any]:
        """The state of a session, and the rewrites that its present lines went through."""
        stat = await self._client.stat(watch.session)
        entries = await self._client.timeline(watch.session)
        return {
            **self._redactor.fields(document(stat), _EXACT),
            "origin": origin_document(await self._origins.get(watch.session)),
            "state": str(PageState.of(watch)),
            "cuts": self._redactor.value(_cuts(entries, watch.head.generation)),
            "repairs": self._redactor.value(list(map(repair, self._repaired(watch.session)))),
        }

    def _repaired(self, session: str) -> Sequence[RepairedFile]:
        return self._client.session(session).repaired

    async def rows(
        self, session: str, incarnation: str, first: Position, until: Position, *, is_whole: bool
    ) -> list[msgspec.Raw]:
        """The rows of the lines from `first` to `until`, one for each line.

        Raises:
            BadRequest: the positions are of two generations.
            NotFound: there is no such generation.
        """
        if first.generation != until.generation or first > until:
            raise BadRequest(f"{first} and {until} are no range of one generation")
        end = Position(first.generation, min(until.line, first.line + ROWS_MAX))
        if is_whole:
            rows = await self._render(session, first, end, is_whole=True)
            return _filled(rows, first, end)
        watch = self._watches.known(session)
        if watch is None or watch.incarnation != incarnation:
            # Any name can be asked for: rows are kept under the names that sessions have.
            return _filled(await self._render(session, first, end), first, end)
        place = Place(session, incarnation, first.generation)
        # The pages of a busy session ask for the same lines at once: the first one reads them.
        async with self._locks.setdefault(session, anyio.Lock()):
            rows = self._rows.take(place, first.line, end.line)
            start = Position(first.generation, first.line + len(rows))
            if start < end:
                made = await self._render(session, start, end)
                # Lines without a record at the end are not kept: the next record may become one.
                self._rows.add(place, start.line, made)
                rows += made
        return _filled(rows, first, end)

    async def _render(
        self, session: str, first: Position, end: Position, *, is_whole: bool = False
    ) -> list[msgspec.Raw]:
        start = Position(first.generation, max(0, first.line - LOOK_BACK_MAX))
        watch = self._watches.known(session)
        records = None if watch is None else watch.latest(start, end)
        if records is None:
            records = [each async for each in self._client.session(session).records(start, end)]
        return await anyio.to_thread.run_sync(_rows_of, records, first, is_whole, self._redactor)

    async def lines_of(self, session: str, end: Position) -> list[bytes]:
        """The lines of a past or present state."""
        start = Position(end.generation, 0)
        return [line async for line in self._client.session(session).lines(start, end)]

    async def image(self, session: str, at: Position, part: int) -> tuple[str, bytes]:
        """Media type and bytes of an image in a record.

        Raises:
            NotFound: there is none.
        """
        async for record in self._client.session(session).records(at, _after(at)):
            found = image_of(record.record, part)
            if found is not None:
                return found
        raise NotFound(f"there is no image in part {part} of the record at {at}", session=session)

    async def outline(self, watch: Watch) -> dict[str, Any]:
        """Checkpoints and token counts of the session over all its generations.

        Returns:
            `generations`, oldest first: each with its number, the first of its own lines, its
            marks, and the rewrite that it began with.
        """
        await watch.indexed()
        entries = await self._client.timeline(watch.session)
        made = tree.grow(entries, watch.head)
        numbers = sorted(made)[-GENERATIONS_COUNTED_MAX:]
        generations: list[dict[str, Any]] = []
        for number in numbers:
            entry = made[number].made
            kept = 0 if entry is None else entry.kept
            marks = await self._marks(watch, number, kept)
            begun = None if entry is None else self._note(entry)
            generations.append({"number": number, "first": kept, "marks": marks, "begun": begun})
        return {"generations": generations, "left_out": len(made) - len(numbers)}

    async def tree(self, session: str) -> dict[str, Any]:
        """The generations with their children, and everything that happened in them."""
        entries = await self._client.timeline(session)
        head = Position.parse((await self._client.stat(session)).head)
        made = tree.grow(entries, head)
        parents = {child.number: each.number for each in made.values() for child in each.children}
        return {
            "head": str(head),
            "generations": [
                {
                    "number": each.number,
                    "parent": parents.get(each.number),
                    "lines": each.lines,
                    "bytes": each.bytes,
                    "made": None if each.made is None else self._note(each.made),
                    "notes": [self._note(note) for note in each.notes],
                }
                for each in made.values()
            ],
        }

    async def compare(self, session: str, left: Position, right: Position) -> dict[str, Any]:
        """The parts in which two states are the same, and those in which they differ."""
        one, other = await self.lines_of(session, left), await self.lines_of(session, right)
        parts = await anyio.to_thread.run_sync(differences, one, other)
        return {"left": str(left), "right": str(right), "parts": parts}

    async def end_of(self, session: str, generation: int) -> Position:
        """The end of a generation.

        Raises:
            NotFound: there is no such generation.
        """
        stream = self._client.session(session).lines(Position(generation, 0))
        count = 0
        async for _ in stream:
            count += 1
        return Position(generation, count)

    async def events(self, session: str, first: int, end: int) -> list[dict[str, Any]]:
        """The events of some lines of the wire file, with their payloads."""
        until = Position(0, min(end, first + ROWS_MAX))
        stream = self._client.session(session).wire_records(Position(0, first), until)
        return [
            {
                "line": event.cursor.line,
                "type": self._redactor.text(event.type),
                "time": event.timestamp,
                "at": None if event.at is None else str(event.at),
                "payload": self._redactor.value(event.payload),
            }
            async for event in stream
        ]

    async def now(self) -> dict[str, Any]:
        """The daemon's clients and counters, not older than `NOW_AGE_S`."""
        return await self._now.get()

    async def _report(self) -> dict[str, Any]:
        status = await self._client.status()
        stats, _ = await self._client.request(Stats(), StatsReport)
        clients = await self._client.clients()
        shown = {
            "status": document(status),
            "stats": msgspec.to_builtins(stats),
            "clients": [
                {**document(each), "is_me": each.pid == os.getpid()} for each in clients.clients
            ],
        }
        return dict(self._redactor.value(shown))

    def _note(self, entry: TimelineEntry) -> dict[str, Any]:
        """A timeline entry with its words."""
        return dict(self._redactor.value(_described(entry)))

    async def _marks(self, watch: Watch, number: int, kept: int) -> list[list[Any]]:
        """The marks of a generation's own lines."""
        if number == watch.head.generation:
            return [mark for mark in watch.outline.documents() if mark[0] >= kept]
        if number not in watch.past:
            watch.past[number] = await self._past_outline(watch.session, number, kept)
        return [mark for mark in watch.past[number].documents() if mark[0] >= kept]

    async def _past_outline(self, session: str, number: int, kept: int) -> Outline:
        outline, at = Outline(), kept
        try:
            async for line in self._client.session(session).lines(Position(number, kept)):
                outline.apply(at, (line,))
                at += 1
        except NotFound:
            # `gc` has removed the generation; what is known of it is in the timeline.
            return outline
        return outline


def _filled(rows: list[msgspec.Raw], first: Position, end: Position) -> list[msgspec.Raw]:
    """The rows, and a hole for each line behind them."""
    return rows + [
        msgspec.Raw(msgspec.json.encode(hole(line)))
        for line in range(first.line + len(rows), end.line)
    ]


def _rows_of(
    records: Sequence[Record], first: Position, is_whole: bool, redactor: Redactor
) -> list[msgspec.Raw]:
    """One encoded row for each line of a range up to its last record; the others are holes."""
    making = Rows(time.monotonic, is_whole=is_whole)
    rows: dict[int, Row] = {}
    for exact in records:
        # Before any text is cut or coloured: half a secret is not recognised.
        record = masked_record(redactor, exact)
        if record.cursor < first:
            making.note(record.record)
        else:
            rows[record.cursor.line] = making.row(record)
    return [
        msgspec.Raw(msgspec.json.encode(rows.get(line) or hole(line)))
        for line in range(first.line, max(rows, default=first.line - 1) + 1)
    ]


def _listed(entry: SessionEntry) -> dict[str, Any]:
    mount, colon, _ = entry.session.partition(":")
    return {**document(entry), "mount": mount if colon else ""}


def _described(entry: TimelineEntry) -> dict[str, Any]:
    """A timeline entry with its words."""
    return {
        "kind": entry.kind,
        "generation": entry.generation,
        "kept": entry.kept,
        "at": entry.at,
        "by": entry.by,
        "text": tree.what(entry),
        "why": entry.why,
        "cut": tree.cut(entry),
        "details": entry.details,
        "inferred": entry.inferred,
    }


def _cuts(entries: Sequence[TimelineEntry], generation: int) -> list[dict[str, Any]]:
    """The rewrites whose cut is still visible between two lines of the present generation."""
    cuts: list[dict[str, Any]] = []
    for entry in entries:
        if entry.kind in tree.MAKES_GENERATION and entry.generation <= generation:
            cuts = [each for each in cuts if each["kept"] < entry.kept]
            cuts.append(_described(entry))
    return cuts


def _after(at: Position) -> Position:
    return Position(at.generation, at.line + 1)
