"""Streams of a session's lines, records and wire events, fetched block by block."""

from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import suppress
from typing import TYPE_CHECKING, Self, TypeVar

from steno._sansio.reading import LineReader
from steno.values import Record, WireRecord

if TYPE_CHECKING:
    from steno._async.link import Link

T = TypeVar("T")


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


class DecodedStream(AsyncIterator[T]):
    """What a reader decodes of its lines, one by one, fetched block by block.

    Args:
        link: the connection.
        reader: gets the lines.
        decoded: makes an iterator over the received lines; it ends with a block, and with a line
            that it refuses.
    """

    def __init__(
        self, link: "Link", reader: LineReader, decoded: Callable[[], Iterator[T]]
    ) -> None:
        self._blocks = _Blocks(link, reader)
        self._reader = reader
        self._decode = decoded
        self._decoded = decoded()

    @property
    def damaged(self) -> int:
        """How many damaged lines were skipped so far."""
        return self._reader.damaged

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> T:
        """The next one."""
        while (value := next(self._decoded, None)) is None:
            self._decoded = self._decode()
            if not self._reader.lines and not await self._blocks.fetch():
                raise StopAsyncIteration
        return value


RecordStream = DecodedStream[Record]
WireRecordStream = DecodedStream[WireRecord]
