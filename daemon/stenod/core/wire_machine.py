"""Decisions on the commands of a session's wire file."""

from collections.abc import Callable, Sequence
from typing import Final

from steno_protocol.commands import AppendWire, Mutation, command_name
from steno_protocol.errors import BadRequest
from steno_protocol.positions import Position
from steno_protocol.wire import check_event, metadata_line
from stenod.core.keys import KeyTable, fingerprint_of_events
from stenod.core.machine import Decision
from stenod.core.stream_machine import StreamMachine

_START: Final = Position(0, 0)


class WireMachine(StreamMachine):
    """The wire file of one session: a stream of events with a header.

    Args:
        session: the session's id, for error messages.
        head: the head of the file.
        keys: its known keys.
        stamp: whether lines have `_at`, `_by` and `_id`.
        context_head: returns the context's durable head, the `_at` of each event.
        floor: the `_at` of the last event. `_at` never falls, even if another program cuts the
            context.
    """

    def __init__(
        self,
        session: str,
        head: Position,
        keys: KeyTable,
        *,
        stamp: bool,
        context_head: Callable[[], Position],
        floor: Position = _START,
    ) -> None:
        super().__init__(session, head, keys, stamp=stamp)
        self._context_head = context_head
        self._floor = floor

    def _gated(self, data: Sequence[bytes]) -> Sequence[bytes]:
        return self._check_each(data, check_event)

    def _contents(self, command: Mutation, data: Sequence[bytes]) -> int | None:
        return fingerprint_of_events(data) if isinstance(command, AppendWire) else None

    def _decide(self, command: Mutation, data: Sequence[bytes]) -> Decision:
        if not isinstance(command, AppendWire):
            raise BadRequest(f"the command {command_name(command)!r} is not for the wire file")
        checked = self._gated(data)
        # The header is written exactly once, because there is only one writer.
        begun = metadata_line(command.header)
        header = begun if self._tentative.head.line == 0 else b""
        self._floor = max(self._floor, self._context_head())
        facts = f',"_at":"{self._floor}"'.encode()
        asked = fingerprint_of_events(checked)
        return self._put(command, checked, asked, header=header, facts=facts)
