"""What a blocking client reads as a stream: a session's lines, records and wire events."""

from collections.abc import Iterator
from contextlib import suppress
from typing import TYPE_CHECKING

from steno._connect.session_file import open_source
from steno._sansio.pending import Pending
from steno._sansio.reading import LineReader
from steno._sansio.wire_events import WireReader
from steno.values import Record, WireRecord
from steno_protocol import limits, replies

if TYPE_CHECKING:
    from steno._sync.link import BlockingLink


class _Blocks:
    """Blocks of lines, the next of them on its way while one is used."""

    def __init__(self, link: "BlockingLink", reader: LineReader) -> None:
        self._link = link
        self._reader = reader

    def fetch(self) -> bool:
        """Have the next block in the reader; False at the end."""
        return fetch(self._link, self._reader, ahead=True)

    def __del__(self) -> None:
        # Without its fields when an interrupt came while it was made.
        with suppress(AttributeError):
            if self._reader.ahead is not None:
                self._link.forget(self._reader.ahead)


def blocking_lines(link: "BlockingLink", reader: LineReader) -> Iterator[bytes]:
    """Lines as bytes, newline included, fetched block by block."""
    blocks = _Blocks(link, reader)
    while blocks.fetch():
        while reader.lines:
            yield from reader.lines.pop_block()[1]


class BlockingRecords(Iterator[Record]):
    """Records with their cursors, fetched block by block and decoded one by one."""

    def __init__(self, link: "BlockingLink", reader: LineReader, *, strict: bool) -> None:
        self._blocks = _Blocks(link, reader)
        self._reader = reader
        self._strict = strict

    @property
    def damaged(self) -> int:
        """Lines that were no records and were passed over so far."""
        return self._reader.damaged

    def __iter__(self) -> Iterator[Record]:
        # A loop asks a generator quicker than `__next__`.
        while self._reader.lines or self._blocks.fetch():
            yield from self._reader.records(strict=self._strict)

    def __next__(self) -> Record:
        for record in self:
            return record
        raise StopIteration


class BlockingWireRecords(Iterator[WireRecord]):
    """Events with their cursors, fetched block by block."""

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


def fetch(link: "BlockingLink", reader: LineReader, *, ahead: bool = False) -> bool:
    """Fetch the next block; False at the end.

    Args:
        ahead: request the next block at once; a caller that gives up early has to forget it.
    """
    link.check_open()
    if reader.has_file and reader.take_from_file(limits.FILE_BLOCK_BYTES):
        return True
    pending = reader.ahead or _ask(link, reader)
    reader.ahead = None
    if pending is None:
        return False
    reader.take(*link.finish(pending, replies.Lines))
    if reader.source is not None:
        reader.use(open_source(reader.source))
    if ahead and not reader.has_file:
        reader.ahead = _ask(link, reader)
    return True


def _ask(link: "BlockingLink", reader: LineReader) -> Pending | None:
    command = reader.next_command()
    return None if command is None else link.begin(command)
