"""A session's state, and what each command makes of it: the decisions of its writer, and no I/O.

The writer asks `decide` for each command of a group. Lines that are decided upon change the
speculative state at once, so that the next command of the group sees them; `commit` makes it the
true state once the bytes are on disk, `roll_back` forgets it when they are not.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import assert_never

from steno_protocol import records
from steno_protocol.commands import (
    Append,
    Checkpoint,
    Clear,
    Mutation,
    RestoreGeneration,
    RevertTo,
    UpdateTokenCount,
    WriteSystemPrompt,
    command_name,
)
from steno_protocol.context import (
    Checkpoint as CheckpointLine,
)
from steno_protocol.context import (
    ContextCounters,
    Line,
    MessageLine,
    SystemPrompt,
    Usage,
)
from steno_protocol.errors import BadRequest, Conflict, Refused
from steno_protocol.positions import Position
from steno_protocol.replies import Ack
from stenod.core.keys import Applied, KeyTable

AnyMutation = (
    Append | Checkpoint | UpdateTokenCount | WriteSystemPrompt | RevertTo | Clear
    | RestoreGeneration
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Answered:
    """The command was applied before: this is its first answer, and nothing is written."""

    ack: Ack


@dataclass(frozen=True, slots=True)
class Lines:
    """The command appends these lines, in one piece."""

    data: bytes
    ack: Ack


@dataclass(frozen=True, slots=True)
class Rewrite:
    """The command replaces the file; nothing is decided after it before it is done."""

    command: RevertTo | Clear | WriteSystemPrompt | RestoreGeneration


Decision = Answered | Lines | Rewrite


@dataclass(slots=True)
class _State:
    head: Position
    counters: ContextCounters
    keys: dict[str, Applied] = field(default_factory=dict[str, Applied])


class Machine:
    """One session: its head, its counters and its keys.

    Args:
        session: the session's id, for error messages.
        head: where the file ends.
        counters: what its lines say.
        keys: the keys that are known.
        stamp: whether lines bear `_id` and `_by`.
    """

    def __init__(
        self,
        session: str,
        head: Position,
        counters: ContextCounters,
        keys: KeyTable,
        *,
        stamp: bool,
    ) -> None:
        self.session = session
        self.keys = keys
        self.stamp = stamp
        self._durable = _State(head, counters)
        self._spoken = _State(head, counters.copy())

    @property
    def head(self) -> Position:
        """The end of what is durable."""
        return self._durable.head

    @property
    def spoken_head(self) -> Position:
        """The end of what was decided, durable or not."""
        return self._spoken.head

    @property
    def counters(self) -> ContextCounters:
        """The numbers at the end of what is durable."""
        return self._durable.counters

    def applied(self, key: str) -> Applied | None:
        """What is known of a key, the commands that are decided but not yet durable included."""
        return self._spoken.keys.get(key) or self.keys.get(key)

    def decide(
        self, command: AnyMutation, data: Sequence[bytes], applied: Applied | None = None
    ) -> Decision:
        """Decide on one command.

        Args:
            command: the command.
            data: the records that came with it.
            applied: what a lookup of its key in the files found, if one was made.

        Raises:
            Refused: with the reason; the state is as before.
        """
        known = self.applied(command.key) or applied
        if known is not None:
            return Answered(self._first_answer(command, known))
        self._check_expected(command)
        match command:
            case Append():
                return self._append(command, data)
            case Checkpoint():
                return self._checkpoint(command)
            case UpdateTokenCount():
                record = records.usage_record(command.token_count)
                return self._control(command, record, Usage(command.token_count))
            case WriteSystemPrompt() if self._spoken.head.line == 0:
                record = records.system_prompt_record(command.prompt)
                return self._control(command, record, SystemPrompt(command.prompt))
            case WriteSystemPrompt() | RevertTo() | Clear() | RestoreGeneration():
                return Rewrite(command)
            case _:
                assert_never(command)

    def commit(self) -> None:
        """All that was decided is durable now."""
        for key, applied in self._spoken.keys.items():
            self.keys.add(key, applied)
        self._durable = _State(self._spoken.head, self._spoken.counters.copy())
        self._spoken.keys = {}

    def roll_back(self) -> None:
        """Forget what was decided and is not durable."""
        self._spoken = _State(self._durable.head, self._durable.counters.copy())

    def rewritten(
        self, key: str, applied: Applied, head: Position, counters: ContextCounters
    ) -> Ack:
        """A rewrite took place: take its state, and answer it."""
        self.keys.add(key, applied)
        self._durable = _State(head, counters)
        self._spoken = _State(head, counters.copy())
        return ack_of(applied, duplicate=False)

    def _append(self, command: Append, data: Sequence[bytes]) -> Lines:
        checked = [self._check(index, record, len(data)) for index, record in enumerate(data)]
        lines = [MessageLine(record.text_chars) for record in checked]
        return self._lines(command, [record.data for record in checked], lines)

    def _check(self, index: int, record: bytes, count: int) -> records.CheckedRecord:
        try:
            return records.check_message(record, verbatim=not self.stamp)
        except Refused as error:
            where = f"record {index} of {count}: " if count > 1 else ""
            raise type(error)(where + error.message, session=self.session) from None

    def _checkpoint(self, command: Checkpoint) -> Lines:
        number = self._spoken.counters.n_checkpoints
        data = [records.checkpoint_record(number)]
        lines: list[Line] = [CheckpointLine(number)]
        if command.add_user_message:
            notice = records.check_message(records.checkpoint_notice(number))
            data.append(notice.data)
            lines.append(MessageLine(notice.text_chars))
        return self._lines(command, data, lines, checkpoint_id=number)

    def _control(self, command: AnyMutation, record: bytes, line: Line) -> Lines:
        return self._lines(command, [record], [line])

    def _lines(
        self,
        command: AnyMutation,
        data: list[bytes],
        lines: Sequence[Line],
        checkpoint_id: int | None = None,
    ) -> Lines:
        state = self._spoken
        first = state.head
        for line in lines:
            state.counters.apply(line)
        applied = Applied(command_name(command), first, len(data), checkpoint_id)
        state.head = Position(first.generation, first.line + len(data))
        state.keys[command.key] = applied
        written = b"".join(self._stamped(command, data))
        return Lines(written, ack_of(applied, duplicate=False))

    def _stamped(self, command: AnyMutation, data: list[bytes]) -> Iterator[bytes]:
        if not self.stamp:
            return (record + b"\n" for record in data)
        stamps = records.stamps(command.key, len(data), command.by)
        return map(records.line, data, stamps)

    def _check_expected(self, command: Mutation) -> None:
        head = self._spoken.head
        if command.expect is not None and Position.parse(command.expect) != head:
            raise Conflict(
                f"another writer was faster: {command.expect} was expected and the session ends at"
                f" {head}; read from there, then decide again",
                session=self.session,
                head=str(head),
            )

    def _first_answer(self, command: AnyMutation, applied: Applied) -> Ack:
        name = command_name(command)
        if applied.command != name:
            raise BadRequest(
                f"the key {command.key!r} belongs to a command {applied.command!r} at"
                f" {applied.first}: a key names one command for ever; use a new one for this"
                f" {name!r}",
                session=self.session,
            )
        return ack_of(applied, duplicate=True)


def ack_of(applied: Applied, *, duplicate: bool) -> Ack:
    """The answer that tells of an applied command."""
    generation, line = applied.first
    last = Position(generation, line + max(applied.count - 1, 0))
    return Ack(
        first=str(applied.first),
        last=str(last),
        head=str(Position(generation, line + applied.count)),
        duplicate=duplicate,
        checkpoint_id=applied.checkpoint_id,
        rotated=applied.rotated,
    )
