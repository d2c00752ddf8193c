"""Streams of operations on checkpoints, read from their end.

An operation is one atomic batch: a line with the operation and its contents, or lines with parts of
large contents before the line of the operation. Nobody locks the stream, and most operations are
appended without reading it.

A reader wants the greatest id. Those that LangGraph draws ascend, but clocks differ, and a program
may choose its ids. Operations therefore name a high-water mark:

    {"checkpoint": "1f0a", "ns": "", ..., "id": "8c1f", "mark": "03aa"}

No operation before the one with the random `id` 03aa has a greater checkpoint id than 03aa has. A
reader that looks for a greater one and has read back to 03aa needs no earlier line. With ids that
ascend that is one of the last operations, with others it lies further back. A writer names the mark
that its last reading found, and reads anew after some operations: a mark stays one, whatever is
appended later. One that outlives its stream is an operation that the next stream lacks, and is
never met: without marks a reader reads everything.
"""

from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from secrets import token_hex
from typing import TYPE_CHECKING, Any, Final

import msgspec

import steno
from steno.adapters._either_client import ready
from steno_protocol.errors import Corrupt, NotFound

if TYPE_CHECKING:
    from steno import BlockingStream, Stream

_USES_MAX: Final = 8
"""Operations that name one mark: a reader reads about as many more than it needs."""

_MARKS_MAX: Final = 1024
"""Streams whose marks are kept; others are read again."""

_WINDOW_LINES: Final = 4
"""Lines that a reading begins with; each further window has twice as many."""

_WINDOW_LINES_MAX: Final = 128
"""Lines of the largest window, which is in memory: the contents of a checkpoint may be large."""

_PART_CHARS_MAX: Final = 2 * 1024 * 1024
"""Characters of contents in one line. A character takes 4 bytes at most, or 2 if it is quoted, so
that a line has at most 8 MiB of the 16 MiB of a record."""

Operation = dict[str, Any]
"""A record: what happens to `checkpoint` in the namespace `ns`.

With `task` it adds writes, and else it stores the checkpoint. With `through` it names none: it
removes the checkpoints in its contents, as the operation with that `id` and all before it left
them.
"""


async def records_of(
    stream: "Stream | BlockingStream",
    after: steno.Position | None = None,
    until: steno.Position | None = None,
) -> AsyncIterator[steno.StreamRecord]:
    """Yield the records between two positions, through an async client or a blocking one."""
    records = stream.records(after, until)
    if isinstance(records, AsyncIterator):
        async for record in records:
            yield record
    else:
        for record in records:
            yield record


@dataclass(frozen=True, slots=True)
class Row:
    """An operation in a stream.

    Attributes:
        line: its last line.
        parts: the lines before that one.
    """

    line: steno.StreamRecord
    parts: list[steno.StreamRecord]

    @property
    def operation(self) -> Operation:
        """The record of its last line."""
        return self.line.record

    @property
    def span(self) -> tuple[int, int]:
        """Its first line, and the one behind it."""
        end = self.line.cursor.line + 1
        return end - 1 - self.operation.get("parts", 0), end

    @property
    def id(self) -> str:
        """The random id of the operation."""
        text: str = self.operation["id"]
        return text

    @property
    def checkpoint(self) -> str:
        """The id of its checkpoint, empty for a removal."""
        name: str = self.operation.get("checkpoint", "")
        return name

    @property
    def contents(self) -> dict[str, Any]:
        """What the operation stores.

        Raises:
            Corrupt: a line of it is damaged.
        """
        contents: dict[str, Any] | None = self.operation.get("contents")
        if contents is not None:
            return contents
        if len(self.parts) != self.operation["parts"]:
            raise Corrupt(
                f"the contents of the checkpoint {self.checkpoint!r} before {self.line.cursor} of"
                " its stream are damaged: steno verify names the session and the line, and an"
                " earlier checkpoint of the thread can be used"
            )
        found: dict[str, Any] = msgspec.json.decode("".join(p.record["part"] for p in self.parts))
        return found


@dataclass(slots=True)
class Entry:
    """All that a stream has about one checkpoint.

    Attributes:
        ns: its namespace.
        name: its id.
        put: the operation that stored it last; None if it was never stored.
        writes: the operations that added writes to it, the last one first.
    """

    ns: str
    name: str
    put: Row | None = None
    writes: list[Row] = field(default_factory=list[Row])

    @property
    def parent(self) -> str | None:
        """The id of its parent."""
        return None if self.put is None else self.put.operation["parent"]

    @property
    def contents(self) -> dict[str, Any]:
        """What was stored: `metadata`, `values` of channels, and the `rest` of the checkpoint."""
        return {} if self.put is None else self.put.contents


@dataclass(frozen=True, slots=True)
class CheckpointLog:
    """The operations on the checkpoints of some namespaces of one thread.

    Attributes:
        marks: the marks of this and other streams.
        client: an async client or a blocking one.
        session: the session of the thread.
        stream: the name of the stream.
    """

    marks: "Marks"
    client: "steno.Client | steno.BlockingClient"
    session: str
    stream: str

    async def add(self, operation: Operation, contents: dict[str, Any]) -> steno.Ack:
        """Append an operation as a whole.

        Raises:
            NotFound: there is no such session.
        """
        while (mark := self.marks.use(self)) is None:
            async for _, bound in self.bounded_rows():
                if bound is not None:
                    break
        stream = await self._opened()
        lines = _lines({**operation, "id": token_hex(8), "mark": mark}, contents)
        ack: steno.Ack = await ready(stream.append(lines))
        return ack

    async def bounded_rows(self) -> AsyncIterator[tuple[Row, str | None]]:
        """Yield the operations, the last one first, and keep a mark for operations that follow.

        Yields:
            An operation, and an id that this and all earlier operations do not exceed; None if that
            is unknown.
        """
        greatest = mark = ""
        bound: str | None = None
        named = set[str]()
        async for row in self._rows():
            if not mark or row.checkpoint > greatest:
                greatest, mark = row.checkpoint, row.id
            if row.id in named:
                if bound is None:
                    self.marks.keep(self, mark)
                bound = row.checkpoint
            named.add(row.operation.get("mark", ""))
            yield row, bound
        if bound is None:
            self.marks.keep(self, mark)

    async def _rows(self) -> AsyncIterator[Row]:
        """Yield the operations, the last one first; none if the session is missing."""
        stream = await self._opened()
        window = _WINDOW_LINES
        try:
            pending: list[steno.StreamRecord] = await ready(stream.last(window))
            low = pending[0].cursor if pending else await ready(stream.head())
        except NotFound:
            return
        while True:
            while (row := _pop_row(pending, low.line)) is not None:
                yield row
            if low.line == 0:
                return
            window = min(2 * window, _WINDOW_LINES_MAX)
            start = steno.Position(low.generation, max(0, low.line - window))
            pending = [each async for each in records_of(stream, start, low)] + pending
            low = start

    async def _opened(self) -> "Stream | BlockingStream":
        found: Stream | BlockingStream = await ready(
            self.client.session(self.session).stream(self.stream)
        )
        return found


class Marks:
    """The last mark of each stream, which a reading found, and how often it was named."""

    def __init__(self) -> None:
        self._kept: dict[tuple[str, str], tuple[str, int]] = {}

    def use(self, log: CheckpointLog) -> str | None:
        """Return the mark for the next operation; None if the stream has to be read for one."""
        place = log.session, log.stream
        mark, uses = self._kept.get(place, ("", _USES_MAX))
        if uses >= _USES_MAX:
            return None
        self._kept[place] = mark, uses + 1
        return mark

    def keep(self, log: CheckpointLog, mark: str) -> None:
        """Keep a mark for the next operations; an empty one if the stream has none yet."""
        place = log.session, log.stream
        self._kept.pop(place, None)
        self._kept[place] = mark, 0
        if len(self._kept) > _MARKS_MAX:
            self._kept.pop(next(iter(self._kept)), None)


class Reading:
    """The checkpoints that a stream has, the greatest id first.

    Only the lines are read that the entries up to the present one depend on.

    Args:
        log: the stream.
        ns: a namespace, None for all of them.

    Attributes:
        last: the id of the last operation when the reading began, empty if there is none.
        generation: the generation of the stream that was read.
        lines: the lines of all operations.
        kept: the first line of each operation that counts, and the one behind it.
    """

    def __init__(self, log: CheckpointLog, ns: str | None = None) -> None:
        self.last = ""
        self.generation = self.lines = 0
        self.kept: list[tuple[int, int]] = []
        self._log = log
        self._ns = ns
        self._found: dict[tuple[str, str], Entry] = {}
        self._removals: list[Row] = []
        self._removed: set[tuple[str, str]] = set()

    async def entries(self) -> AsyncIterator[Entry]:
        """Yield the checkpoints; none any more when the session is deleted meanwhile."""
        bound: str | None = None
        try:
            async for row, known in self._log.bounded_rows():
                self.last = self.last or row.id
                self.generation = row.line.cursor.generation
                self.lines += len(row.parts) + 1
                if known != bound:
                    bound = known
                    for entry in self._pop(bound):
                        yield entry
                self._take(row)
        except NotFound:
            return
        for entry in self._pop(None):
            yield entry

    def _pop(self, bound: str | None) -> list[Entry]:
        """Remove and return the entries that no line up to a bound can change; None for all."""
        keys = [key for key in self._found if bound is None or key[1] > bound]
        keys.sort(key=lambda key: key[1], reverse=True)
        entries = [self._found.pop(key) for key in keys]
        return [entry for entry in entries if entry.put is not None]

    def _take(self, row: Row) -> None:
        """Take in an operation; later ones were taken in before."""
        operation, ns = row.operation, row.operation["ns"]
        for each in self._removals:
            if each.operation["through"] == row.id:
                removed = each.contents["drop"]
                self._removed |= {(each.operation["ns"], name) for name in removed}
        if self._ns not in {None, ns}:
            return
        if "through" in operation:
            self._removals.append(row)
        elif (key := (ns, row.checkpoint)) not in self._removed:
            entry = self._found.setdefault(key, Entry(*key))
            if "task" in operation:
                entry.writes.append(row)
            elif entry.put is None:
                entry.put = row
            else:
                return
            self.kept.append(row.span)


def _pop_row(pending: list[steno.StreamRecord], low: int) -> Row | None:
    """Take the last operation off the records; None if it does not lie in them as a whole.

    Args:
        pending: records in order.
        low: the line that they begin with.
    """
    while pending and not pending[-1].record.keys() >= {"ns", "id"}:
        # Contents whose operation is damaged, or a line of another program.
        pending.pop()
    if not pending:
        return None
    first = pending[-1].cursor.line - pending[-1].record.get("parts", 0)
    if first < low:
        return None
    last, parts = pending.pop(), list[steno.StreamRecord]()
    while pending and pending[-1].cursor.line >= first:
        parts.insert(0, pending.pop())
    return Row(last, parts)


def _lines(operation: Operation, contents: dict[str, Any]) -> list[bytes]:
    """The batch of an operation."""
    data = msgspec.json.encode(contents)
    if len(data) <= _PART_CHARS_MAX:
        return [msgspec.json.encode({**operation, "contents": msgspec.Raw(data)})]
    text = data.decode()
    starts = range(0, len(text), _PART_CHARS_MAX)
    parts = [{"part": text[each : each + _PART_CHARS_MAX]} for each in starts]
    return [msgspec.json.encode(each) for each in [*parts, {**operation, "parts": len(parts)}]]
