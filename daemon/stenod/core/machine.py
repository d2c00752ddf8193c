"""The state machine of a session's file: decides each command, without I/O.

The writer calls `decide` for each command of a batch. Decided lines change the speculative state at
once, so the next command of the batch sees them. `commit` makes it the durable state when the bytes
are on the disk; `roll_back` discards it after a failure.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Sequence
from functools import partial
from typing import TypeVar

import msgspec

from steno_protocol import records
from steno_protocol.commands import (
    COMMAND_NAMES,
    Append,
    Checkpoint,
    Clear,
    CompactCommit,
    DeliverDmail,
    Mutation,
    Repair,
    RestoreGeneration,
    RevertTo,
    SendDmail,
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
from steno_protocol.errors import BadRequest, Conflict, Exists, Refused
from steno_protocol.positions import Position, new_position
from steno_protocol.replies import Ack, Mail
from stenod.core.keys import Applied, KeyTable, fingerprint_of_command, fingerprint_of_records
from stenod.core.seek_index import SeekIndex

Checked = TypeVar("Checked")

RewriteCommand = (
    RevertTo | Clear | WriteSystemPrompt | RestoreGeneration | CompactCommit | DeliverDmail | Repair
)
"""The commands that replace the file."""


class Answered(msgspec.Struct, frozen=True, gc=False):
    """The command was applied before; `ack` is its first answer, and nothing is written."""

    ack: Ack


class Lines(msgspec.Struct, frozen=True, gc=False):
    """The command appends lines in one piece."""

    data: bytes
    count: int
    ack: Ack


class Rewrite(msgspec.Struct, frozen=True):
    """The command replaces the file, before any later command is decided.

    Attributes:
        command: the command.
        record: its checked record, empty without one.
    """

    command: RewriteCommand
    record: bytes = b""


class Mailing(msgspec.Struct, frozen=True):
    """The command sends a D-Mail: a timeline entry, written once all earlier lines are durable."""

    command: SendDmail


Decision = Answered | Lines | Rewrite | Mailing


class State(msgspec.Struct):
    """The head of a file, its numbers, and the keys that are not yet durable."""

    head: Position
    counters: ContextCounters
    keys: dict[str, Applied] = msgspec.field(default_factory=dict[str, Applied])


class FileMachine(ABC):
    """One file of a session: its head, numbers and keys, durable and tentative.

    Args:
        session: the session's id, for error messages.
        head: the head of the file.
        counters: its numbers.
        keys: its known keys.
        stamp: whether its lines have `_id` and `_by`.

    Attributes:
        incarnation: the incarnation of the session.
    """

    incarnation: str = ""

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
        self.seek_index = SeekIndex()
        self._durable = State(head, counters)
        self._tentative = State(head, counters.copy())

    @property
    def head(self) -> Position:
        """The durable head."""
        return self._durable.head

    @property
    def tentative_head(self) -> Position:
        """The head after all decided lines, durable or not."""
        return self._tentative.head

    @property
    def tentative_keys(self) -> Collection[str]:
        """The keys of the decided commands that are not durable."""
        return self._tentative.keys

    @property
    def counters(self) -> ContextCounters:
        """The numbers at the durable head."""
        return self._durable.counters

    def applied(self, key: str) -> Applied | None:
        """Return the command of a key, durable or tentative, if it is known."""
        return self._tentative.keys.get(key) or self.keys.get(key)

    def decide(
        self, command: Mutation, data: Sequence[bytes], applied: Applied | None = None
    ) -> Decision:
        """Decide on one command.

        Args:
            command: the command.
            data: its records.
            applied: the result of a lookup of its key in the files, if there was one.

        Raises:
            Refused: the command cannot be applied; the state is unchanged.
        """
        known = self.applied(command.key) or applied
        if known is not None:
            return Answered(self._first_answer(command, data, known))
        return self.decide_new(command, data)

    def decide_new(self, command: Mutation, data: Sequence[bytes]) -> Decision:
        """Decide on one command with a new key."""
        if command.expect is not None:
            self._check_expected(command.expect)
        return self._decide(command, data)

    def commit(self, size: int | None = None) -> Position:
        """Make the tentative state the durable one, and return the new head.

        Args:
            size: bytes of the file up to there, if they are known.
        """
        tentative, durable = self._tentative, self._durable
        self.keys.add_all(tentative.keys)
        durable.head = tentative.head
        durable.counters.become(tentative.counters)
        tentative.keys = {}
        if size is not None and size >= self.seek_index.due_at:
            self.seek_index.record_offset(size, durable.head.line, durable.counters)
        return durable.head

    def keep_but(self, failed: Collection[str]) -> None:
        """Remember the decided keys except those that failed; `roll_back` follows.

        The next opening determines the head; these keys may be recorded nowhere else.
        """
        tentative_keys = self._tentative.keys.items()
        self.keys.add_all({key: applied for key, applied in tentative_keys if key not in failed})

    def roll_back(self) -> None:
        """Drop the tentative state."""
        self._tentative = State(self._durable.head, self._durable.counters.copy())

    def written(self, command: Mutation, data: Sequence[bytes]) -> bytes:
        """Return the lines of these checked records as one batch."""
        return self._stamped(command, data, b"")

    @abstractmethod
    def _gated(self, data: Sequence[bytes]) -> Sequence[bytes]:
        """Check the records of a command; raises Refused."""

    @abstractmethod
    def _contents(self, command: Mutation, data: Sequence[bytes]) -> int | None:
        """Return the fingerprint of a command with these checked records, see `contents`."""

    @abstractmethod
    def _decide(self, command: Mutation, data: Sequence[bytes]) -> Decision:
        """Decide on a new command with a matching `expect`."""

    def _check_each(
        self, data: Sequence[bytes], check: Callable[[bytes], Checked]
    ) -> list[Checked]:
        """Check each record of a batch; an error names the record."""
        checked: list[Checked] = []
        try:
            for record in data:
                checked.append(check(record))  # noqa: PERF401  # the error names how many passed
        except Refused as error:
            where = f"record {len(checked) + 1} of {len(data)}: " if len(data) > 1 else ""
            raise type(error)(where + error.message, session=self.session) from None
        return checked

    def _put(
        self,
        command: Mutation,
        data: Sequence[bytes],
        contents: int | None,
        *,
        checkpoint_id: int | None = None,
        header: bytes = b"",
        facts: bytes = b"",
    ) -> Lines:
        """Append checked records.

        Args:
            command: the command.
            data: its records.
            contents: its fingerprint, see `contents`.
            checkpoint_id: the id of a checkpoint.
            header: a line before the records.
            facts: keys that are inserted into each record.
        """
        state = self._tentative
        first = state.head
        generation, line = first
        count = len(data)
        if header:
            line += 1
            count += 1
            first = Position(generation, line)
        name = COMMAND_NAMES[type(command)]
        applied = Applied(name, first, len(data), checkpoint_id, contents=contents)
        state.head = new_position(Position, (generation, line + len(data)))
        state.keys[command.key] = applied
        lines = header + self._stamped(command, data, facts)
        return Lines(lines, count, self.ack_of(applied, duplicate=False))

    def _stamped(self, command: Mutation, data: Sequence[bytes], facts: bytes) -> bytes:
        if not self.stamp:
            return b"".join([record + b"\n" for record in data])
        by = command.by
        if by is not None and command.claim is not None:
            by = records.claimed(by, command.claim)
        if len(data) == 1:
            return records.stamped_line(data[0], facts, command.key, by)
        return records.batch_lines(data, facts, command.key, by)

    def _check_expected(self, expect: str) -> None:
        head = self._tentative.head
        if Position.parse(expect) != head:
            raise Conflict(
                f"another writer was faster: {expect} was expected and the session ends at"
                f" {head}; read from there, then decide again",
                session=self.session,
                head=str(head),
            )

    def _first_answer(self, command: Mutation, data: Sequence[bytes], applied: Applied) -> Ack:
        name = command_name(command)
        if applied.command != name:
            raise BadRequest(
                f"the key {command.key!r} belongs to a command {applied.command!r} at"
                f" {applied.first}: a key names one command for ever; use a new key for this"
                f" {name!r}",
                session=self.session,
            )
        if applied.contents is not None and self._asked(command, data) != applied.contents:
            raise Conflict(
                f"the key {command.key!r} was used before with other contents, by the {name!r} at"
                f" {applied.first}, and nothing was written now: repeat it with the same contents,"
                " or use a new key",
                session=self.session,
                head=str(self._tentative.head),
            )
        return self.ack_of(applied, duplicate=True)

    def ack_of(self, applied: Applied, *, duplicate: bool) -> Ack:
        """Return the ack of an applied command."""
        # Formatted directly: creating `Position` objects costs as much as the rest of a decision.
        (generation, line), count = applied.first, applied.count
        first = f"{generation}:{line}"
        at = applied.first if applied.command == "checkpoint" else applied.checkpoint_at
        return Ack(
            first=first,
            last=first if count <= 1 else f"{generation}:{line + count - 1}",
            head=f"{generation}:{line + count}",
            duplicate=duplicate,
            checkpoint_id=applied.checkpoint_id,
            rotated=applied.rotated,
            checkpoint_at=None if at is None else str(at),
            incarnation=None if at is None else self.incarnation,
        )

    def _asked(self, command: Mutation, data: Sequence[bytes]) -> int | None:
        """Return the fingerprint of a repeat; None if its records are invalid."""
        try:
            return self._contents(command, self._gated(data))
        except Refused:
            return None


def moved(ack: Ack, lines: int, *, overtaken: bool) -> Ack:
    """Return the ack of a command whose lines are `lines` lines further down."""
    first, last, head = (Position.parse(text) for text in (ack.first, ack.last, ack.head))
    at = None if ack.checkpoint_at is None else Position.parse(ack.checkpoint_at)
    return msgspec.structs.replace(
        ack,
        first=str(Position(first.generation, first.line + lines)),
        last=str(Position(last.generation, last.line + lines)),
        head=str(Position(head.generation, head.line + lines)),
        checkpoint_at=None if at is None else str(Position(at.generation, at.line + lines)),
        overtaken=overtaken,
    )


_check_verbatim = partial(records.check_message, verbatim=True)


class Machine(FileMachine):
    """The context of one session.

    Attributes:
        mail: the pending D-Mail.
        delivered: the id of the mail that was delivered last.
        checkpoint_floor: the smallest id of the next checkpoint, whatever the lines are.
        reuses_ids: ids count as in kimi-cli, which assigns the ids that a revert removed again.
        unreserved_id: the first id that no running compaction has reserved. No line contains it,
            and no reader sees it.
    """

    mail: Mail | None = None
    delivered: str | None = None
    checkpoint_floor: int = 0
    reuses_ids: bool = False
    unreserved_id: int = 0

    def reserve_checkpoint_id(self) -> int:
        """Reserve the next checkpoint id for a compaction, until the next rewrite."""
        number = self.next_checkpoint_id
        self.unreserved_id = number + 1
        return number

    def release_checkpoint_id(self, number: int) -> None:
        """Release a reserved id, unless a later one was assigned."""
        if self.unreserved_id == number + 1:
            self.unreserved_id = number

    @property
    def next_checkpoint_id(self) -> int:
        """The id of the next checkpoint, beyond reserved ids."""
        return max(self._tentative.counters.n_checkpoints, self.unreserved_id)

    def mailed(self, mail: Mail, applied: Applied) -> Ack:
        """Note a sent D-Mail as pending, and return its ack."""
        self.mail = mail
        self.keys.add(mail.id, applied)
        return self.ack_of(applied, duplicate=False)

    def rewritten(
        self, key: str, applied: Applied, head: Position, counters: ContextCounters
    ) -> Ack:
        """Take over the state after a rewrite, and return its ack."""
        self.keys.add(key, applied)
        self._durable = State(head, counters)
        self._tentative = State(head, counters.copy())
        self.unreserved_id = 0
        return self.ack_of(applied, duplicate=False)

    def _decide(self, command: Mutation, data: Sequence[bytes]) -> Decision:
        match command:
            case Append():
                return self._append(command, data)
            case Checkpoint():
                return self._checkpoint(command)
            case UpdateTokenCount():
                record = records.usage_record(command.token_count)
                return self._lines(command, [record], [Usage(command.token_count)])
            case WriteSystemPrompt() if self._tentative.head.line == 0:
                record = records.system_prompt_record(command.prompt)
                return self._lines(command, [record], [SystemPrompt(command.prompt)])
            case (
                WriteSystemPrompt()
                | RevertTo()
                | Clear()
                | RestoreGeneration()
                | DeliverDmail()
                | Repair()
            ):
                return Rewrite(command)
            case CompactCommit():
                return Rewrite(command, self._summary(data))
            case SendDmail():
                return self._send(command)
            case _:
                raise BadRequest(f"the command {command_name(command)!r} is not for the context")

    def _gated(self, data: Sequence[bytes]) -> Sequence[bytes]:
        check = records.check_message if self.stamp else _check_verbatim
        return [record.data for record in self._check_each(data, check)]

    def _contents(self, command: Mutation, data: Sequence[bytes]) -> int | None:
        is_append = isinstance(command, Append)
        return fingerprint_of_records(data) if is_append else fingerprint_of_command(command)

    def _append(self, command: Append, data: Sequence[bytes]) -> Lines:
        if command.after_key is not None and self.applied(command.after_key) is None:
            head = self._tentative.head
            raise Conflict(
                f"the command with the key {command.after_key!r} must be applied before this one,"
                f" and is not known in the session, which ends at {head}: send that one first, or"
                " leave after_key out",
                session=self.session,
                head=str(head),
            )
        chars = records.plain_chars(data) if self.stamp else None
        if chars is not None:
            self._tentative.counters.apply_messages(chars)
            return self._put(command, data, fingerprint_of_records(data))
        checked = self._check_each(data, records.check_message if self.stamp else _check_verbatim)
        for record in checked:
            self._tentative.counters.apply_messages(record.text_chars)
        gated = [record.data for record in checked]
        return self._put(command, gated, fingerprint_of_records(gated))

    def _summary(self, data: Sequence[bytes]) -> bytes:
        if len(data) != 1:
            raise BadRequest(
                f"compact_commit takes one record, the summary, and got {len(data)}",
                session=self.session,
            )
        checked = self._check_each(data, records.check_message)[0]
        if records.decode_object(checked.data)["role"] != "user":
            raise BadRequest("the summary has to have the role user", session=self.session)
        return checked.data

    def _send(self, command: SendDmail) -> Mailing:
        if self.mail is not None and self.mail.id != command.replaces:
            raise Exists(
                f"the D-Mail {self.mail.id} to checkpoint {self.mail.checkpoint_id} is pending:"
                " deliver it first, or name it in `replaces`",
                session=self.session,
            )
        return Mailing(command)

    def _checkpoint(self, command: Checkpoint) -> Lines:
        number = self.next_checkpoint_id
        data = [records.checkpoint_record(number)]
        lines: list[Line] = [CheckpointLine(number)]
        if command.add_user_message:
            notice = records.check_message(records.checkpoint_notice(number))
            data.append(notice.data)
            lines.append(MessageLine(notice.text_chars))
        return self._lines(command, data, lines, checkpoint_id=number)

    def _lines(
        self,
        command: Mutation,
        data: list[bytes],
        lines: Sequence[Line],
        checkpoint_id: int | None = None,
    ) -> Lines:
        for line in lines:
            self._tentative.counters.apply(line)
        asked = fingerprint_of_command(command)
        return self._put(command, data, asked, checkpoint_id=checkpoint_id)
