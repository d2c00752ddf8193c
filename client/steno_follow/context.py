"""The context of a session, which gets the messages that its file has now.

Where the reader sees earlier messages otherwise, the session is reverted to the last one that
stays. A context that others changed is left as it is: a person goes on with it.
"""

import re
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any, BinaryIO, Final, Literal, NamedTuple

import msgspec

from steno import BlockingClient
from steno.parts import mutation
from steno.values import decode_object
from steno_agents.following import (
    Agreement,
    Changed,
    Conversation,
    Reading,
    RecordAt,
    agreement,
    messages_of,
)
from steno_agents.transcript import ForeignTranscript, Message
from steno_follow.limits import FOLLOW_BATCH_BYTES, FOLLOW_BATCH_RECORDS_MAX, FOLLOW_PAST_MAX
from steno_follow.outcomes import Followed
from steno_follow.source_notes import AUTHOR, without_stamp
from steno_protocol.commands import (
    Append,
    Clear,
    Mutation,
    RevertTo,
    UpdateTokenCount,
    WriteSystemPrompt,
)
from steno_protocol.positions import Position
from steno_protocol.replies import Ack
from steno_protocol.timeline_entries import REWRITES, ROTATED
from steno_redact.redactor import Redactor

Durability = Literal["synced", "written"]

_PART: Final = re.compile(r"\.(\d+)/\d+\Z")
"""The end of the stamp of a record in a batch: its place there, and the size of the batch."""


class _Request(NamedTuple):
    """A change of the context: a command, its records, and what else it has."""

    kind: type[Mutation]
    records: Sequence[bytes] = ()
    fields: Mapping[str, Any] = {}


class FollowedContext:
    """The context of one session."""

    def __init__(self, client: BlockingClient, session: str, redactor: Redactor | None) -> None:
        self._client = client
        self._name = session
        self._session = client.session(session)
        self._redactor = redactor
        self._conversation: Conversation | None = None
        self._head = Position(0, 0)

    def forget(self) -> None:
        """Drop what is in memory; the next update compares all messages."""
        self._conversation = None

    def update(self, file: BinaryIO, reading: Reading, done: Followed, *, is_settled: bool) -> None:
        """Add the messages that the file has now.

        Args:
            file: the file, to read records again.
            reading: what was read of it.
            done: notes what happened.
            is_settled: no message waits for the rest of it.
        """
        transcript, record_at = reading.transcript, partial(reading.record_at, file)
        if self._conversation is not None:
            more = self._conversation.more(transcript, record_at, is_settled=is_settled)
            try:
                self._add_messages(more, done)
            except Changed:
                self._conversation = None
        if self._conversation is None:
            self._conversation = self._compare(transcript, record_at, done, is_settled=is_settled)
        if self._conversation is not None:
            done.skipped = self._conversation.skipped

    def _compare(
        self,
        transcript: ForeignTranscript,
        record_at: RecordAt,
        done: Followed,
        *,
        is_settled: bool,
    ) -> Conversation | None:
        """Give the context the messages of a transcript; None if it is left as it is."""
        conversation = Conversation()
        self._head = head = Position.parse(self._client.stat(self._name).head)
        # A message that an earlier process added early is not taken back.
        wanted = conversation.more(transcript, record_at, is_settled=is_settled, present=head.line)
        present = self._present()
        found = agreement(present.messages(), wanted, self._is_same)
        before = present.before_in_batch
        # The lines that go must be of no other author, either.
        deque(present.messages(), maxlen=0)
        if present.has_other_author or self._was_rewritten_here(head.generation):
            done.is_continued_here = found.has_more or next(found.missing, None) is not None
            return None
        if found.has_more and transcript.elsewhere is not None:
            # The context has the beginning, from a time when the file was there.
            done.lost_beginning = transcript.elsewhere
            return None
        if found.has_more:
            done.was_reverted = True
            if self._complete_past(transcript, record_at, done):
                return self._compare(transcript, record_at, done, is_settled=is_settled)
        if not self._become(found, before, done):
            return self._compare(transcript, record_at, done, is_settled=is_settled)
        return conversation

    def _present(self) -> "_Present":
        begin = Position(self._head.generation, 0)
        return _Present(self._session.lines(begin, self._head))

    def _become(self, found: Agreement, before: int, done: Followed) -> bool:
        """Let the context have the messages that it was compared with.

        Args:
            found: how far it has them.
            before: the lines that stay, and are of one batch with the first line that goes.
            done: notes what happened.

        Returns:
            False if a batch went as a whole, so that the context has to be compared again.
        """
        if found.has_more:
            self._go_back(Position(self._head.generation, found.same - before))
            if before:
                return False
        self._add_messages(found.missing, done)
        return True

    def _complete_past(
        self, transcript: ForeignTranscript, record_at: RecordAt, done: Followed
    ) -> bool:
        """Add the end of what was replaced: a compaction often follows within the same look.

        Several compactions since the last look become a past generation each. A kill in between
        leaves the beginning of one of them, from which the next look goes on.

        Returns:
            Whether the context has changed.
        """
        past = transcript.histories()[:-1][-FOLLOW_PAST_MAX:]
        compared = (
            (at, self._compared(messages_of(transcript, past[at], record_at)))
            for at in reversed(range(len(past)))
        )
        at = next((at for at, (found, _) in compared if not found.has_more), len(past))
        head = self._head
        for history in past[at:]:
            while not self._become(
                *self._compared(messages_of(transcript, history, record_at)), done
            ):
                pass
        return self._head != head

    def _compared(self, wanted: Iterator[bytes]) -> tuple[Agreement, int]:
        present = self._present()
        found = agreement(present.messages(), wanted, self._is_same)
        return found, present.before_in_batch

    def _was_rewritten_here(self, generation: int) -> bool:
        """Whether the present generation is a rewrite of another author, such as `steno undo`."""
        was_adopted = False
        for entry in self._session.timeline():
            is_rewrite = entry.kind in {*REWRITES, ROTATED} and entry.by != AUTHOR
            # The first import brings past generations along, which only the files show.
            if (
                entry.generation == generation
                and is_rewrite
                and (was_adopted or not entry.inferred)
            ):
                return True
            was_adopted |= not entry.inferred
        return False

    def _is_same(self, record: Message, wanted: Message) -> bool:
        """Whether a record is a message, masked or not."""
        if record == wanted or self._redactor is None:
            return record == wanted
        masked = self._redactor.value(wanted)
        return masked in (record, self._redactor.value(record))

    def _go_back(self, position: Position) -> None:
        """Drop the messages from a position on; they stay in a past generation."""
        why = "the transcript is another one now"
        if position.line:
            self._change(_Request(RevertTo, fields={"position": str(position), "why": why}))
        else:
            self._change(_Request(Clear, fields={"why": why}))

    def _add_messages(self, lines: Iterator[bytes], done: Followed) -> None:
        """Append messages; the last request waits for the disk, and with it the others."""
        waiting: _Request | None = None
        for request in self._requests(lines, done):
            if waiting is not None:
                self._change(waiting, "written")
            waiting = request
        if waiting is not None:
            self._change(waiting)

    def _requests(self, lines: Iterator[bytes], done: Followed) -> Iterator["_Request"]:
        """The requests that append messages, in their order."""
        batch, batch_bytes = list[bytes](), 0
        for line in lines:
            done.messages += 1
            control = _control_of(line)
            is_full = len(batch) >= FOLLOW_BATCH_RECORDS_MAX or batch_bytes >= FOLLOW_BATCH_BYTES
            if batch and (control is not None or is_full):
                yield _Request(Append, batch)
                batch, batch_bytes = [], 0
            if control is None:
                batch.append(line)
                batch_bytes += len(line)
            elif control["role"] == "_usage":
                yield _Request(UpdateTokenCount, fields={"token_count": control["token_count"]})
            else:
                yield _Request(WriteSystemPrompt, fields={"prompt": control["content"]})
        if batch:
            yield _Request(Append, batch)

    def _change(self, request: "_Request", durability: Durability = "synced") -> None:
        command = mutation(
            request.kind, self._name, AUTHOR, None, self._head, durability,
            **request.fields,
        )  # fmt: skip
        ack, _ = self._client.request(command, Ack, request.records)
        self._head = Position.parse(ack.head)


class _Present:
    """The records of a context, without the keys of steno.

    Attributes:
        has_other_author: a record of another author was read.
        before_in_batch: the records of the same batch before the last one that was read.
    """

    def __init__(self, lines: Iterator[bytes]) -> None:
        self.has_other_author = False
        self.before_in_batch = 0
        self._lines = lines

    def messages(self) -> Iterator[Message]:
        """The records that were not read yet."""
        for line in self._lines:
            record = decode_object(line)
            if record is None:
                continue
            self.has_other_author |= "_id" in record and record.get("_by") != AUTHOR
            part = _PART.search(str(record.get("_id", "")))
            self.before_in_batch = 0 if part is None else int(part[1])
            yield without_stamp(record)


def _control_of(line: bytes) -> dict[str, Any] | None:
    """The control record in a line; None if it is a message."""
    if not line.startswith(b'{"role":"_'):
        return None
    record: dict[str, Any] = msgspec.json.decode(line)
    return record
