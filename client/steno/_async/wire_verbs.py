"""What an async session does with its wire file."""

from collections.abc import AsyncIterator, Sequence
from typing import TYPE_CHECKING, Self

from steno._async.linked import LinkedSession
from steno._async.subscription import LineStream, fetch
from steno._sansio.request_builders import Durability, PositionLike, mutation
from steno._sansio.wire_events import (
    Payload,
    WireEvent,
    WireReader,
    encode_events,
    header_fields,
    turn_of,
)
from steno.values import Ack, Turn, WireRecord, ack_of
from steno_protocol import commands, replies, wire
from steno_protocol.errors import StorageFailed

if TYPE_CHECKING:
    from steno._async.link import Link


class WireSession(LinkedSession):
    """A session's wire file: what happened while the agent ran, beside what was said.

    Its positions are its own and have nothing to do with those of the context; `at` of a record
    joins the two.
    """

    async def append_wire(
        self,
        event: str | Sequence[WireEvent],
        payload: Payload | None = None,
        timestamp: float | None = None,
        *,
        key: str | None = None,
        expect: PositionLike | None = None,
        durability: Durability = "written",
        header: Payload | None = None,
    ) -> Ack:
        """Append an event, or a sequence of them as one atomic batch.

        Args:
            event: the type of the event; or events, each `(type, payload)`,
                `(type, payload, timestamp)`, a WireRecord, or a whole record.
            payload: the contents of the event, an object.
            timestamp: Unix time in seconds, now if it is not given.
            durability: `written` returns when the bytes are in the page cache; they are synced
                within a second, within 50 ms while somebody follows the file, and seen by readers
                only then. The ack says what was reached.
            header: further fields of the file's header line, such as `session_id`, if this begins
                the file; else they are checked and not used.

        Raises:
            As `append_message`.
        """
        self._refuse_when_ended()
        records = encode_events(event, payload, timestamp)
        fields = header_fields(header)
        command = mutation(
            commands.AppendWire, self.id, self._link.name, key, expect, durability, header=fields
        )
        reply, _ = await self._link.request(command, replies.Ack, records)
        return ack_of(reply, command.key)

    def wire_records(
        self,
        after: PositionLike | None = None,
        until: PositionLike | None = None,
        *,
        strict: bool = False,
    ) -> "WireRecordStream":
        """The events between two positions of the wire file, each with its cursor.

        What is not synced yet is not read yet.

        Args:
            after: begin here.
            until: end here.
            strict: stop with Corrupt at the first line that is neither an event, a header nor
                blank; else such lines are passed over and counted in the `damaged` of what is
                returned.
        """
        return WireRecordStream(self._link, WireReader(self.id, after, until, strict=strict))

    def wire_lines(
        self, after: PositionLike | None = None, until: PositionLike | None = None
    ) -> LineStream:
        """The lines between two positions of the wire file as bytes, the header included."""
        return LineStream(self._link, WireReader(self.id, after, until))

    async def wire_version(self) -> str:
        """The version of the events: from the header; `1.1` for a file without one.

        A file that is empty, or not there, is of the version that its first event will bring.
        """
        reader = WireReader(self.id, None)
        while (version := reader.version()) is None:
            if not await fetch(self._link, reader):
                return wire.WIRE_VERSION
        return version

    async def wire_is_empty(self) -> bool:
        """True when the wire file has no line but blank ones and the header, or is not there.

        False also when it cannot be read, because it may not be empty.
        """
        reader = WireReader(self.id, None)
        try:
            while not reader.has_content():
                if not await fetch(self._link, reader):
                    return True
        except StorageFailed:
            return False
        return False

    async def turns(self) -> list[Turn]:
        """The turns of the session, oldest first."""
        return [turn async for record in self.wire_records() if (turn := turn_of(record))]


class WireRecordStream(AsyncIterator[WireRecord]):
    """Events with their cursors, fetched block by block."""

    def __init__(self, link: "Link", reader: WireReader) -> None:
        self._link = link
        self._reader = reader

    @property
    def damaged(self) -> int:
        """Lines that were no events and were passed over so far."""
        return self._reader.damaged

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> WireRecord:
        """The next event."""
        while (record := self._reader.next_event()) is None:
            if not await fetch(self._link, self._reader):
                raise StopAsyncIteration
        return record
