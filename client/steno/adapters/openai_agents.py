"""The session of the OpenAI Agents SDK (0.24), backed by steno.

    async with steno.connect() as client:
        await Runner.run(agent, "Hello", session=StenoSession("talk", client))

The items of a conversation are the stream `items` of the session `openai/<session>`. Each record is
an operation: `{"item": ...}` adds an item, `{"pop": true}` takes the last one away, and
`{"clear": true}` takes all. The stream only grows, so nothing that an agent took back is lost.
"""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, Final

import steno
from steno.adapters._batches import batches_of, original
from steno.adapters._names import segment_or_digest
from steno.adapters._optional import framework
from steno_protocol import limits

if TYPE_CHECKING:
    from steno import Stream

_WINDOW: Final = 64
"""Records that a reading of the last items begins with; each further one has four times as many."""

_WINDOW_OF_ALL: Final = 4096
"""Records that a reading of all items begins with; it ends at the last operation `clear`."""

Item = dict[str, Any]
"""An item of the Responses API; the session does not interpret it."""


class StenoSession:
    """A `Session` whose items are on the disk when `add_items` returns.

    Any number of processes may use one conversation: a batch of items stays together, and
    `pop_item` returns each item to one caller only. It can also be the session below an
    `OpenAIResponsesCompactionSession`: its replacement is one atomic batch, and the automatic one
    replaces nothing if another process added an item meanwhile. A compaction that a program asks
    for itself (`run_compaction`) replaces all items, as with the SDK's own stores.

    Args:
        session_id: the id of the conversation.
        client: an open client; its owner closes it after the last use of the session.
        session_settings: the SDK's settings, or a dict of them; `limit` is the limit of `get_items`
            without one.
        prefix: the first segment of the id of the session in steno.

    Attributes:
        session_id: the id of the conversation.
        session_settings: the settings.
    """

    def __init__(
        self,
        session_id: str,
        client: steno.Client,
        session_settings: Any = None,
        prefix: str = "openai",
    ) -> None:
        self.session_id = session_id
        self.session_settings: Any = _settings(session_settings)
        self._client = client
        self._id = f"{prefix}/{segment_or_digest(session_id)}"

    async def get_items(self, limit: int | None = None) -> list[Item]:
        """Return the items, or the latest `limit` of them, oldest first; negative means all.

        Raises:
            StenoError: they could not be read.
        """
        if limit is None:
            limit = getattr(self.session_settings, "limit", None)
        wanted = None if limit is None or limit < 0 else limit
        return (await self._read(wanted))[0]

    async def add_items(self, items: Sequence[Item]) -> None:
        """Add items; up to 4 096 are stored as a whole or not at all.

        Raises:
            BadRequest, TooLarge: an item is not JSON or too large; nothing is stored.
            StenoError: they could not be stored; see its `outcome`.
        """
        for lines in batches_of([{"item": item} for item in items], self._id):
            await self._append(lines)

    async def pop_item(self) -> Item | None:
        """Take the last item away and return it; None if there is none."""
        while True:
            items, head = await self._read(1)
            if not items:
                return None
            try:
                await self._append([{"pop": True}], expect=head)
            except steno.Conflict:
                # Another process was faster: its operation decides which item is the last.
                continue
            return items[0]

    async def clear_session(self) -> None:
        """Take all items away."""
        await self._append([{"clear": True}])

    async def _atomic_replace_items(self, items: Sequence[Item]) -> bool:
        """Replace all items at once; the SDK's compaction asks for it under this name."""
        return await self._replace([{"clear": True}], items)

    async def _get_compaction_snapshot(self, limit: int) -> Any:
        """Return the latest items with a replacement of their end that only they can get.

        The SDK's compaction asks for it under this name before it asks the model, and replaces the
        items of which the summary was made. If another process changed the conversation in
        between, nothing is replaced: its item is not part of the summary.
        """
        snapshot = framework("agents.memory.session", "openai-agents")._CompactionSnapshot
        latest, head = await self._read(limit + 1)
        items = latest[-limit:]

        async def replace_suffix(start: int, output: Sequence[Item]) -> bool:
            taken = len(items) - start
            if taken <= 0:
                return False
            return await self._replace([{"pop": True}] * taken, output, expect=head)

        return snapshot(items, len(latest) <= limit, replace_suffix)

    async def _replace(
        self,
        operations: Sequence[dict[str, Any]],
        items: Sequence[Item],
        expect: steno.Position | None = None,
    ) -> bool:
        """Take items away and add others, as one batch.

        Returns:
            False if there are too many for a batch, or if another process changed the conversation
            since `expect`; nothing was stored.
        """
        records = [*operations, *({"item": item} for item in items)]
        if len(records) > limits.BATCH_RECORDS_MAX:
            return False
        [lines] = batches_of(records, self._id)
        try:
            await self._append(lines, expect=expect)
        except steno.Conflict:
            return False
        return True

    async def _append(
        self, records: Sequence[dict[str, Any] | bytes], expect: steno.Position | None = None
    ) -> None:
        stream = await self._stream()
        try:
            await stream.append(records, expect=expect)
        except steno.NotFound:
            await self._client.open(self._id, follow=False)
            await stream.append(records, expect=expect)

    async def _read(self, wanted: int | None) -> tuple[list[Item], steno.Position | None]:
        """The last items, and the head of the stream before they were read."""
        stream = await self._stream()
        window = _WINDOW_OF_ALL if wanted is None else max(_WINDOW, wanted)
        items: list[Item] = []
        is_complete = False
        try:
            head = await stream.head()
            while not is_complete:
                records = await stream.last(window)
                items, is_complete = _fold(original(each.record) for each in reversed(records))
                is_complete |= wanted is not None and len(items) >= wanted
                # Not by the records: of damaged lines there are none.
                is_complete |= window >= head.line
                window *= 4
        except steno.NotFound:
            return [], None
        found = items if wanted is None else items[:wanted]
        return found[::-1], head

    async def _stream(self) -> "Stream":
        return await self._client.session(self._id).stream("items")


def _settings(given: Any) -> Any:
    """The settings as the SDK's own sessions make them; a dict is checked by the SDK."""
    if not isinstance(given, dict):
        return given
    settings = framework("agents.memory.session_settings", "openai-agents")
    return settings.coerce_session_settings(given)


def _fold(operations: Iterable[dict[str, Any]]) -> tuple[list[Item], bool]:
    """Apply operations, the latest first.

    Returns:
        The items, the last one first; True if no earlier operation can add to them.
    """
    items: list[Item] = []
    pops = 0
    for operation in operations:
        if "clear" in operation:
            return items, True
        if "pop" in operation:
            pops += 1
        elif pops:
            pops -= 1
        else:
            items.append(operation["item"])
    return items, False
