# Generated from client/steno/_async/stream.py, which is the file to edit, by:
# PYTHONPATH=tests python -m support.generate_sync
"""One stream of a session, through a blocking client."""

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

from steno._sansio import requests
from steno._sansio.argument_checks import given_count
from steno._sansio.event_merge import start_of
from steno._sansio.messages import Message
from steno._sansio.requests import Durability, PositionLike
from steno._sansio.streams import StreamReader
from steno._sansio.view import NotPicklable
from steno._sync.streams import BlockingDecodedStream, BlockingLineStream
from steno._sync.subscription import BlockingSubscription
from steno.values import Ack, Deleted, StreamInfo, StreamRecord, deleted_of, stream_info
from steno_protocol import commands, replies
from steno_protocol.errors import NotFound
from steno_protocol.paths import STREAM, check_stream
from steno_protocol.positions import Position

if TYPE_CHECKING:
    from steno._sync.link import BlockingLink


BlockingStreamRecords = BlockingDecodedStream[StreamRecord]


class BlockingStream(NotPicklable):
    """An append-only file of JSON objects in a session; made by `BlockingSession.stream`.

    The daemon does not interpret the records, and keeps the bytes of each as they were given. The
    first append creates the file, and a missing one reads as empty. Its positions are its own:
    the generation counts its deletions.

    Attributes:
        session: the session's id.
        name: the name, unique in the session.

    Example:
        >>> notes = session.stream("notes")
        >>> ack = notes.append({"text": "first"})
        >>> [record.record for record in notes.records()]
        [{'text': 'first'}]
    """

    def __init__(self, link: "BlockingLink", session: str, name: str) -> None:
        self._link = link
        self.session = session
        self.name: str = check_stream(name)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name!r} of {self.session!r}>"

    def append(
        self,
        record: Message | Sequence[Message],
        *,
        key: str | None = None,
        expect: PositionLike | None = None,
        durability: Durability = "synced",
    ) -> Ack:
        """Append one record, or a sequence of them as one atomic batch.

        Args:
            record: any JSON object: a mapping, or the bytes of one. Bytes on one line are kept as
                they are; a record on several lines is written on one. `_id`, `_by` and `_at` are
                steno's own and no keys of a record.
            key: the idempotency key: the command is applied once, however often it is sent.
            expect: the head that the caller assumes; with another head nothing is written.
            durability: `synced` (on the disk) or `written` (in the page cache, on the disk within a
                second; readers see the record only then).

        Returns:
            The ack; the records are as durable as its `durability` states.

        Raises:
            BadRequest, TooLarge: nothing was sent, or the daemon refused it.
            NotFound: there is no such session.
            Conflict: another writer was faster, and `head` is the end; or the key was used before
                with other records.
            StorageFailed: the disk failed, and nothing was written.
            OutcomeUnknown: the records may be there; repeat with the error's `key`.
            Unreachable: the request was never sent.

        Example:
            >>> notes = session.stream("notes")
            >>> ack = notes.append([{"n": 1}, {"n": 2}])
            >>> str(ack.head)
            '0:2'
        """
        records = requests.encode_records(record, "record")
        command = requests.mutation(
            commands.AppendStream, self.session, self._link.name, key, expect, durability,
            stream=self.name,
        )  # fmt: skip
        ack, _ = self._link.request(command, replies.Ack, records)
        return requests.ack_of(ack, command.key)

    def records(
        self,
        after: PositionLike | None = None,
        until: PositionLike | None = None,
        *,
        strict: bool = False,
    ) -> BlockingStreamRecords:
        """Read the records between two positions of one generation, each with its cursor.

        Args:
            after: where to begin; None is the start of the present generation. An earlier one is
                readable until the deleted records expire.
            until: where to end; None is the end at the time of reading.
            strict: stop at the first damaged line with Corrupt; otherwise damaged lines are
                skipped, and counted in `damaged` of the returned object.

        Returns:
            The records in order, to be read with a loop.

        Example:
            >>> notes = session.stream("notes")
            >>> ack = notes.append([{"n": 1}, {"n": 2}])
            >>> [record.record for record in notes.records(after="0:1")]
            [{'n': 2}]
        """
        reader = StreamReader(self.session, self.name, after, until)
        return BlockingStreamRecords(
            self._link, reader, partial(reader.stream_records, strict=strict)
        )

    def lines(
        self, after: PositionLike | None = None, until: PositionLike | None = None
    ) -> BlockingLineStream:
        """Read the lines between two positions as bytes in the file, stamps included.

        Args:
            after: as in `records`.
            until: as in `records`.

        Returns:
            The lines in order, to be read with a loop.

        Example:
            >>> notes = session.stream("notes")
            >>> ack = notes.append({"n": 1}, key="k1")
            >>> [line for line in notes.lines()]
            [b'{"n":1,..."_id":"k1"}\\n']
        """
        return BlockingLineStream(self._link, StreamReader(self.session, self.name, after, until))

    def last(self, count: int) -> list[StreamRecord]:
        """Return the last records, oldest first, without reading what lies before them.

        Args:
            count: how many lines of the file; damaged ones among them are left out.

        Returns:
            At most `count` records.

        Raises:
            NotFound: there is no such session.
            BadRequest: the count is below 1.

        Example:
            >>> notes = session.stream("notes")
            >>> ack = notes.append([{"n": 1}, {"n": 2}])
            >>> [record.record for record in notes.last(1)]
            [{'n': 2}]
        """
        reader = StreamReader(self.session, self.name, last=given_count(count, "count"))
        found: list[StreamRecord] = []
        while self._link.fetch(reader):
            found.extend(reader.stream_records(strict=False))
        return found

    def head(self) -> Position:
        """Return the end of the stream.

        Returns:
            The `expect` of the next append; `0:0` before the first append.

        Raises:
            NotFound: there is no such session.

        Example:
            >>> notes = session.stream("notes")
            >>> ack = notes.append([{"n": 1}, {"n": 2}])
            >>> head = notes.head()
            >>> str(head)
            '0:2'
        """
        asked = commands.ReadStream(session=self.session, stream=self.name, last=0, bytes_max=1)
        reply = self._link.ask(asked, replies.Lines)
        return Position.parse(reply.head or reply.next)

    def count(self) -> int:
        """Count the lines.

        Returns:
            The number of records, unless another program wrote some of the lines.

        Raises:
            NotFound: there is no such session.

        Example:
            >>> notes = session.stream("notes")
            >>> ack = notes.append([{"n": 1}, {"n": 2}])
            >>> notes.count()
            2
        """
        return (self.head()).line

    def stat(self) -> StreamInfo:
        """Return its numbers.

        Returns:
            The head, the size and the time of the last change.

        Raises:
            NotFound: nothing was appended yet, or it was deleted since.

        Example:
            >>> notes = session.stream("notes")
            >>> ack = notes.append([{"n": 1}, {"n": 2}])
            >>> notes.stat().records
            2
        """
        asked = commands.Streams(session=self.session, stream=self.name)
        found = (self._link.ask(asked, replies.StreamList)).streams
        if not found:
            raise NotFound(
                f"there is no stream {self.name!r}: the first append creates it",
                session=self.session,
            )
        return stream_info(found[0])

    def subscribe(
        self,
        after: PositionLike = "start",
        *,
        incarnation: str | None = None,
        pace: float = 0.0,
    ) -> BlockingSubscription:
        """Follow it with `for`: the backlog, Live, then each new record once it is durable.

        No record is missed and none is delivered twice, across restarts of the daemon.
        `stream_records` of each event has its records. A deletion ends the subscription with
        NotFound; a later one after an old position begins with a Reset that keeps nothing.

        Args:
            after: `start` (of the present generation), `now`, or a position.
            incarnation: the `incarnation` of the subscription at the time when the position was
                saved, as for `BlockingSession.subscribe`.
            pace: shortest time in seconds between two events with new records, as for
                `BlockingSession.subscribe`.

        Returns:
            The subscription, to be closed or used as a context manager.

        Example:
            >>> notes = session.stream("notes")
            >>> ack = notes.append([{"n": 1}, {"n": 2}])
            >>> with notes.subscribe() as events:
            ...     event = next(events)
            >>> [record.record for record in event.stream_records()]
            [{'n': 1}, {'n': 2}]
        """
        starts = [(f"{STREAM}{self.name}", start_of(after))]
        return BlockingSubscription(self._link, self.session, starts, incarnation, pace=pace)

    def delete(
        self,
        *,
        key: str | None = None,
        expect: PositionLike | None = None,
        successor: str | None = None,
    ) -> Deleted:
        """Delete it; the file stays in the session's folder under another name until it expires.

        Args:
            key: the idempotency key of this deletion: a repeat gets the first answer, also after
                another append.
            expect: the head that the caller assumes; with another head nothing is deleted.
            successor: another stream of the session, which gets this one's name at the instant of
                the deletion, with all its records: readers find those before or those after.
                Choose a name that is used once, as its own positions end.

        Returns:
            The file with the deleted records, and when it expires; the deletion is on the disk.

        Raises:
            NotFound: there is no such session or stream.
            Conflict: another writer was faster.
            BadRequest: the successor is the stream itself.
            OutcomeUnknown: it may have been deleted; repeat with the error's `key`.

        Example:
            >>> notes = session.stream("notes")
            >>> ack = notes.append([{"n": 1}, {"n": 2}])
            >>> deleted = notes.delete()
            >>> notes.count()
            0
        """
        asked = commands.DeleteStream(
            session=self.session,
            stream=self.name,
            key=requests.given_key(key),
            by=self._link.name,
            expect=None if expect is None else requests.position_text(expect),
            successor=successor,
        )
        return deleted_of(self._link.ask(asked, replies.Deleted))
