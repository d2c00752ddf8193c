"""Streams of a session's lines, records and wire events, fetched block by block."""

from collections import deque
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import TYPE_CHECKING, Self

from steno._sansio.reading import LineReader
from steno._sansio.wire_events import WireReader
from steno.values import Record, WireRecord

if TYPE_CHECKING:
    from steno._async.link import Link


class _Blocks:
    """Blocks of lines; the next one is requested while one is used."""

    def __init__(self, link: "Link", reader: LineReader) -> None:
        self._link = link
        self._reader = reader

    async def fetch(self) -> bool:
        """Fetch the next block into the reader; return False at the end."""
        return await self._link.fetch(self._reader, ahead=True)

    def __del__(self) -> None:
        # Without its fields when an interrupt came while it was made.
        with suppress(AttributeError):
            if self._reader.ahead is not None:
                self._link.forget(self._reader.ahead)


class LineStream(AsyncIterator[bytes]):
    """Lines as bytes, newline included, fetched block by block."""

    def __init__(self, link: "Link", reader: LineReader) -> None:
        self._blocks = _Blocks(link, reader)
        self._reader = reader
        self._lines: deque[bytes] = deque()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> bytes:
        """The next line."""
        while not self._lines:
            if not self._reader.lines and not await self._blocks.fetch():
                raise StopAsyncIteration
            if self._reader.lines:
                self._lines = self._reader.lines.pop_block()[1]
        return self._lines.popleft()


class RecordStream(AsyncIterator[Record]):
    """Records with their cursors, fetched block by block and decoded one by one."""

    def __init__(self, link: "Link", reader: LineReader, *, strict: bool) -> None:
        self._blocks = _Blocks(link, reader)
        self._reader = reader
        self._strict = strict
        self._records = reader.records(strict=strict)

    @property
    def damaged(self) -> int:
        """How many damaged lines were skipped so far."""
        return self._reader.damaged

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Record:
        """The next record."""
        while (record := next(self._records, None)) is None:
            # The generator ends with a block, and with a line that it refuses.
            self._records = self._reader.records(strict=self._strict)
            if not self._reader.lines and not await self._blocks.fetch():
                raise StopAsyncIteration
        return record


class WireRecordStream(AsyncIterator[WireRecord]):
    """Events with their cursors, fetched block by block."""

    def __init__(self, link: "Link", reader: WireReader) -> None:
        self._link = link
        self._reader = reader

    @property
    def damaged(self) -> int:
        """How many lines without an event were skipped so far, blank lines and headers aside."""
        return self._reader.damaged

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> WireRecord:
        """The next event."""
        while (record := self._reader.next_event()) is None:
            if not await self._link.fetch(self._reader):
                raise StopAsyncIteration
        return record
