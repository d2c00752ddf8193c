"""Values of the client: acks, records, turns, mails and events."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal, cast

import msgspec

from steno_protocol import replies, wire
from steno_protocol.errors import BadRequest
from steno_protocol.lines import split_lines
from steno_protocol.positions import Position

_decode = msgspec.json.Decoder().decode

File = Literal["context", "wire"]
"""Which of a session's files: its messages, or what happened while the agent ran."""


class Ack(msgspec.Struct, frozen=True):
    """What is true now that a mutation has returned.

    Attributes:
        first: cursor of the command's first record; the new head for a rewrite.
        last: cursor of its last record; the new head for a rewrite.
        head: where the session ended right after the command.
        durability: what was reached. `synced`: the bytes are on the disk. `written`: they are in
            the page cache, survive the death of the daemon, and may be lost in a power cut.
        duplicate: the key had been applied before; this is the answer of that time.
        checkpoint_id: the id of the checkpoint that was set, or that a D-Mail goes back to.
        rotated: for a rewrite, the file that holds what was left behind.
        overtaken: lines of a foreign program came between `expect` and the command's own.
        key: the command's idempotency key.
    """

    first: Position
    last: Position
    head: Position
    durability: Literal["synced", "written"]
    duplicate: bool
    checkpoint_id: int | None
    rotated: Path | None
    overtaken: bool
    key: str


class SentMail(Ack, frozen=True):
    """The ack of a D-Mail."""

    @property
    def id(self) -> str:
        """The mail's id, which is the key of the command that sent it."""
        return self.key


class Mail(msgspec.Struct, frozen=True):
    """A D-Mail that waits for its delivery.

    Attributes:
        id: its name for ever.
        checkpoint_id: the checkpoint that it goes back to.
        message: what it says.
        cursor: where that checkpoint's line lies; ids are reused, cursors are not.
        by: the client that sent it.
        at: when it was sent, Unix time in seconds.
    """

    id: str
    checkpoint_id: int
    message: str
    cursor: Position
    by: str | None
    at: float


class Compacted(msgspec.Struct, frozen=True):
    """What a compaction did.

    Attributes:
        ack: of the rewrite; its `rotated` holds all that was there before.
        messages: how many messages the summary stands for.
        summary: its text.
        tokens: its token count as reported by the model, or an estimate.
        checkpoint_id: the checkpoint before the summary.
        cut: where the lines that were summarised ended, in the generation that was left behind.
        at: where the session ended when the compaction began, in that generation.
    """

    ack: Ack
    messages: int
    summary: str
    tokens: int
    checkpoint_id: int
    cut: Position
    at: Position


class Deleted(msgspec.Struct, frozen=True):
    """What became of a deleted session.

    Attributes:
        trash: the folder that its files lie in now.
        expires_at: Unix time in seconds from which on they may be removed.
    """

    trash: Path
    expires_at: float


class Record(msgspec.Struct, frozen=True):
    """One line of a session: its cursor, its JSON object, and its bytes with the newline."""

    cursor: Position
    record: dict[str, Any]
    raw: bytes


class WireRecord(msgspec.Struct, frozen=True):
    """One event of a session's wire file.

    Attributes:
        cursor: its position in the wire file.
        timestamp: Unix time in seconds, as its writer gave it.
        type: what kind of event it is.
        payload: its contents.
        at: up to where the context was durable when it was written; None in an event that steno
            did not write, or that bears no facts of its own.
        raw: its bytes with the newline.
    """

    cursor: Position
    timestamp: float
    type: str
    payload: dict[str, Any]
    at: Position | None
    raw: bytes


class Turn(msgspec.Struct, frozen=True):
    """One turn of a session, from the event `TurnBegin` of its wire file.

    Attributes:
        cursor: position of that event in the wire file.
        timestamp: Unix time in seconds at which it began.
        at: up to where the context was durable then, None where that is not known.
        user_input: what the user said, as the event has it: a text, a list of parts, or None.
    """

    cursor: Position
    timestamp: float
    at: Position | None
    user_input: Any


class RecordsEvent(msgspec.Struct, frozen=True):
    """Durable lines that follow each other; `first` and `next` are the positions around them.

    Attributes:
        block: the lines as they lie in the file, each with its newline. They are decoded only when
            `records` is asked for.
        file: the file of the records and of the positions.
    """

    first: Position
    next: Position
    block: bytes
    file: File = "context"

    def lines(self) -> list[bytes]:
        """The lines, each with its newline."""
        return split_lines(self.block)

    def records(self) -> list[Record]:
        """The records; blank lines and lines that are no JSON object are left out."""
        return [record for _, record in decode_block(self.first, self.block) if record is not None]

    def wire_records(self) -> list[WireRecord]:
        """The events of a wire file; its header, blank and damaged lines are left out."""
        return list(_wire_records(self.first, self.block))


class Live(msgspec.Struct, frozen=True):
    """The backlog of a file ends here; what follows is new."""

    head: Position
    file: File = "context"


class Reset(msgspec.Struct, frozen=True):
    """A rewrite took place: the first `kept` lines live on in `generation`, the rest is gone.

    Records continue from position `generation:kept`. A new `incarnation` means that the session was
    deleted and created again. Nothing rewrites a wire file, so a Reset of one reports only that, or
    another program that cut the file. Until the records up to `head` have arrived, a reader may
    have seen half of the rewrite. Checkpoint ids below `checkpoint_floor` were given out, although
    the lines of that generation contain none of them.
    """

    generation: int
    kept: int
    why: str
    incarnation: str
    head: Position
    file: File = "context"
    checkpoint_floor: int = 0


class DmailEvent(msgspec.Struct, frozen=True):
    """A change of a D-Mail's state; a pending one is sent again after Live.

    Attributes:
        state: what became of it; `expired` means that a rewrite removed its checkpoint.
        id: the mail's id.
        checkpoint_id: the checkpoint that it goes back to.
        file: always the context's.
    """

    state: Literal["sent", "delivered", "expired"]
    id: str
    checkpoint_id: int
    file: File = "context"


SubscriptionEvent = RecordsEvent | Live | Reset | DmailEvent


def ack_of(reply: replies.Ack, key: str) -> Ack:
    """The caller's view of an ack."""
    first = Position.parse(reply.first)
    last = first if reply.last == reply.first else Position.parse(reply.last)
    return Ack(
        first=first,
        last=last,
        head=last if reply.head == reply.last else Position.parse(reply.head),
        durability=reply.durability,
        duplicate=reply.duplicate,
        checkpoint_id=reply.checkpoint_id,
        rotated=Path(reply.rotated) if reply.rotated is not None else None,
        overtaken=reply.overtaken,
        key=key,
    )


def sent_mail_of(ack: Ack) -> SentMail:
    """The same ack, as that of a mail."""
    return SentMail(**msgspec.structs.asdict(ack))


def mail_of(mail: replies.Mail) -> Mail:
    """The caller's view of a mail."""
    return Mail(
        mail.id, mail.checkpoint_id, mail.message, Position.parse(mail.cursor), mail.by, mail.at
    )


def deleted_of(reply: replies.Deleted) -> Deleted:
    """The caller's view of a deletion."""
    return Deleted(Path(reply.trash), reply.expires_at)


def decode_object(line: bytes) -> dict[str, Any] | None:
    """The object of one line, or None when it is none: damaged, blank, or another value."""
    try:
        value = _decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    return cast("dict[str, Any]", value) if isinstance(value, dict) else None


def decode_line(cursor: Position, line: bytes) -> Record | None:
    """The record of one line, or None when it is damaged: not JSON, or not an object."""
    value = decode_object(line)
    return None if value is None else Record(cursor, value, line)


def decode_block(first: Position, block: bytes) -> Iterator[tuple[Position, Record | None]]:
    """Cursor and record of every line that is not blank; None stands for a damaged one."""
    for number, line in enumerate(split_lines(block), first.line):
        if line.strip():
            cursor = Position(first.generation, number)
            yield cursor, decode_line(cursor, line)


def wire_record(cursor: Position, line: bytes, parsed: wire.WireRecord) -> WireRecord:
    """The caller's view of one event."""
    return WireRecord(
        cursor, parsed.timestamp, parsed.type, parsed.payload, _position(parsed.at), line
    )


def _wire_records(first: Position, block: bytes) -> Iterator[WireRecord]:
    for number, line in enumerate(split_lines(block), first.line):
        parsed = wire.parse_wire_line(line)
        if isinstance(parsed, wire.WireRecord):
            yield wire_record(Position(first.generation, number), line, parsed)


def _position(text: str | None) -> Position | None:
    """A position that another program may have written, so that it need not be one."""
    try:
        return None if text is None else Position.parse(text)
    except BadRequest:
        return None
