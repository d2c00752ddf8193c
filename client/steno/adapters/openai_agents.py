"""The session of the OpenAI Agents SDK (0.24), backed by steno.

    async with steno.connect() as client:
        await Runner.run(agent, "Hello", session=StenoSession("talk", client))

The items of a conversation are the record list `items` of the session `openai/<session>`. Its
stream only grows, so nothing that an agent took back is lost.
"""

from collections.abc import Sequence
from typing import Any, Final

import steno
from steno.adapters._lists import RecordLists
from steno.adapters._names import segment_or_digest
from steno.adapters._optional import framework
from steno_protocol import limits

_ITEMS: Final = "items"

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
        self._lists = RecordLists(client, f"{prefix}/{segment_or_digest(session_id)}")

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
        await self._lists.append(_ITEMS, items)

    async def pop_item(self) -> Item | None:
        """Take the last item away and return it; None if there is none."""
        return await self._lists.delete(_ITEMS, -1)

    async def clear_session(self) -> None:
        """Take all items away."""
        await self._lists.replace_all(_ITEMS, [])

    async def _atomic_replace_items(self, items: Sequence[Item]) -> bool:
        """Replace all items at once; the SDK's compaction asks for it under this name."""
        return await self._replace(items)

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
            return await self._replace(output, last=taken, expect=head)

        return snapshot(items, len(latest) <= limit, replace_suffix)

    async def _replace(
        self,
        items: Sequence[Item],
        last: int | None = None,
        expect: steno.Position | None = None,
    ) -> bool:
        """Replace all items, or the last ones, as one batch.

        Returns:
            False if there are too many for a batch, or if another process changed the conversation
            since `expect`; nothing was stored.
        """
        if (1 if last is None else last) + len(items) > limits.BATCH_RECORDS_MAX:
            return False
        try:
            await self._lists.change(
                _ITEMS, lambda stored: stored.replace_all(items, last=last, expect=expect)
            )
        except steno.Conflict:
            return False
        return True

    async def _read(self, wanted: int | None) -> tuple[list[Item], steno.Position | None]:
        """The last items, and the head of the list when they were read."""
        state = await self._lists.read(_ITEMS, wanted)
        return ([], None) if state is None else (state.items, state.head)


def _settings(given: Any) -> Any:
    """The settings as the SDK's own sessions make them; a dict is checked by the SDK."""
    if not isinstance(given, dict):
        return given
    settings = framework("agents.memory.session_settings", "openai-agents")
    return settings.coerce_session_settings(given)
