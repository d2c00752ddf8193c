"""Reads what is new in the sessions into the index.

One pass compares the list of the sessions with the index. It reads only sessions whose size or time
has changed, and of those only the lines that the index does not have: the timeline says which lines
a rewrite has kept, and the last known line is read again and compared.
"""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace

from msgspec import structs

from steno import BlockingClient
from steno.values import Record, decode_line
from steno_protocol.commands import Read
from steno_protocol.errors import BadRequest, NotFound, OutcomeUnknown, StenoError, Unreachable
from steno_protocol.positions import Position
from steno_protocol.replies import Lines, SessionEntry, SessionStat
from steno_protocol.timeline_entries import REWRITES, ROTATED
from steno_search.folder import Filling
from steno_search.index import Damaged, Entry, Index, Indexed, Part, Place, crc_of
from steno_search.limits import (
    BATCH_BYTES,
    BATCH_RECORDS_MAX,
    PART_CHARS_MAX,
    PART_RECORDS_MAX,
    SETTLED_S,
    TEXT_CHARS_MAX,
)

_NOTHING = Indexed("", 0, 0, -1, 0.0)


@dataclass(frozen=True, slots=True)
class Texts:
    """What a record says.

    Attributes:
        role: its role.
        text: its searchable text.
        at: Unix time in seconds of its request; None if it is unknown.
    """

    role: str
    text: str
    at: float | None


Reading = Callable[[Record], Texts]
"""Reads the searchable text of a record."""


@dataclass(slots=True)
class Pass:
    """The progress of a pass; written by its thread, read by any.

    Attributes:
        bytes_total: bytes of the changed sessions, as far as they are unread.
        bytes_done: how many of them were read.
        records: how many records were taken in.
        failed: sessions that could not be read, with their errors.
        stopped: set to end the pass after its present batch.
    """

    bytes_total: int = 0
    bytes_done: int = 0
    records: int = 0
    failed: list[StenoError] = field(default_factory=list[StenoError])
    stopped: threading.Event = field(default_factory=threading.Event)


def fill(
    client: BlockingClient,
    filling: Filling,
    read: Reading,
    run: Pass,
    advanced: Callable[[], None] = lambda: None,
    *,
    anew: bool = False,
) -> None:
    """Bring the index up to date; the sessions that changed last are read first.

    Args:
        client: a client of the daemon.
        filling: the index, with its lock.
        read: reads the text of a record.
        run: the progress.
        advanced: called after each batch.
        anew: begin an empty index: a search found the present one damaged.

    Raises:
        Unreachable: the daemon is away; what was read so far is in the index.
        StorageFailed: the disk of the index is full.
    """
    if anew:
        filling.make_anew()
    try:
        _fill(client, filling, read, run, advanced)
    except Damaged:
        # Once: a fresh index that is damaged again is a matter of the disk.
        filling.make_anew()
        run.bytes_done = run.bytes_total = run.records = 0
        _fill(client, filling, read, run, advanced)


def _fill(
    client: BlockingClient,
    filling: Filling,
    read: Reading,
    run: Pass,
    advanced: Callable[[], None],
) -> None:
    changed = _changed(client, filling.index)
    if filling.index.is_worn:
        filling.make_anew()
        changed = _changed(client, filling.index)
    index = filling.index
    run.bytes_total = sum(_unread(entry, known) for entry, known in changed)
    batch = _Batch(index, run, advanced)
    for entry, known in changed:
        done = run.bytes_done
        try:
            for part, size in _parts(client, index, entry, known or _NOTHING, read):
                run.bytes_done += size
                batch.add(part)
                if run.stopped.is_set():
                    return
        except NotFound:
            # It was deleted meanwhile; the next pass forgets it.
            pass
        except (Unreachable, OutcomeUnknown):
            raise
        except StenoError as error:
            run.failed.append(error)
        # What it was taken for, whatever was read of it.
        run.bytes_done = done + _unread(entry, known)
    batch.write()
    index.note_complete()


def _changed(client: BlockingClient, index: Index) -> list[tuple[SessionEntry, Indexed | None]]:
    """The sessions that changed, latest change first; those that are gone are forgotten."""
    entries = client.sessions()
    known = index.sessions()
    gone = known.keys() - {entry.session for entry in entries}
    if gone:
        index.forget(gone)
    entries.sort(key=lambda entry: entry.modified_at, reverse=True)
    pairs = [(entry, known.get(entry.session)) for entry in entries]
    return [(entry, before) for entry, before in pairs if _has_changed(entry, before)]


def _has_changed(entry: SessionEntry, known: Indexed | None) -> bool:
    return known is None or (entry.bytes, entry.modified_at) != (known.bytes, known.modified_at)


def _unread(entry: SessionEntry, known: Indexed | None) -> int:
    """About how many bytes of a session are to be read."""
    return entry.bytes if known is None or known.bytes > entry.bytes else entry.bytes - known.bytes


class _Batch:
    """Parts that are written together."""

    def __init__(self, index: Index, run: Pass, advanced: Callable[[], None]) -> None:
        self._index = index
        self._run = run
        self._advanced = advanced
        self._parts: list[Part] = []
        self._chars = 0
        self._records = 0

    def add(self, part: Part) -> None:
        self._parts.append(part)
        self._chars += sum(len(entry.text) for entry in part.entries)
        self._records += len(part.entries) + 1
        if self._chars >= BATCH_BYTES or self._records >= BATCH_RECORDS_MAX:
            self.write()

    def write(self) -> None:
        if self._parts:
            self._index.add(self._parts)
            self._run.records += sum(len(part.entries) for part in self._parts)
        self._parts, self._chars, self._records = [], 0, 0
        self._advanced()


def _parts(
    client: BlockingClient, index: Index, entry: SessionEntry, before: Indexed, read: Reading
) -> Iterator[tuple[Part, int]]:
    """The new lines of a session, in parts of about `PART_CHARS_MAX`, each with its bytes."""
    stat = client.stat(entry.session)
    head = Position.parse(stat.head)
    kept = _kept(client, stat, before)
    if not _is_same(client, index.last_before(entry.session, kept), head):
        kept = 0
    # A change right after the list was made might not change the time that the list shows.
    is_settled = entry.modified_at < time.time() - SETTLED_S
    whole = Indexed(
        stat.incarnation, head.generation, head.line,
        entry.bytes, entry.modified_at if is_settled else 0.0,
    )  # fmt: skip
    entries: list[Entry] = []
    size, chars, at = 0, 0, entry.modified_at
    offset, number = _offset(client, entry.session, Position(head.generation, kept)), kept
    for record in client.session(entry.session).records(Position(head.generation, kept), head):
        says = read(record)
        size += len(record.raw)
        if record.cursor.line != number:
            # Lines that are no records were passed over; the rest is found by counting lines.
            offset = None
        # A record without a time was written when the one before it was.
        at = at if says.at is None else says.at
        if says.text:
            line, text = record.cursor.line, says.text[:TEXT_CHARS_MAX]
            entries.append(Entry(line, offset, crc_of(record.raw), says.role, at, text))
            chars += len(text)
        offset, number = (
            None if offset is None else offset + len(record.raw),
            record.cursor.line + 1,
        )
        if chars >= PART_CHARS_MAX or len(entries) >= PART_RECORDS_MAX:
            so_far = replace(whole, lines=number, modified_at=0.0)
            yield Part(entry.session, kept, entries, so_far), size
            kept, entries, size, chars = number, [], 0, 0
    yield Part(entry.session, kept, entries, whole), size


def _kept(client: BlockingClient, stat: SessionStat, before: Indexed) -> int:
    """How many of the known lines a session still has."""
    head = Position.parse(stat.head)
    if stat.incarnation != before.incarnation or head.generation < before.generation:
        return 0
    kept = min(before.lines, head.line)
    if head.generation == before.generation:
        return kept if kept == before.lines else 0
    cuts = {
        each.generation: each.kept
        for each in client.timeline(stat.session)
        if each.generation > before.generation and (each.kind in REWRITES or each.kind == ROTATED)
    }
    numbers = range(before.generation + 1, head.generation + 1)
    return min(kept, *(cuts.get(number, 0) for number in numbers))


def _is_same(client: BlockingClient, last: Place | None, head: Position) -> bool:
    """Whether the last known record before the new lines is still there."""
    return last is None or read_line(client, last, head.generation) is not None


def _offset(client: BlockingClient, session: str, at: Position) -> int | None:
    """The first byte of a line; None if there is no such line, or one that no message can hold."""
    if at.line == 0:
        return 0
    reply, line = client.request(Read(session=session, after=str(at), bytes_max=1), Lines)
    return reply.offset - len(line) if line and reply.first == str(at) else None


def read_line(client: BlockingClient, place: Place, generation: int) -> Record | None:
    """The record at a place in a generation; None if it is not the indexed one.

    Raises:
        NotFound: there is no such session or generation.
    """
    return read_place(client, place, generation)[0]


def read_place(client: BlockingClient, place: Place, generation: int) -> tuple[Record | None, bool]:
    """As `read_line`, with whether the daemon says that the generation is the present one.

    Raises:
        NotFound: there is no such session or generation.
    """
    cursor = Position(generation, place.line)
    wanted = Read(
        session=place.session, after=str(cursor), until=str(Position(generation, place.line + 1))
    )
    if place.offset is not None:
        # The daemon refuses an offset inside a line, as after a change by another program.
        with suppress(BadRequest):
            reply, line = client.request(structs.replace(wanted, offset=place.offset), Lines)
            if crc_of(line) == place.crc:
                return decode_line(cursor, line), reply.present
    reply, line = client.request(wanted, Lines)
    return (decode_line(cursor, line) if crc_of(line) == place.crc else None), reply.present
