"""The chat store of LlamaIndex (llama-index-core 0.14), backed by steno.

    with steno.connect_sync() as client:
        store = StenoChatStore(client)
        memory = ChatMemoryBuffer.from_defaults(chat_store=store, chat_store_key="talk")

The messages of a key are the record list `messages` of the session `llama-index/<key>`.
"""

from collections.abc import Coroutine, Sequence
from typing import TYPE_CHECKING, Any, Final, TypeVar

import steno
from steno.adapters._either_client import EitherClient
from steno.adapters._lists import NamedLists, RecordLists
from steno.adapters._optional import base_class, framework

_MESSAGES: Final = "messages"

Value = TypeVar("Value")

Message = Any
"""A `ChatMessage` of LlamaIndex."""

if TYPE_CHECKING:

    class _ChatStore:
        """The interface, for programs that are checked without LlamaIndex."""

else:
    _ChatStore = base_class("llama_index.core.storage.chat_store.base", "BaseChatStore")


class StenoChatStore(_ChatStore):
    """A `BaseChatStore` whose messages are on the disk when `add_message` returns.

    Any number of processes may use one key. A message that is deleted by its number is the one that
    has it at that moment, and is returned to one caller only.

    With a blocking client all methods may be called from any thread. With an async one the sync
    methods may be called from any thread but that of its event loop.

    Args:
        client: an open client; its owner closes it after the last use of the store.
        prefix: the first segment of the ids of the sessions.

    Raises:
        ModuleNotFoundError: LlamaIndex is not installed; the message names the extra.
    """

    _lists: Any
    _either: Any
    _type: Any

    def __init__(
        self, client: steno.Client | steno.BlockingClient, prefix: str = "llama-index"
    ) -> None:
        message = framework("llama_index.core.llms", "llama-index").ChatMessage
        super().__init__()
        self._lists = NamedLists(client, prefix)
        self._either = EitherClient(client, "StenoChatStore")
        self._type = message

    def set_messages(self, key: str, messages: Sequence[Message]) -> None:
        """Replace the messages of a key; up to 4 095 at one instant, more in several steps."""
        self._run(self._set(key, messages))

    async def aset_messages(self, key: str, messages: Sequence[Message]) -> None:
        """See `set_messages`."""
        await self._wait(self._set(key, messages))

    def get_messages(self, key: str) -> list[Message]:
        """Return the messages of a key; none if it is missing."""
        return self._run(self._get(key))

    async def aget_messages(self, key: str) -> list[Message]:
        """See `get_messages`."""
        return await self._wait(self._get(key))

    def add_message(self, key: str, message: Message) -> None:
        """Add a message."""
        self._run(self._add(key, message))

    async def async_add_message(self, key: str, message: Message) -> None:
        """See `add_message`."""
        await self._wait(self._add(key, message))

    def delete_messages(self, key: str) -> list[Message] | None:
        """Delete a key, and return its messages; None if it is missing."""
        return self._run(self._delete_all(key))

    async def adelete_messages(self, key: str) -> list[Message] | None:
        """See `delete_messages`."""
        return await self._wait(self._delete_all(key))

    def delete_message(self, key: str, idx: int) -> Message | None:
        """Delete a message by its number, and return it; None if there is none."""
        return self._run(self._delete(key, idx))

    async def adelete_message(self, key: str, idx: int) -> Message | None:
        """See `delete_message`."""
        return await self._wait(self._delete(key, idx))

    def delete_last_message(self, key: str) -> Message | None:
        """Delete the last message, and return it; None if there is none."""
        return self._run(self._delete(key, -1))

    async def adelete_last_message(self, key: str) -> Message | None:
        """See `delete_last_message`."""
        return await self._wait(self._delete(key, -1))

    def get_keys(self) -> list[str]:
        """Return all keys."""
        return self._run(self._keys())

    async def aget_keys(self) -> list[str]:
        """See `get_keys`."""
        return await self._wait(self._keys())

    def _run(self, work: Coroutine[Any, Any, Value]) -> Value:
        found: Value = self._either.run(work)
        return found

    async def _wait(self, work: Coroutine[Any, Any, Value]) -> Value:
        found: Value = await self._either.wait(work)
        return found

    async def _set(self, key: str, messages: Sequence[Message]) -> None:
        await self._of(key).replace_all(_MESSAGES, [_dumped(each) for each in messages])

    async def _get(self, key: str) -> list[Message]:
        found = await self._of(key).read(_MESSAGES)
        return [self._type.model_validate(each) for each in found.items] if found else []

    async def _add(self, key: str, message: Message) -> None:
        await self._of(key).append(_MESSAGES, [_dumped(message)])

    async def _delete_all(self, key: str) -> list[Message] | None:
        found = await self._of(key).remove(_MESSAGES)
        return None if found is None else [self._type.model_validate(each) for each in found]

    async def _delete(self, key: str, at: int) -> Message | None:
        found = await self._of(key).delete(_MESSAGES, at)
        return None if found is None else self._type.model_validate(found)

    async def _keys(self) -> list[str]:
        return [name async for name in self._lists.names(_MESSAGES)]

    def _of(self, key: str) -> RecordLists:
        lists: RecordLists = self._lists.of(key)
        return lists


def _dumped(message: Message) -> dict[str, Any]:
    dumped: dict[str, Any] = message.model_dump(mode="json")
    return dumped
