"""Requests about a session's streams, and records of their lines, without I/O."""

from collections.abc import Iterator

import msgspec

from steno._sansio.reading import LineReader
from steno._sansio.requests import PositionLike
from steno.values import StreamRecord, stream_record
from steno_protocol.commands import ReadStream
from steno_protocol.errors import Corrupt
from steno_protocol.positions import Position
from steno_protocol.replies import Lines


class StreamReader(LineReader):
    """The lines of one generation of a stream, in order.

    Args:
        session: the session's id.
        stream: the stream's name.
        after: begin here.
        until: end here.
        last: begin this many lines before the end instead, and end at the head of that moment.
    """

    def __init__(
        self,
        session: str,
        stream: str,
        after: PositionLike | None = None,
        until: PositionLike | None = None,
        *,
        last: int | None = None,
    ) -> None:
        super().__init__(session, after, until)
        self._stream = stream
        self._last = last

    def next_command(self) -> ReadStream | None:
        """The command that requests the next block, or None at the end."""
        command = super().next_command()
        if command is None:
            return None
        fields = msgspec.structs.asdict(command)
        return ReadStream(**fields, stream=self._stream, last=self._last)

    def take(self, reply: Lines, block: bytes) -> None:
        """Take in the answer to `next_command`."""
        if self._last is not None:
            self._last = None
            self._until = reply.head
        super().take(reply, block)

    def stream_records(self, *, strict: bool) -> Iterator[StreamRecord]:
        """Yield the records of the received lines.

        Raises:
            Corrupt: `strict`, and the next line is no JSON object.
        """
        while self.lines:
            cursor, line = self.lines.popleft()
            found = stream_record(cursor, line)
            if found is not None:
                yield found
            elif line.strip():
                if strict:
                    raise self._no_object(cursor)
                self.damaged += 1

    def _no_object(self, cursor: Position) -> Corrupt:
        return Corrupt(
            f"the line at {cursor} of the stream {self._stream!r} is no JSON object: read on behind"
            " it, or without strict, which skips such lines",
            session=self._session,
        )
