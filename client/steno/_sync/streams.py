# Generated from client/steno/_async/streams.py, which is the file to edit, by:
# PYTHONPATH=tests python -m support.generate_sync
"""Streams of a session's lines, records and wire events, fetched block by block."""

from collections import deque
from collections.abc import Iterator
from contextlib import suppress
from typing import TYPE_CHECKING, Self

from steno._sansio.reading import LineReader
from steno._sansio.wire_events import WireReader
from steno.values import Record, WireRecord

if TYPE_CHECKING:
    from steno._sync.link import BlockingLink


class _Blocks:
    """Blocks of lines; the next one is requested while one is used."""

    def __init__(self, link: "BlockingLink", reader: LineReader) -> None:
        self._link = link
        self._reader = reader

    def fetch(self) -> bool:
        """Fetch the next block into the reader; return False at the end."""
        return self._link.fetch(self._reader, ahead=True)

    def __del__(self) -> None:
        # Without its fields when an interrupt came while it was made.
        with suppress(AttributeError):
            if self._reader.ahead is not None:
                self._link.forget(self._reader.ahead)


class BlockingLineStream(Iterator[bytes]):
    """Lines as bytes, newline included, fetched block by block."""

    def __init__(self, link: "BlockingLink", reader: LineReader) -> None:
        self._blocks = _Blocks(link, reader)
        self._reader = reader
        self._lines: deque[bytes] = deque()

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> bytes:
        """The next line."""
        while not self._lines:
            if not self._reader.lines and not self._blocks.fetch():
                raise StopIteration
            if self._reader.lines:
                self._lines = self._reader.lines.pop_block()[1]
        return self._lines.popleft()


class BlockingRecordStream(Iterator[Record]):
    """Records with their cursors, fetched block by block and decoded one by one."""

    def __init__(self, link: "BlockingLink", reader: LineReader, *, strict: bool) -> None:
        self._blocks = _Blocks(link, reader)
        self._reader = reader
        self._strict = strict
        self._records = reader.records(strict=strict)

    @property
    def damaged(self) -> int:
        """How many damaged lines were skipped so far."""
        return self._reader.damaged

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Record:
        """The next record."""
        while (record := next(self._records, None)) is None:
            # The generator ends with a block, and with a line that it refuses.
            self._records = self._reader.records(strict=self._strict)
            if not self._reader.lines and not self._blocks.fetch():
                raise StopIteration
        return record


class BlockingWireRecordStream(Iterator[WireRecord]):
    """Events with their cursors, fetched block by block."""

    def __init__(self, link: "BlockingLink", reader: WireReader) -> None:
        self._link = link
        self._reader = reader

    @property
    def damaged(self) -> int:
        """How many lines without an event were skipped so far, blank lines and headers aside."""
        return self._reader.damaged

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> WireRecord:
        """The next event."""
        while (record := self._reader.next_event()) is None:
            if not self._link.fetch(self._reader):
                raise StopIteration
        return record
