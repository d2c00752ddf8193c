"""Streams of operations on checkpoints, read from their end in the order of the checkpoints' ids.

An operation is one atomic batch. Its last line has the operation, its contents are there too if
they are small, else in the lines before it. Each operation has a claim about the lines before it:

    {"checkpoint": "1f0a", "ns": "", ..., "seen": "0:17", "top": "1f09"}

The lines before 0:17 name no checkpoint with an id greater than `1f09`. A reader that looks for
1f0a from the end of the stream needs no earlier line, however long the stream is. Ids that ascend,
as those of the framework do, are found at once; other orders cost time, and give the same result.
A writer reads the last operation for its claim. It needs no lock: other operations may come in
between, and `seen` leaves them to the reader.
"""

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from inspect import isawaitable
from typing import TYPE_CHECKING, Any, Final, cast

import msgspec

import steno
from steno_protocol.errors import Corrupt, NotFound

if TYPE_CHECKING:
    from steno._async.stream import Stream
    from steno._sync.stream import BlockingStream

_WINDOW_LINES: Final = 8
"""Lines that a reading from the end begins with; each further one has four times as many."""

_WINDOW_LINES_MAX: Final = 128
"""Lines of the largest window, which is in memory: the contents of a checkpoint may be large."""

_INLINE_BYTES_MAX: Final = 16 * 1024
"""Bytes of contents in the line of the operation, which the next writer reads."""

_PART_CHARS_MAX: Final = 2 * 1024 * 1024
"""Characters of one line of contents. A character takes 4 bytes at most, or 2 if it is quoted, so
that a line has at most 8 MiB of the 16 MiB of a record."""

_START: Final = steno.Position(0, 0)

Operation = dict[str, Any]
"""A record: what happens to `checkpoint` in the namespace `ns`, and the claim.

With `task` it adds writes, and else it stores the checkpoint. With `before` it names none: it
removes what the lines before that position have about the checkpoints in its contents.
"""


class Requests:
    """The requests of an adapter, through an async client or a blocking one.

    With a blocking client no method suspends.
    """

    def __init__(self, client: "steno.Client | steno.BlockingClient") -> None:
        self._client = client

    async def open(self, session: str) -> None:
        """Create a session if it is missing."""
        await _ready(self._client.open(session, follow=False))

    async def sessions(self, prefix: str) -> list[str]:
        """Return the ids of the sessions with this beginning."""
        return [entry.session for entry in await _ready(self._client.sessions(prefix))]

    async def streams(self, session: str) -> list[str]:
        """Return the names of a session's streams, none if it is missing."""
        try:
            return [each.name for each in await _ready(self._client.session(session).streams())]
        except NotFound:
            return []

    async def delete(self, session: str) -> None:
        """Move a session to the trash; nothing if it is missing."""
        try:
            await _ready(self._client.delete(session))
        except NotFound:
            return

    async def fork(self, session: str, new_session: str) -> None:
        """Create a session with the streams of another one."""
        await _ready(self._client.session(session).fork(new_session))

    async def append(
        self, session: str, stream: str, lines: Sequence[bytes], key: str | None = None
    ) -> None:
        """Append a batch."""
        await _ready((await self._stream(session, stream)).append(list(lines), key=key))

    async def last(self, session: str, stream: str, count: int) -> list[steno.StreamRecord]:
        """Return the last records, none if the session is missing."""
        try:
            stored: list[steno.StreamRecord] = await _ready(
                (await self._stream(session, stream)).last(count)
            )
        except NotFound:
            return []
        return stored

    async def head(self, session: str, stream: str) -> steno.Position:
        """Return the end of a stream; the start if it or the session is missing."""
        try:
            head: steno.Position = await _ready((await self._stream(session, stream)).head())
        except NotFound:
            return _START
        return head

    async def span(
        self, session: str, stream: str, after: steno.Position, line: int | None
    ) -> list[steno.StreamRecord]:
        """Return the records between two lines, none if the session is missing.

        Args:
            session: the session.
            stream: the stream.
            after: where to begin.
            line: where to end, None for the end of the stream.
        """
        until = None if line is None else steno.Position(after.generation, line)
        records = (await self._stream(session, stream)).records(after, until)
        try:
            if isinstance(records, AsyncIterator):
                return [record async for record in records]
            return list(records)
        except NotFound:
            return []

    async def _stream(self, session: str, stream: str) -> "Stream | BlockingStream":
        found: Stream | BlockingStream = await _ready(self._client.session(session).stream(stream))
        return found


async def _ready(answer: Any) -> Any:
    """The answer of either client."""
    return await answer if isawaitable(answer) else answer


@dataclass(frozen=True, slots=True)
class Row:
    """An operation in a stream, with the lines of its contents.

    Attributes:
        operation: the record of its last line.
        first: where its batch begins.
        claim: the line that its claim is about, and the greatest id before it; None if it is void.
        parts: the records of the lines before the last one.
    """

    operation: Operation
    first: steno.Position
    claim: tuple[int, str] | None
    parts: Sequence[steno.StreamRecord]

    @property
    def contents(self) -> dict[str, Any]:
        """What the operation stores.

        Raises:
            Corrupt: a line of it is damaged.
        """
        if "contents" in self.operation:
            contents: dict[str, Any] = self.operation["contents"]
            return contents
        if len(self.parts) != self.operation["parts"]:
            raise Corrupt(
                f"the contents of the checkpoint {self.operation.get('checkpoint', '')!r} behind"
                f" {self.first} of its stream are damaged: steno verify names the session and the"
                " line, and an earlier checkpoint of the thread can be used"
            )
        if "part" not in self.parts[0].record:
            return self.parts[0].record
        text = "".join(part.record["part"] for part in self.parts)
        return cast("dict[str, Any]", msgspec.json.decode(text))


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


class CheckpointLog:
    """The operations on the checkpoints of some namespaces of one thread.

    Args:
        requests: performs them.
        session: the session of the thread.
        stream: the stream.
    """

    def __init__(self, requests: Requests, session: str, stream: str) -> None:
        self._requests = requests
        self._session = session
        self._stream = stream

    async def add(self, operation: Operation, contents: dict[str, Any]) -> None:
        """Append an operation as a whole.

        Raises:
            NotFound: there is no such session.
        """
        seen, top = await self._claim()
        operation |= {"seen": str(seen), "top": top}
        await self._requests.append(self._session, self._stream, _lines(operation, contents))

    async def rows(self) -> AsyncIterator[Row]:
        """Yield the operations, the last one first."""
        window = _WINDOW_LINES
        pending = await self._requests.last(self._session, self._stream, window)
        low = pending[0].cursor if pending else await self.head()
        while True:
            while (row := _pop_row(pending, low.line)) is not None:
                yield row
            if low.line == 0:
                return
            window = min(4 * window, _WINDOW_LINES_MAX)
            start = steno.Position(low.generation, max(0, low.line - window))
            earlier = await self._requests.span(self._session, self._stream, start, low.line)
            pending, low = earlier + pending, start

    async def entries(self, ns: str | None = None) -> AsyncIterator[Entry]:
        """Yield the checkpoints that are stored, the greatest id first; None for all namespaces.

        Only the lines are read that the entries up to the present one depend on.
        """
        fold = _Fold(ns)
        async for row in self.rows():
            if fold.take(row):
                for entry in fold.complete():
                    yield entry
        for entry in fold.rest():
            yield entry

    async def head(self) -> steno.Position:
        """Return the end of the stream."""
        return await self._requests.head(self._session, self._stream)

    async def _claim(self) -> tuple[steno.Position, str]:
        """The claim of the next operation, derived from the last one and what it left out."""
        records = await self._requests.last(self._session, self._stream, 1)
        if not records:
            return _START, ""
        (last,) = records
        seen, top = _claim_of(last) or (0, "")
        if not _is_operation(last) or seen < _first_line(last):
            start = steno.Position(last.cursor.generation, seen)
            records = await self._requests.span(self._session, self._stream, start, None)
        names = [record.record.get("checkpoint", "") for record in records if _is_operation(record)]
        return (_behind(records[-1]) if records else _START), max([top, *names])


class _Fold:
    """Operations, taken in from the last one on, as entries."""

    def __init__(self, ns: str | None) -> None:
        self._ns = ns
        self._found: dict[tuple[str, str], Entry] = {}
        self._removals: list[tuple[steno.Position, str, frozenset[str]]] = []
        self._claims: list[tuple[int, str]] = []
        self._bound: str | None = None

    def take(self, row: Row) -> bool:
        """Take in an operation; True if more entries may be complete now."""
        if self._ns is None or row.operation["ns"] == self._ns:
            self._take(row)
        if row.claim is not None:
            self._claims.append(row.claim)
        line = row.first.line
        bound = min((top for seen, top in self._claims if seen >= line), default=None)
        self._claims = [claim for claim in self._claims if claim[0] < line]
        if bound is None or (self._bound is not None and bound >= self._bound):
            return False
        self._bound = bound
        return True

    def complete(self) -> list[Entry]:
        """Remove and return the entries that no earlier line can change, the greatest id first."""
        bound = self._bound or ""
        return self._pop([key for key in self._found if key[1] > bound])

    def rest(self) -> list[Entry]:
        """Remove and return all entries, after the first line was taken in."""
        return self._pop(list(self._found))

    def _pop(self, keys: list[tuple[str, str]]) -> list[Entry]:
        keys.sort(key=lambda key: key[1], reverse=True)
        found = [self._found.pop(key) for key in keys]
        return [entry for entry in found if entry.put is not None]

    def _take(self, row: Row) -> None:
        operation = row.operation
        if "before" in operation:
            before = steno.Position.parse(operation["before"])
            # Else its writer read an earlier life of the stream, with other checkpoints.
            if before <= row.first:
                self._removals.append((before, operation["ns"], frozenset(row.contents["drop"])))
            return
        key = operation["ns"], operation["checkpoint"]
        if any(
            row.first < before and key[0] == ns and key[1] in drop
            for before, ns, drop in self._removals
        ):
            return
        entry = self._found.setdefault(key, Entry(*key))
        if "task" in operation:
            entry.writes.append(row)
        elif entry.put is None:
            entry.put = row


def _pop_row(pending: list[steno.StreamRecord], low: int) -> Row | None:
    """Take the last operation off the records; None if it does not lie in them as a whole.

    Args:
        pending: records in order.
        low: the line that they begin with.
    """
    while pending and not _is_operation(pending[-1]):
        # Contents whose operation is damaged, or a line of another program.
        pending.pop()
    if not pending or (line := _first_line(pending[-1])) < low:
        return None
    last = pending.pop()
    number = len(pending)
    while number and pending[number - 1].cursor.line >= line:
        number -= 1
    parts = pending[number:]
    del pending[number:]
    first = steno.Position(last.cursor.generation, line)
    return Row(last.record, first, _claim_of(last), parts)


def _is_operation(record: steno.StreamRecord) -> bool:
    return record.record.keys() >= {"ns", "seen", "top"}


def _first_line(record: steno.StreamRecord) -> int:
    parts: int = record.record.get("parts", 0)
    return record.cursor.line - parts


def _claim_of(record: steno.StreamRecord) -> tuple[int, str] | None:
    """The line and the id of a claim; None if its writer saw another life of the stream."""
    if not _is_operation(record):
        return None
    seen = steno.Position.parse(record.record["seen"])
    if seen.generation != record.cursor.generation or seen.line > _first_line(record):
        return None
    return seen.line, record.record["top"]


def _behind(record: steno.StreamRecord) -> steno.Position:
    return steno.Position(record.cursor.generation, record.cursor.line + 1)


def _lines(operation: Operation, contents: dict[str, Any]) -> list[bytes]:
    """The batch of an operation."""
    data = msgspec.json.encode(contents)
    if len(data) <= _INLINE_BYTES_MAX:
        return [msgspec.json.encode({**operation, "contents": contents})]
    parts = [data] if len(data) <= _PART_CHARS_MAX else _cut(data.decode())
    return [*parts, msgspec.json.encode({**operation, "parts": len(parts)})]


def _cut(text: str) -> list[bytes]:
    starts = range(0, len(text), _PART_CHARS_MAX)
    return [msgspec.json.encode({"part": text[each : each + _PART_CHARS_MAX]}) for each in starts]
