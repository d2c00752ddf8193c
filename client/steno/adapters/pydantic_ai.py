"""The conversation store of Pydantic-AI (2.x), backed by steno.

    async with steno.connect() as client:
        store = StenoConversationStore(client)
        conversation = await store.load("talk") or Conversation(conversation_id="talk")
        await store.save(await agent.run("Hello", conversation=conversation))

A conversation is the stream `log` of the session `pydantic-ai/<conversation>`. A save appends its
new entries and then the conversation's record as one batch; the last record counts:

    {"id": "e1", "parent_id": null, "message": {...}, "kind": "message"}
    {"id": "e2", "parent_id": "e1", "message": {...}, "kind": "message"}
    {"conversation_id": "talk", "head_id": "e2", "revision": "r1", ...}

The stream only grows, so the entries of a branch that was left stay in it. A fork is the daemon's
fork of the session, whose entries the new conversation then has in its own stream.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from functools import cache
from typing import TYPE_CHECKING, Any, Final

import steno
from steno.adapters._names import name_of, segment_of
from steno.adapters._optional import base_class, framework
from steno_protocol import limits

if TYPE_CHECKING:
    from steno import Stream

_STORES: Final = "pydantic_ai.conversation_store"
_WINDOW: Final = 64
"""Rows that a reading from the end begins with; each further one has four times as many."""

Record = Any
"""A `ConversationRecord` of Pydantic-AI."""

Entry = Any
"""A `ConversationEntry` of Pydantic-AI."""


if TYPE_CHECKING:

    class _ConversationStore:
        """What the interface itself defines, for programs that are checked without Pydantic-AI."""

        async def load(
            self, conversation_id: str, *, limit: int | None = None, scope: str | None = None
        ) -> Any: ...

        async def load_entries(
            self, conversation_id: str, *, limit: int | None = None, scope: str | None = None
        ) -> list[Entry] | None: ...

        async def save(self, conversation: Any, *, scope: str | None = None) -> list[Entry]: ...

        async def branch(
            self,
            conversation_id: str,
            *,
            at: int | None = None,
            from_entry: str | None = None,
            expected_revision: str | None,
            scope: str | None = None,
        ) -> Any: ...

        async def fork(
            self,
            conversation_id: str,
            *,
            at: int | None = None,
            from_entry: str | None = None,
            new_conversation_id: str | None = None,
            scope: str | None = None,
            source_scope: str | None = None,
        ) -> Any: ...

        async def list_conversations(
            self, *, scope: str | None = None, limit: int | None = None
        ) -> list[Record]: ...

        async def delete(self, conversation_id: str, *, scope: str | None = None) -> None: ...

else:
    _ConversationStore = base_class(_STORES, "ConversationStore")


class StenoConversationStore(_ConversationStore):
    """A `ConversationStore` whose conversations are on the disk when `save` returns.

    `load`, `save`, `branch`, `fork` and the other methods are those of the interface, which is the
    base of this class where Pydantic-AI is installed. A save is stored as a whole or not at all,
    and of two processes that save the same revision one gets `ConversationConflict`. Messages are
    stored as `ModelMessagesTypeAdapter` writes them.

    Args:
        client: an open client; its owner closes it after the last use of the store.
        prefix: the first segment of the ids of the sessions.

    Raises:
        ModuleNotFoundError: Pydantic-AI is not installed; the message names the extra.

    Example:
        >>> store = StenoConversationStore(client)
        >>> entries = await store.save(Conversation(conversation_id="talk"))
        >>> [record.conversation_id for record in await store.list_conversations()]
        ['talk']
    """

    def __init__(self, client: steno.Client, prefix: str = "pydantic-ai") -> None:
        self._conflict = framework(_STORES, "pydantic-ai").ConversationConflict
        self._client = client
        self._prefix = prefix

    async def read_record(self, conversation_id: str) -> Record | None:
        """Return the record of a conversation; None if there is none."""
        return (await self._last_record(conversation_id))[0]

    async def read_records(
        self, *, scope: str | None = None, limit: int | None = None
    ) -> Sequence[Record]:
        """Return the records, those with the scope if one is given, the last saved first."""
        found = [await self.read_record(each) for each in await self._conversations()]
        wanted = [each for each in found if each and (scope is None or each.scope == scope)]
        wanted.sort(key=lambda record: record.updated_at, reverse=True)
        return wanted[:limit]

    async def write_record(
        self,
        record: Record,
        *,
        new_entries: Sequence[Entry] = (),
        expected_revision: str | None,
    ) -> None:
        """Store a record and its new entries; both are on the disk on return.

        More than 4 096 entries take several batches; they count once the last one is stored.

        Raises:
            ConversationConflict: the stored revision is another one, or an entry is missing that
                the record or a new entry points to.
            PydanticSerializationError: a message cannot be JSON; nothing is stored.
            StenoError: it could not be stored; see its `outcome`.
        """
        rows = [_dump(_entries(), each) for each in new_entries]
        rows.append(_dump(_records(), record))
        conversation = record.conversation_id
        stored, head = await self._last_record(conversation)
        if (stored and stored.revision) != expected_revision:
            raise self._conflict(conversation)
        needed = _needed(record, new_entries, stored)
        if needed and stored is None:
            copies, head = await self._fork(record, needed)
            rows = copies + rows
        elif not await self._has(conversation, needed):
            raise self._conflict(conversation)
        await self._append(conversation, rows, head)

    async def delete_record(self, conversation_id: str, *, expected_revision: str) -> None:
        """Delete the stream of a conversation; its file stays in the session until it expires.

        Forks have entries of their own and do not change.

        Raises:
            ConversationConflict: the stored revision is another one.
        """
        stored, head = await self._last_record(conversation_id)
        if stored is None or stored.revision != expected_revision:
            raise self._conflict(conversation_id)
        stream = await self._stream(conversation_id)
        try:
            await stream.delete(expect=head)
        except (steno.Conflict, steno.NotFound) as error:
            raise self._conflict(conversation_id) from error

    async def read_entry(self, entry_id: str) -> Entry:
        """Return an entry; the id alone is searched for in one conversation after the other.

        Raises:
            LookupError: no conversation has it.
        """
        (entry,) = await self.read_history(entry_id, limit=1)
        return entry

    async def read_history(self, head_id: str | None, *, limit: int | None = None) -> list[Entry]:
        """Return the entries up to `head_id`, or the last `limit` of them, in order.

        Raises:
            LookupError: no conversation has all of them.
        """
        if head_id is None or (limit is not None and limit < 1):
            return []
        if isinstance(head_id, _EntryId):
            line = await self._line(head_id.conversation, head_id, limit)
            if line is not None:
                return _loaded(line, head_id.conversation)
        for conversation in await self._conversations():
            line = await self._line(conversation, head_id, limit)
            if line is not None:
                return _loaded(line, conversation)
        raise LookupError(f"no conversation below {self._prefix}/ has the entry {head_id!r}")

    async def _last_record(self, conversation: str) -> tuple[Record | None, steno.Position]:
        """The record of a conversation, and the head of the stream that it was read from."""
        stream = await self._stream(conversation)
        try:
            rows, window = await stream.last(1), 1
            head = _behind(rows[0]) if rows else await stream.head()
            # Only behind an interrupted save or a damaged row is the last row no record.
            while not any(map(_is_record, rows)) and window < head.line:
                window *= _WINDOW
                rows = await stream.last(window)
        except steno.NotFound:
            return None, steno.Position(0, 0)
        records = _load(_records(), [row for row in rows if _is_record(row)][-1:])
        # In a fork that has no record of its own yet, it is the one of the source.
        if not records or records[0].conversation_id != conversation:
            return None, head
        (record,) = records
        record.head_id = _located(record.head_id, conversation)
        record.branches = [_located(each, conversation) for each in record.branches]
        return record, head

    async def _fork(self, record: Record, needed: set[str]) -> tuple[list[bytes], steno.Position]:
        """Fork the session that has the entries; what is to be appended then, and to which head."""
        source, conversation = record.forked_from, record.conversation_id
        if source is None:
            raise self._conflict(conversation)
        copies: dict[str, bytes] = {}
        try:
            await self._client.session(self._id(source)).fork(self._id(conversation))
        except steno.NotFound as error:
            raise self._conflict(conversation) from error
        except steno.Exists:
            # A conversation was deleted here, or a fork was interrupted.
            for each in needed:
                line = await self._line(source, each, None)
                copies |= {row.record["id"]: row.data for row in line or ()}
        stored, head = await self._last_record(conversation)
        if stored or not await self._has(conversation, needed - copies.keys()):
            raise self._conflict(conversation)
        return list(copies.values()), head

    async def _append(self, conversation: str, rows: list[bytes], head: steno.Position) -> None:
        stream = await self._stream(conversation)
        try:
            for batch in _batches(rows):
                try:
                    ack = await stream.append(batch, expect=head)
                except steno.NotFound:
                    await self._client.open(self._id(conversation), follow=False)
                    ack = await stream.append(batch, expect=head)
                head = ack.head
        except steno.Conflict as error:
            raise self._conflict(conversation) from error

    async def _has(self, conversation: str, entries: set[str]) -> bool:
        if not entries:
            return True
        stream = await self._stream(conversation)
        try:
            return entries <= {row.record.get("id") async for row in stream.records()}
        except steno.NotFound:
            return False

    async def _line(
        self, conversation: str, head_id: str, limit: int | None
    ) -> list[steno.StreamRecord] | None:
        """The rows of the history up to an entry; None if the conversation has not all of them."""
        stream = await self._stream(conversation)
        try:
            if limit is None:
                return _line([row async for row in stream.records()], head_id, None)
            window, head = max(_WINDOW, 2 * limit), await stream.head()
            while window < head.line:
                line = _line(await stream.last(window), head_id, limit)
                if line is not None:
                    return line
                window *= 4
            return _line([row async for row in stream.records()], head_id, limit)
        except steno.NotFound:
            return None

    async def _conversations(self) -> list[str]:
        """The ids of all conversations, also of those that were deleted."""
        prefix = f"{self._prefix}/"
        found = await self._client.sessions(prefix)
        segments = [entry.session.removeprefix(prefix) for entry in found]
        return [name_of(segment) for segment in segments if "/" not in segment]

    async def _stream(self, conversation: str) -> "Stream":
        return await self._client.session(self._id(conversation)).stream("log")

    def _id(self, conversation: str) -> str:
        return f"{self._prefix}/{segment_of(conversation)}"


class _EntryId(str):
    """An entry's id with a conversation that has the entry, which needs no search then."""

    conversation: str


def _located(entry_id: str | None, conversation: str) -> _EntryId | None:
    if entry_id is None:
        return None
    located = _EntryId(entry_id)
    located.conversation = conversation
    return located


def _needed(record: Record, new_entries: Sequence[Entry], stored: Record | None) -> set[str]:
    """The entries that the record and the new entries point to and that are to be looked for."""
    known = {entry.id for entry in new_entries} | {None, stored.head_id if stored else None}
    return {record.head_id, *(entry.parent_id for entry in new_entries)} - known


def _line(
    rows: Iterable[steno.StreamRecord], head_id: str, limit: int | None
) -> list[steno.StreamRecord] | None:
    """The rows from `head_id` back to the first one, or `limit` of them; None if one is missing."""
    entries = {row.record.get("id"): row for row in rows if not _is_record(row)}
    line: list[steno.StreamRecord] = []
    entry_id: str | None = head_id
    while entry_id is not None and len(line) != limit:
        # Taken out, so that entries that point to each other end.
        row = entries.pop(entry_id, None)
        if row is None:
            return None
        line.append(row)
        entry_id = row.record.get("parent_id")
    return line[::-1]


def _loaded(rows: Sequence[steno.StreamRecord], conversation: str) -> list[Entry]:
    return [
        replace(
            entry,
            id=_located(entry.id, conversation),
            parent_id=_located(entry.parent_id, conversation),
        )
        for entry in _load(_entries(), rows)
    ]


@cache
def _entries() -> Any:
    return _adapter("ConversationEntry")


@cache
def _records() -> Any:
    return _adapter("ConversationRecord")


def _adapter(name: str) -> Any:
    """An adapter with the settings of `ModelMessagesTypeAdapter`, which a list passes on."""
    pydantic = framework("pydantic", "pydantic-ai")
    item: Any = getattr(framework(_STORES, "pydantic-ai"), name)
    config = pydantic.ConfigDict(ser_json_bytes="base64", val_json_bytes="base64")
    return pydantic.TypeAdapter(list[item], config=config)


def _dump(adapter: Any, value: Any) -> bytes:
    text: bytes = adapter.dump_json([value])
    return text[1:-1]


def _load(adapter: Any, rows: Iterable[steno.StreamRecord]) -> list[Any]:
    loaded: list[Any] = adapter.validate_json(b"[" + b",".join(row.data for row in rows) + b"]")
    return loaded


def _batches(rows: Sequence[bytes]) -> Iterator[Sequence[bytes]]:
    for first in range(0, len(rows), limits.BATCH_RECORDS_MAX):
        yield rows[first : first + limits.BATCH_RECORDS_MAX]


def _is_record(row: steno.StreamRecord) -> bool:
    return "head_id" in row.record


def _behind(row: steno.StreamRecord) -> steno.Position:
    return steno.Position(row.cursor.generation, row.cursor.line + 1)
