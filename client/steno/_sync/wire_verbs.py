"""What a blocking session does with its wire file; the verbs are those of `WireSession`."""

from collections.abc import Iterator, Sequence

from steno._sansio.request_builders import Durability, PositionLike, mutation
from steno._sansio.wire_events import (
    Payload,
    WireEvent,
    WireReader,
    encode_events,
    header_fields,
    turn_of,
)
from steno._sync.linked import BlockingLinkedSession
from steno._sync.streams import BlockingWireRecords, blocking_lines, fetch
from steno.values import Ack, Turn, ack_of
from steno_protocol import commands, replies, wire
from steno_protocol.errors import StorageFailed


class BlockingWireSession(BlockingLinkedSession):
    """A session's wire file: what happened while the agent ran, beside what was said."""

    def append_wire(
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
        """Append an event, or a sequence of them as one atomic batch; see `Session.append_wire`."""
        records = encode_events(event, payload, timestamp)
        fields = header_fields(header)
        command = mutation(
            commands.AppendWire, self.id, self._link.name, key, expect, durability, header=fields
        )
        check = self._history_check
        reply, _ = self._link.request(command, replies.Ack, records, check=check)
        return ack_of(reply, command.key)

    def wire_records(
        self,
        after: PositionLike | None = None,
        until: PositionLike | None = None,
        *,
        strict: bool = False,
    ) -> BlockingWireRecords:
        """The events between two positions of the wire file, each with its cursor.

        What is not synced yet is not read yet.

        Args:
            after: begin here.
            until: end here.
            strict: stop with Corrupt at the first line that is neither an event, a header nor
                blank; else such lines are passed over and counted in the `damaged` of what is
                returned.
        """
        return BlockingWireRecords(self._link, WireReader(self.id, after, until, strict=strict))

    def wire_lines(
        self, after: PositionLike | None = None, until: PositionLike | None = None
    ) -> Iterator[bytes]:
        """The lines between two positions of the wire file as bytes, the header included."""
        return blocking_lines(self._link, WireReader(self.id, after, until))

    def wire_version(self) -> str:
        """The version of the events: from the header; `1.1` for a file without one.

        A file that is empty, or not there, is of the version that its first event will bring.
        """
        reader = WireReader(self.id, None)
        while (version := reader.version()) is None:
            if not fetch(self._link, reader):
                return wire.WIRE_VERSION
        return version

    def wire_is_empty(self) -> bool:
        """True when the wire file has no line but blank ones and the header, or is not there.

        False also when it cannot be read, because it may not be empty.
        """
        reader = WireReader(self.id, None)
        try:
            while not reader.has_content():
                if not fetch(self._link, reader):
                    return True
        except StorageFailed:
            return False
        return False

    def turns(self) -> list[Turn]:
        """The turns of the session, oldest first."""
        return [turn for record in self.wire_records() if (turn := turn_of(record))]
