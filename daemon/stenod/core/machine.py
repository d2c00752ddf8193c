"""Decisions on the commands of a session's context."""

from collections.abc import Sequence
from functools import partial

from steno_protocol import records
from steno_protocol.commands import (
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
from steno_protocol.errors import BadRequest, Exists
from steno_protocol.positions import Position
from steno_protocol.replies import Ack, Mail
from stenod.core import contents
from stenod.core.keys import Applied
from stenod.core.speculation import Decision, Lines, Mailing, Rewrite, Speculation, State, ack_of

_check_verbatim = partial(records.check_message, verbatim=True)


class Machine(Speculation):
    """The context of one session.

    Attributes:
        mail: the pending D-Mail.
        delivered: the id of the mail that was delivered last.
        checkpoint_floor: the id of the next checkpoint while the file has none.
        unreserved_id: the first id that no running compaction has reserved. No line contains it,
            and no reader sees it.
    """

    mail: Mail | None = None
    delivered: str | None = None
    checkpoint_floor: int = 0
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
        return ack_of(applied, duplicate=False)

    def rewritten(
        self, key: str, applied: Applied, head: Position, counters: ContextCounters
    ) -> Ack:
        """Take over the state after a rewrite, and return its ack."""
        self.keys.add(key, applied)
        self._durable = State(head, counters)
        self._tentative = State(head, counters.copy())
        self.unreserved_id = 0
        return ack_of(applied, duplicate=False)

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
        return contents.of_records(data) if is_append else contents.of_command(command)

    def _append(self, command: Append, data: Sequence[bytes]) -> Lines:
        chars = records.plain_chars(data) if self.stamp else None
        if chars is not None:
            self._tentative.counters.apply_messages(chars)
            return self._put(command, data, contents.of_records(data))
        checked = self._check_each(data, records.check_message if self.stamp else _check_verbatim)
        for record in checked:
            self._tentative.counters.apply_messages(record.text_chars)
        gated = [record.data for record in checked]
        return self._put(command, gated, contents.of_records(gated))

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
        asked = contents.of_command(command)
        return self._put(command, data, asked, checkpoint_id=checkpoint_id)
