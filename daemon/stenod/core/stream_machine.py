"""Decisions on the commands of a session's stream."""

from collections.abc import Sequence

from steno_protocol.commands import AppendStream, Mutation, command_name
from steno_protocol.context import ContextCounters
from steno_protocol.errors import BadRequest
from steno_protocol.positions import Position
from steno_protocol.records import check_record
from stenod.core.keys import KeyTable, fingerprint_of_records
from stenod.core.machine import Decision, FileMachine

_EMPTY = b"{}"


class StreamMachine(FileMachine):
    """A stream of one session: an append-only file of records that steno does not interpret.

    Args:
        session: the session's id, for error messages.
        head: the head of the file.
        keys: its known keys.
        stamp: whether its lines have `_id` and `_by`.
    """

    def __init__(self, session: str, head: Position, keys: KeyTable, *, stamp: bool) -> None:
        super().__init__(session, head, ContextCounters(), keys, stamp=stamp)

    def _gated(self, data: Sequence[bytes]) -> Sequence[bytes]:
        return self._check_each(data, check_record)

    def _contents(self, command: Mutation, data: Sequence[bytes]) -> int | None:
        return fingerprint_of_records(data) if isinstance(command, AppendStream) else None

    def _decide(self, command: Mutation, data: Sequence[bytes]) -> Decision:
        if not isinstance(command, AppendStream):
            raise BadRequest(f"the command {command_name(command)!r} is not for a stream")
        checked = self._gated(data)
        return self._put(command, checked, fingerprint_of_records(checked))

    def _stamped(self, command: Mutation, data: Sequence[bytes], facts: bytes) -> bytes:
        lines = super()._stamped(command, data, facts)
        if self.stamp and _EMPTY in data:
            # The stamp begins with a comma, which an empty object must not have. These bytes occur
            # nowhere else: in valid JSON a comma follows no brace, and no underscore a string.
            return lines.replace(b'{,"_', b'{"_')
        return lines
