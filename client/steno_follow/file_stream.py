"""The stream of a session with the bytes of its file, to which what was added is appended.

The key of each append is the next cursor, and `expect` is the head that belongs to the last one, so
that of two writers one gets `conflict` and looks again. The files that the program keeps beside the
transcript go to a stream of their own.

A program that keeps its sessions in a database has no file that grows: its rows change. What the
stream has is then the beginning of the file, and the rows that changed are what was added to it.
"""

import os
import tempfile
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from typing import BinaryIO, cast

import msgspec

from steno import BlockingClient
from steno.parts import mutation
from steno_agents.following import Cursor, Reading, lines_of, pieces_of
from steno_agents.limits import RAW_BYTES
from steno_agents.row_log import additions
from steno_follow.companions import has_companions, new_pieces, taken_of
from steno_follow.foreign_source import ForeignSource
from steno_follow.limits import (
    FOLLOW_BATCH_BYTES,
    FOLLOW_BATCH_RECORDS_MAX,
    TRANSCRIPT_LINE_BYTES_MAX,
)
from steno_follow.lines import whole_lines
from steno_follow.outcomes import Followed
from steno_follow.source_notes import AUTHOR, SourceNote
from steno_protocol.commands import AppendStream, DeleteStream
from steno_protocol.positions import Position
from steno_protocol.replies import Ack, Deleted
from steno_redact.records import masked_bytes
from steno_redact.redactor import Redactor


class FileStream:
    """The stream with the bytes of one file.

    Attributes:
        head: the end of the stream.
    """

    def __init__(
        self, client: BlockingClient, source: ForeignSource, redactor: Redactor | None
    ) -> None:
        self.head = Position(0, 0)
        self._client = client
        self._source = source
        self._session = client.session(source.session)
        self._stream = self._session.stream(source.format.stream)
        self._redactor = redactor
        # The bytes of the next line that the stream has already.
        self._ahead = 0
        # The bytes of a log of rows that the stream has.
        self._logged = 0
        # The head of each stream of files beside it, and the bytes that it has of each file.
        self._companions: dict[str, tuple[Position, dict[str, int]]] = {}

    def forget(self) -> None:
        """Drop what is known of files beside the transcript."""
        self._companions = {}

    @contextmanager
    def log_of_rows(self, rows: BinaryIO) -> Generator[BinaryIO]:
        """The log of rows that change: what the stream has, and the changes."""
        self.head = head = self._stream.head()
        with tempfile.TemporaryFile() as whole:
            log = cast("BinaryIO", whole)
            for line in lines_of(each.data for each in self._stream.records(until=head)):
                log.write(line)
            self._logged = log.tell()
            log.seek(0)
            for number, line in enumerate(additions(log, map(self._mask, rows))):
                if number == 0 and self._logged and not _ends_with_newline(log):
                    # A kill fell between the parts of a long line, which comes again.
                    log.write(b"\n")
                log.write(line)
            log.flush()
            yield log

    def read_log(self, log: BinaryIO, reading: Reading) -> None:
        """Read what the stream has of a log of rows."""
        log.seek(0)
        for line in whole_lines(log, self._source.file, 0, self._logged):
            reading.feed(line)
        self._ahead = self._logged - reading.offset

    def read(self, file: BinaryIO, size: int, reading: Reading, note: SourceNote | None) -> bool:
        """Read what the stream has of a file.

        Returns:
            False if the file begins with something else, or nothing says what the stream has.
        """
        self.head, self._ahead = self._stream.head(), 0
        cursor = self._cursor(reading, note)
        ahead = None if cursor is None else self._read_up_to(file, size, reading, cursor)
        self._ahead = ahead or 0
        return ahead is not None

    def _cursor(self, reading: Reading, note: SourceNote | None) -> Cursor | None:
        """How much of a file the stream has; None if it does not say."""
        generation, lines = self.head
        if lines == 0:
            return reading.cursor(generation)
        last = self._stream.last(1)
        found = Cursor.of_key(last[0].key) if last and last[0].key else None
        if found is not None:
            return found if found.generation == generation else None
        if note is not None and (note.generation, note.lines) == (generation, lines):
            return Cursor(generation, note.offset, note.digest)
        return None

    def _read_up_to(
        self, file: BinaryIO, size: int, reading: Reading, cursor: Cursor
    ) -> int | None:
        """Read what the stream has up to a cursor.

        Returns:
            The bytes that it has of the next line, too; None if the file has something else.
        """
        file.seek(0)
        end = min(size, cursor.offset + TRANSCRIPT_LINE_BYTES_MAX)
        for line in whole_lines(file, self._source.file, 0, end):
            rest = cursor.offset - reading.offset
            if rest < len(line):
                is_same = reading.cursor(cursor.generation, line[:rest]) == cursor
                return rest if is_same else None
            reading.feed(line)
        return 0 if reading.cursor(cursor.generation) == cursor else None

    def begin_anew(self) -> None:
        """Let the stream begin again; what it had stays as a deleted generation."""
        generation, lines = self.head
        if lines:
            # A repeat after a kill finds the stream empty, and deletes nothing.
            deletion = DeleteStream(
                session=self._source.session, stream=self._source.format.stream,
                key=f"rewritten-{generation}-{lines}", expect=str(self.head), by=AUTHOR,
            )  # fmt: skip
            self._client.request(deletion, Deleted)
            self.head = Position(generation + 1, 0)
        self._ahead = 0

    def add_lines(
        self, file: BinaryIO, size: int, reading: Reading, done: Followed, bytes_max: int | None
    ) -> None:
        """Append the whole lines up to a size, or about as many bytes as one look takes in."""
        begin, known = reading.offset, reading.damaged_count
        generation, batch, batch_bytes = self.head.generation, list[bytes](), 0
        file.seek(begin)
        for line in whole_lines(file, self._source.file, begin, size):
            if bytes_max and reading.offset - begin >= bytes_max:
                done.has_more = True
                break
            if self._ahead or len(line) > RAW_BYTES:
                self._append(batch, reading.cursor(generation))
                self._append_long(line, reading)
                batch, batch_bytes = [], 0
                reading.feed(line)
                continue
            batch += [piece.record for piece in pieces_of(line, self._mask)]
            batch_bytes += len(line)
            reading.feed(line)
            if len(batch) >= FOLLOW_BATCH_RECORDS_MAX or batch_bytes >= FOLLOW_BATCH_BYTES:
                self._append(batch, reading.cursor(generation))
                batch, batch_bytes = [], 0
        self._append(batch, reading.cursor(generation))
        done.file_bytes += reading.offset - begin
        done.damaged_count += reading.damaged_count - known
        done.damaged += [each for each in reading.damaged if each.offset >= begin]

    def _append_long(self, line: bytes, reading: Reading) -> None:
        """Append a line that may take several requests; a kill may fall between them."""
        ahead, self._ahead = self._ahead, 0
        for piece in pieces_of(line[ahead:], self._mask, is_rest=ahead > 0):
            ahead += piece.size
            cursor = reading.cursor(self.head.generation, memoryview(line)[:ahead])
            self._append([piece.record], cursor)

    def _append(self, records: list[bytes], cursor: Cursor) -> None:
        if records:
            self.head = self._append_to(self._source.format.stream, records, self.head, cursor.key)

    def _append_to(
        self, stream: str, records: list[bytes], head: Position, key: str | None = None
    ) -> Position:
        command = mutation(
            AppendStream, self._source.session, AUTHOR, key, head, "synced", stream=stream
        )
        ack, _ = self._client.request(command, Ack, records)
        return Position.parse(ack.head)

    def add_companions(self) -> Iterator[int]:
        """Append what is new in the files beside the transcript; yields the bytes of each piece."""
        for name in self._source.format.companions:
            if not has_companions(self._source, name):
                continue
            if name not in self._companions:
                stream = self._session.stream(name)
                head = stream.head()
                taken = taken_of(each.record for each in stream.records(until=head))
                self._companions[name] = head, taken
            head, taken = self._companions[name]
            for piece in new_pieces(self._source, name, dict(taken), self._mask):
                head = self._append_to(name, [piece], head)
                taken.update(taken_of([msgspec.json.decode(piece)]))
                self._companions[name] = head, taken
                yield len(piece)

    def _mask(self, line: bytes) -> bytes:
        return line if self._redactor is None else masked_bytes(self._redactor, line)


def _ends_with_newline(file: BinaryIO) -> bool:
    """Whether the last byte is a newline; the file is at its end afterwards."""
    file.seek(-1, os.SEEK_END)
    return file.read(1) == b"\n"
