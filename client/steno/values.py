"""Values of the client: acks, records, turns, mails and events."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal, cast

import msgspec

from steno_protocol import replies, wire
from steno_protocol.blocks import split_lines
from steno_protocol.errors import BadRequest
from steno_protocol.positions import Position
from steno_protocol.records import record_and_author, stamp_of

_decode = msgspec.json.Decoder().decode

File = str
"""One of a session's files: `context` (messages), `wire` (events of the agent), or `stream-` and
the name of a stream."""


class Ack(msgspec.Struct, frozen=True):
    """The result of a mutation.

    Attributes:
        first: cursor of the command's first record; the new head for a rewrite.
        last: cursor of its last record; the new head for a rewrite.
        head: where the session ended right after the command.
        durability: the durability that was reached. `synced`: the bytes are on the disk. `written`:
            they are in the page cache, survive a kill of the daemon, and may be lost in a power
            cut. `replicated`, if it was asked for: a majority of the cluster's servers has them.
        duplicate: the key had been applied before; this is the first answer.
        checkpoint_id: the id of the checkpoint that was set, or that a D-Mail goes back to.
        rotated: for a rewrite, the file with the lines that were left behind.
        overtaken: lines of a foreign program came between `expect` and the command's own.
        key: the command's idempotency key.

    Example:
        >>> ack = await session.append_message({"role": "assistant", "content": "Hello"})
        >>> str(ack.first), str(ack.head), ack.durability, ack.duplicate
        ('0:2', '0:3', 'synced', False)
    """

    first: Position
    last: Position
    head: Position
    durability: Literal["synced", "written", "replicated"]
    duplicate: bool
    checkpoint_id: int | None
    rotated: Path | None
    overtaken: bool
    key: str


class Checkpoint(Ack, frozen=True):
    """A new checkpoint: the ack of the command that set it, with all attributes of `Ack`.

    Every method that takes a checkpoint takes this value, too, or its `handle`, and is refused if
    another checkpoint has the id by then.

    Attributes:
        id: its id. In a session of steno's own no other checkpoint ever gets it; in a mount, and in
            a session without stamps, ids count as in kimi-cli, which assigns them again.
        at: the position at which its line was created.
        incarnation: the incarnation of its session.

    Example:
        >>> mark = await session.checkpoint()
        >>> ack = await session.append_message({"role": "assistant", "content": "a mistake"})
        >>> ack = await session.revert_to(mark)
        >>> mark.id, str(mark.at), len(session.history)
        (1, '0:2', 1)
    """

    id: int
    at: Position
    incarnation: str

    @property
    def handle(self) -> str:
        """The checkpoint as text, for a file or another process.

        Example:
            >>> mark = await session.checkpoint()
            >>> mark.handle == f"{mark.id}@{mark.at}@{mark.incarnation}"
            True
            >>> ack = await session.revert_to(mark.handle)
        """
        return f"{self.id}@{self.at}@{self.incarnation}" if self.incarnation else str(self.id)


class SentMail(Ack, frozen=True):
    """The ack of a D-Mail, with all attributes of `Ack`.

    Example:
        >>> sent = await session.send_dmail(0, "Skip the large file.")
        >>> sent.checkpoint_id, sent.durability
        (0, 'synced')
    """

    @property
    def id(self) -> str:
        """The mail's id, which is the key of the command that sent it.

        Example:
            >>> sent = await session.send_dmail(0, "Skip the large file.", key="mail-1")
            >>> sent.id
            'mail-1'
        """
        return self.key


class Mail(msgspec.Struct, frozen=True):
    """A pending D-Mail.

    Attributes:
        id: its permanent name.
        checkpoint_id: the checkpoint that it goes back to.
        message: its text.
        cursor: the cursor of that checkpoint when the mail was sent.
        by: the client that sent it.
        at: when it was sent, Unix time in seconds.

    Example:
        >>> sent = await session.send_dmail(0, "Skip the large file.")
        >>> mail = await session.pending_dmail()
        >>> mail.message, mail.by, str(mail.cursor)
        ('Skip the large file.', 'planner', '0:1')
    """

    id: str
    checkpoint_id: int
    message: str
    cursor: Position
    by: str | None
    at: float


class Compacted(msgspec.Struct, frozen=True):
    """The result of a compaction.

    Attributes:
        ack: of the rewrite and of the checkpoint before the summary; its `rotated` keeps the lines
            from before.
        messages: how many messages the summary stands for.
        summary: its text.
        tokens: its token count as reported by the model, or an estimate.
        checkpoint_id: the checkpoint before the summary.
        cut: the end of the summarised lines, in the generation that was left behind.
        at: the end of the session when the compaction began, in that generation.

    Example:
        >>> async def summarize(messages):
        ...     return steno.Summary("The user counted to eight.", output_tokens=7)
        >>> texts = [{"role": "user", "content": str(number)} for number in range(9)]
        >>> ack = await session.append_message(texts)
        >>> done = await session.compact(summarize)
        >>> done.messages, done.summary, done.tokens
        (8, 'The user counted to eight.', 7)
    """

    ack: Checkpoint
    messages: int
    summary: str
    tokens: int
    checkpoint_id: int
    cut: Position
    at: Position


class Deleted(msgspec.Struct, frozen=True):
    """The result of a deletion.

    Attributes:
        trash: the folder with the files of the session.
        expires_at: Unix time in seconds after which they may be removed.

    Example:
        >>> deleted = await client.delete("talk")
        >>> deleted.trash.is_dir()
        True
    """

    trash: Path
    expires_at: float


class Record(msgspec.Struct, frozen=True):
    """One line of a session.

    Attributes:
        cursor: its position.
        record: its JSON object, with steno's own keys.
        raw: its bytes with the newline.

    Example:
        >>> records = [each async for each in session.records()]
        >>> str(records[0].cursor), records[0].record["content"], records[0].record["_by"]
        ('0:0', 'hi', 'planner')
    """

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
        at: the durable head of the context when it was written; None in an event that steno did
            not write, or without this field.
        raw: its bytes with the newline.

    Example:
        >>> ack = await session.append_wire("TurnBegin", {"user_input": "hi"}, durability="synced")
        >>> events = [each async for each in session.wire_records()]
        >>> events[0].type, events[0].payload
        ('TurnBegin', {'user_input': 'hi'})
    """

    cursor: Position
    timestamp: float
    type: str
    payload: dict[str, Any]
    at: Position | None
    raw: bytes


class StreamRecord(msgspec.Struct, frozen=True):
    """One record of a stream.

    Attributes:
        cursor: its position in the stream.
        record: the JSON object, without the keys that steno adds.
        data: its bytes as they were appended.
        key: the idempotency key of the command that appended it; None in a session without stamps.
        by: the client that appended it, if known.

    Example:
        >>> notes = await session.stream("notes")
        >>> ack = await notes.append({"text": "first"}, key="k1")
        >>> record = (await notes.last(1))[0]
        >>> str(record.cursor), record.data, record.key
        ('0:0', b'{"text":"first"}', 'k1')
    """

    cursor: Position
    record: dict[str, Any]
    data: bytes
    key: str | None
    by: str | None


class ListState(msgspec.Struct, frozen=True):
    """The items of a record list at one moment.

    Attributes:
        items: the items in their order, or the last ones that were asked for.
        names: the name of each item; None for one without.
        head: the end of the stream at that moment: the `expect` of a change that depends on it.

    Example:
        >>> todo = await session.record_list("todo")
        >>> ack = await todo.append({"text": "Count the till."})
        >>> state = await todo.read()
        >>> state.items, state.names, str(state.head)
        ([{'text': 'Count the till.'}], [None], '0:1')
    """

    items: list[dict[str, Any]]
    names: list[str | None]
    head: Position


class StreamInfo(msgspec.Struct, frozen=True):
    """The numbers of a stream.

    Attributes:
        name: its name.
        head: its end; the generation counts its deletions.
        records: its lines.
        bytes: its size.
        modified_at: Unix time of its last change, in seconds.

    Example:
        >>> notes = await session.stream("notes")
        >>> ack = await notes.append({"text": "first"})
        >>> stream = await notes.stat()
        >>> stream.name, str(stream.head), stream.records
        ('notes', '0:1', 1)
    """

    name: str
    head: Position
    records: int
    bytes: int
    modified_at: float


class Turn(msgspec.Struct, frozen=True):
    """One turn of a session, from the event `TurnBegin` of its wire file.

    Attributes:
        cursor: position of that event in the wire file.
        timestamp: Unix time in seconds at which it began.
        at: the durable head of the context then, None if it is unknown.
        user_input: the user's input as in the event: a text, a list of parts, or None.

    Example:
        >>> ack = await session.append_wire("TurnBegin", {"user_input": "hi"}, durability="synced")
        >>> (turn,) = await session.turns()
        >>> turn.user_input, str(turn.at)
        ('hi', '0:2')
    """

    cursor: Position
    timestamp: float
    at: Position | None
    user_input: Any


class RecordsEvent(msgspec.Struct, frozen=True):
    """Durable lines that follow each other.

    Attributes:
        first: the position of the first line.
        next: the position after the last line; save this one to continue later.
        block: the lines as they lie in the file, each with its newline. They are decoded only when
            `records` is asked for.
        file: the file of the records and of the positions.

    Example:
        >>> async with session.subscribe("start") as events:
        ...     event = await anext(events)
        >>> str(event.first), str(event.next), len(event.block.splitlines())
        ('0:0', '0:2', 2)
    """

    first: Position
    next: Position
    block: bytes
    file: File = "context"

    def lines(self) -> list[bytes]:
        r"""Return the lines, each with its newline.

        Returns:
            The bytes, as they lie in the file.

        Example:
            >>> steno.RecordsEvent(steno.Position(0, 0), steno.Position(0, 1), b'{"a":1}\n').lines()
            [b'{"a":1}\n']
        """
        return split_lines(self.block)

    def records(self) -> list[Record]:
        r"""Return the records; blank lines and lines that are no JSON object are left out.

        Returns:
            The records in order, each with its cursor.

        Example:
            >>> block = b'{"a":1}\nno JSON\n{"b":2}\n'
            >>> event = steno.RecordsEvent(steno.Position(0, 0), steno.Position(0, 3), block)
            >>> [(each.cursor.line, each.record) for each in event.records()]
            [(0, {'a': 1}), (2, {'b': 2})]
        """
        found = (decode_line(cursor, line) for cursor, line in self._placed())
        return [record for record in found if record is not None]

    def wire_records(self) -> list[WireRecord]:
        """Return the events of a wire file; its header, blank and damaged lines are left out.

        Returns:
            The events in order, each with its cursor.

        Example:
            >>> ack = await session.append_wire("TurnBegin", {}, durability="synced")
            >>> async with session.subscribe("start", records="wire") as events:
            ...     event = await anext(events)
            >>> [each.type for each in event.wire_records()]
            ['TurnBegin']
        """
        found = ((cursor, line, wire.parse_wire_line(line)) for cursor, line in self._placed())
        return [
            wire_record(cursor, line, parsed)
            for cursor, line, parsed in found
            if isinstance(parsed, wire.WireRecord)
        ]

    def stream_records(self) -> list[StreamRecord]:
        """Return the records of a stream.

        Returns:
            The records in order; blank and damaged lines are left out.

        Example:
            >>> notes = await session.stream("notes")
            >>> ack = await notes.append({"text": "first"})
            >>> async with notes.subscribe() as events:
            ...     event = await anext(events)
            >>> [record.record for record in event.stream_records()]
            [{'text': 'first'}]
        """
        found = (stream_record(cursor, line) for cursor, line in self._placed())
        return [record for record in found if record is not None]

    def _placed(self) -> Iterator[tuple[Position, bytes]]:
        generation, first = self.first
        for number, line in enumerate(self.lines(), first):
            yield Position(generation, number), line


class Live(msgspec.Struct, frozen=True):
    """The end of the backlog of a file: all later events are new.

    Attributes:
        head: the position at which the backlog ended.
        file: the file whose backlog ended.

    Example:
        >>> async with session.subscribe("now") as events:
        ...     await anext(events)
        Live(head=Position(generation=0, line=2), file='context')
    """

    head: Position
    file: File = "context"


class Reset(msgspec.Struct, frozen=True):
    """A rewrite took place: `generation` begins with the first `kept` lines, the rest is dropped.

    Records continue from position `generation:kept`. The daemon never rewrites a wire file, so a
    Reset of one reports only a new incarnation, or another program that cut the file.

    Attributes:
        generation: the generation that the rewrite led to.
        kept: the number of first lines of the previous generation that stay.
        why: the kind of rewrite, for example `reverted`.
        incarnation: the incarnation of the session; a new one means that the session was deleted
            and created again.
        head: the position up to which the records of the rewrite reach. A reader may have seen half
            of the rewrite until the records up to it have arrived.
        file: the rewritten file.
        checkpoint_floor: checkpoint ids below it were assigned, although the lines of that
            generation contain none of them.

    Example:
        >>> async with session.subscribe("now") as events:
        ...     ack = await session.revert_to(0)
        ...     async for event in events:
        ...         if isinstance(event, steno.Reset):
        ...             print(event.generation, event.kept, event.why)
        ...             break
        1 1 reverted
    """

    generation: int
    kept: int
    why: str
    incarnation: str
    head: Position
    file: File = "context"
    checkpoint_floor: int = 0


class DmailEvent(msgspec.Struct, frozen=True):
    """A change of a D-Mail's state; the event of a pending mail is repeated after Live.

    Attributes:
        state: its new state; `expired` means that a rewrite removed its checkpoint.
        id: the mail's id.
        checkpoint_id: the checkpoint that it goes back to.
        file: always the context's.

    Example:
        >>> sent = await session.send_dmail(0, "Skip the large file.")
        >>> async with session.subscribe("now") as events:
        ...     async for event in events:
        ...         if isinstance(event, steno.DmailEvent):
        ...             print(event.state, event.checkpoint_id)
        ...             break
        sent 0
    """

    state: Literal["sent", "delivered", "expired"]
    id: str
    checkpoint_id: int
    file: File = "context"


SubscriptionEvent = RecordsEvent | Live | Reset | DmailEvent
"""One event of a subscription; a `match` or `isinstance` divides them."""


def sent_mail_of(ack: Ack) -> SentMail:
    """Convert an ack to the ack of a D-Mail."""
    return SentMail(**msgspec.structs.asdict(ack))


def mail_of(mail: replies.Mail) -> Mail:
    """Convert the daemon's mail to the caller's value."""
    return Mail(
        mail.id, mail.checkpoint_id, mail.message, Position.parse(mail.cursor), mail.by, mail.at
    )


def deleted_of(reply: replies.Deleted) -> Deleted:
    """Convert the daemon's reply to a deletion to the caller's value."""
    return Deleted(Path(reply.trash), reply.expires_at)


def stream_info(entry: replies.StreamEntry) -> StreamInfo:
    """Convert the daemon's entry of a stream to the caller's value."""
    return StreamInfo(
        entry.stream, Position.parse(entry.head), entry.records, entry.bytes, entry.modified_at
    )


def stream_record(cursor: Position, line: bytes) -> StreamRecord | None:
    """Return the record of a stream's line, or None for a damaged or blank line."""
    data, author = record_and_author(line)
    record = decode_object(data)
    if record is None:
        return None
    stamp = stamp_of(line)
    if stamp is None:
        return StreamRecord(cursor, record, data, None, None)
    return StreamRecord(cursor, record, data, stamp.key, author)


def decode_object(line: bytes) -> dict[str, Any] | None:
    """Return the JSON object of one line, or None for a damaged or blank line or another value."""
    try:
        value = _decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    return cast("dict[str, Any]", value) if isinstance(value, dict) else None


def decode_line(cursor: Position, line: bytes) -> Record | None:
    """Return the record of one line, or None when it is damaged: not JSON, or not an object."""
    value = decode_object(line)
    return None if value is None else Record(cursor, value, line)


def wire_record(cursor: Position, line: bytes, parsed: wire.WireRecord) -> WireRecord:
    """Convert a decoded event to the caller's value."""
    return WireRecord(
        cursor, parsed.timestamp, parsed.type, parsed.payload, _position(parsed.at), line
    )


def _position(text: str | None) -> Position | None:
    """Parse a position that another program may have written; return None if it is none."""
    try:
        return None if text is None else Position.parse(text)
    except BadRequest:
        return None
