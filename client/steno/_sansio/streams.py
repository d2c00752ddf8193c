"""Requests about a session's streams, and records of their lines, without I/O."""

from collections.abc import Iterator

import msgspec

from steno._sansio.reading import LineReader
from steno._sansio.requests import PositionLike, new_key
from steno.values import StreamRecord, stream_record
from steno_protocol.commands import DeleteStream, ReadStream
from steno_protocol.errors import Corrupt
from steno_protocol.paths import STREAM, check_key
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
                self._count_damaged()

    def _no_object(self, cursor: Position) -> Corrupt:
        return Corrupt(
            f"the line at {cursor} of the stream {self._stream!r} is no JSON object: read on behind"
            " it, or without strict, which skips such lines",
            session=self._session,
        )


def file_of(stream: str) -> str:
    """Return the file of a stream, as subscriptions name it."""
    return f"{STREAM}{stream}"


def head_command(session: str, stream: str) -> ReadStream:
    """Return the command whose reply has the head of a stream, and no line."""
    return ReadStream(session=session, stream=stream, last=0, bytes_max=1)


def delete_stream_command(
    session: str, stream: str, by: str, key: str | None, expect: str | None
) -> DeleteStream:
    """Return the command that deletes a stream.

    Raises:
        BadRequest: the key is invalid.
    """
    key = new_key() if key is None else check_key(key)
    return DeleteStream(session=session, stream=stream, key=key, by=by, expect=expect)
