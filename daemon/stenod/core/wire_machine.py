"""What `append_wire` makes of a session's wire file: events behind one header."""

from collections.abc import Callable, Sequence
from typing import Final

from steno_protocol.commands import AppendWire, Mutation, command_name
from steno_protocol.context import ContextCounters
from steno_protocol.errors import BadRequest
from steno_protocol.positions import Position
from steno_protocol.wire import check_event, metadata_line
from stenod.core import contents
from stenod.core.keys import KeyTable
from stenod.core.speculation import Decision, Speculation

_START: Final = Position(0, 0)


class WireMachine(Speculation):
    """The wire file of one session.

    Args:
        session: the session's id, for error messages.
        head: where the file ends.
        keys: the keys that are known.
        stamp: whether lines bear `_at`, `_by` and `_id`.
        context_head: returns the context's durable head, which joins each event to it.
        floor: what the last event was joined to: another program can cut the context, and even
            then no event is joined to an earlier place than the one before it.
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
        super().__init__(session, head, ContextCounters(), keys, stamp=stamp)
        self._context_head = context_head
        self._floor = floor

    def _gated(self, data: Sequence[bytes]) -> Sequence[bytes]:
        return self._check_each(data, check_event)

    def _contents(self, command: Mutation, data: Sequence[bytes]) -> int | None:
        return contents.of_events(data) if isinstance(command, AppendWire) else None

    def _decide(self, command: Mutation, data: Sequence[bytes]) -> Decision:
        if not isinstance(command, AppendWire):
            raise BadRequest(f"the command {command_name(command)!r} is not for the wire file")
        checked = self._check_each(data, check_event)
        # The header is written exactly once: only the one writer ever sees the file empty.
        begun = metadata_line(command.header)
        header = begun if self._tentative.head.line == 0 else b""
        self._floor = max(self._floor, self._context_head())
        facts = f',"_at":"{self._floor}"'.encode()
        asked = contents.of_events(checked)
        return self._put(command, checked, asked, header=header, facts=facts)
