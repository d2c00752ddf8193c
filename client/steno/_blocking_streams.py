"""What a blocking client reads as a stream: a session's lines, records and wire events."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from steno._reading import LineReader
from steno._wire import WireReader
from steno.values import Record, WireRecord
from steno_protocol import replies

if TYPE_CHECKING:
    from steno._blocking_link import BlockingLink


class BlockingLines(Iterator[bytes]):
    """Lines as bytes, newline included, fetched block by block."""

    def __init__(self, link: "BlockingLink", reader: LineReader) -> None:
        self._link = link
        self._reader = reader

    def __next__(self) -> bytes:
        while not self._reader.lines:
            if not fetch(self._link, self._reader):
                raise StopIteration
        return self._reader.lines.popleft()[1]


class BlockingRecords(Iterator[Record]):
    """Records with their cursors, fetched block by block and decoded one by one."""

    def __init__(self, link: "BlockingLink", reader: LineReader, *, strict: bool) -> None:
        self._link = link
        self._reader = reader
        self._strict = strict

    @property
    def damaged(self) -> int:
        """Lines that were no records and were passed over so far."""
        return self._reader.damaged

    def __next__(self) -> Record:
        while (record := self._reader.record(strict=self._strict)) is None:
            if not fetch(self._link, self._reader):
                raise StopIteration
        return record


class BlockingWireRecords(Iterator[WireRecord]):
    """Events with their cursors, fetched block by block; damaged lines never end it."""

    def __init__(self, link: "BlockingLink", reader: WireReader) -> None:
        self._link = link
        self._reader = reader

    @property
    def damaged(self) -> int:
        """Lines that were no events and were passed over so far."""
        return self._reader.damaged

    def __next__(self) -> WireRecord:
        while (record := self._reader.next_event()) is None:
            if not fetch(self._link, self._reader):
                raise StopIteration
        return record


def fetch(link: "BlockingLink", reader: LineReader) -> bool:
    """Fetch the next block; False at the end."""
    command = reader.next_command()
    if command is None:
        return False
    reader.take(*link.request(command, replies.Lines))
    return True
