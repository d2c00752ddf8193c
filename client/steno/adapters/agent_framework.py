"""History and checkpoints of the Microsoft Agent Framework (1.x), backed by steno.

    async with steno.connect() as client:
        agent = Agent(chat_client, context_providers=[StenoHistoryProvider(client)])

The messages of a session are the record list `messages` of the session `agent-framework/<session>`.
Checkpoints are the record list `checkpoints` of `agent-framework-checkpoints`, by their ids.
"""

from collections.abc import Iterable, Sequence
from contextlib import suppress
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

import steno
from steno.adapters._lists import RecordLists
from steno.adapters._names import segment_or_digest
from steno.adapters._optional import base_class, framework

_MESSAGES: Final = "messages"
_CHECKPOINTS: Final = "checkpoints"

Message = Any
Checkpoint = Any

if TYPE_CHECKING:

    class _HistoryProvider:
        """The base of the provider, for programs that are checked without the framework."""

        def __init__(self, source_id: str, **options: Any) -> None: ...

else:
    _HistoryProvider = base_class("agent_framework", "HistoryProvider")


class StenoHistoryProvider(_HistoryProvider):
    """A `HistoryProvider` whose messages are on the disk when `save_messages` returns.

    Any number of processes may use one session. What is saved again, with a whole transcript, is
    stored once, as in the framework's own providers.

    Args:
        client: an open client; its owner closes it after the last use of the provider.
        source_id: the id of the provider in its agent.
        skip_excluded: leave out messages that a compaction marked as excluded.
        prefix: the first segment of the ids of the sessions.
        options: those of `HistoryProvider`, such as `store_outputs`.

    Raises:
        ModuleNotFoundError: the framework is not installed; the message names the extra.
    """

    def __init__(
        self, client: steno.Client, source_id: str = "steno", *, skip_excluded: bool = False,
        prefix: str = "agent-framework", **options: Any,
    ) -> None:  # fmt: skip
        self._framework = framework("agent_framework", "agent-framework")
        super().__init__(source_id, **options)
        self._skip_excluded = skip_excluded
        self._client, self._prefix = client, prefix

    async def get_messages(self, session_id: str | None, **_: Any) -> list[Message]:
        """Return the messages of a session; none if it is missing."""
        messages, _head = await self._read(session_id)
        if not self._skip_excluded:
            return list(messages)
        return [each for each in messages if not each.additional_properties.get("_excluded")]

    async def save_messages(
        self, session_id: str | None, messages: Sequence[Message], **_: Any
    ) -> None:
        """Add the messages that are not there yet; up to 4 096 as a whole or not at all."""
        new_messages = framework("agent_framework._sessions", "agent-framework").filter_new_messages
        while messages:
            # Only as many of the stored messages as were given can be the same ones.
            existing, head = await self._read(session_id, len(messages) + 1)
            new = [each.to_dict() for each in new_messages(existing, messages)]
            # If another process is faster, what is new depends on its messages.
            with suppress(steno.Conflict):
                await self._lists(session_id).append(_MESSAGES, new, expect=head)
                break

    async def _read(self, session_id: str | None, last: int | None = None) -> tuple[Any, Any]:
        found = await self._lists(session_id).read(_MESSAGES, last)
        if found is None:
            return [], "0:0"
        return [self._framework.Message.from_dict(each) for each in found.items], found.head

    def _lists(self, session_id: str | None) -> RecordLists:
        name = segment_or_digest(session_id or "default")
        return RecordLists(self._client, f"{self._prefix}/{name}")


class StenoCheckpointStorage:
    """A `CheckpointStorage` whose checkpoints are on the disk when `save` returns.

    Values that are no JSON are pickled, as in `FileCheckpointStorage`, and only types of the
    framework and those that are named are read back.

    Args:
        client: an open client; its owner closes it after the last use of the storage.
        allowed_checkpoint_types: further types that are read back, as `module:qualname`.
        prefix: the id of the session in steno.
    """

    def __init__(
        self, client: steno.Client, *, allowed_checkpoint_types: Iterable[str] = (),
        prefix: str = "agent-framework-checkpoints",
    ) -> None:  # fmt: skip
        self._framework = framework("agent_framework", "agent-framework")
        encoding = framework("agent_framework._workflows._checkpoint_encoding", "agent-framework")
        self._encode = encoding.encode_checkpoint_value
        self._decode = encoding.decode_checkpoint_value
        self._allowed_types = frozenset(allowed_checkpoint_types)
        self._lists = RecordLists(client, prefix)

    async def save(self, checkpoint: Checkpoint) -> str:
        """Store a checkpoint, if all its types would be read back; it replaces one with its id."""
        name, encoded = checkpoint.checkpoint_id, self._encode(checkpoint.to_dict())
        self._decoded(encoded)
        await self._lists.change(_CHECKPOINTS, lambda stored: stored.put(name, encoded))
        return str(name)

    async def load(self, checkpoint_id: str) -> Checkpoint:
        """Return a checkpoint; without one it is a WorkflowCheckpointException."""
        found = await self._lists.get(_CHECKPOINTS, checkpoint_id)
        if found is None:
            error = self._framework.WorkflowCheckpointException
            raise error(f"No checkpoint found with ID {checkpoint_id}")
        return self._decoded(found)

    async def list_checkpoints(self, *, workflow_name: str) -> list[Checkpoint]:
        """Return the checkpoints of a workflow in the order of their first `save`."""
        return [self._decoded(each) for each in await self._stored(workflow_name)]

    async def delete(self, checkpoint_id: str) -> bool:
        """Delete a checkpoint; False if there is none."""
        return await self._lists.delete(_CHECKPOINTS, checkpoint_id) is not None

    async def get_latest(self, *, workflow_name: str) -> Checkpoint | None:
        """Return the checkpoint of a workflow with the latest timestamp; None if there is none."""
        stored = await self._stored(workflow_name)
        times = [datetime.fromisoformat(each["timestamp"]) for each in stored]
        return self._decoded(stored[times.index(max(times))]) if stored else None

    async def list_checkpoint_ids(self, *, workflow_name: str) -> list[str]:
        """Return the ids of the checkpoints of a workflow."""
        return [each["checkpoint_id"] for each in await self._stored(workflow_name)]

    async def _stored(self, workflow: str) -> list[dict[str, Any]]:
        found = await self._lists.read(_CHECKPOINTS)
        return [each for each in found.items if each["workflow_name"] == workflow] if found else []

    def _decoded(self, encoded: dict[str, Any]) -> Checkpoint:
        fields = self._decode(encoded, allowed_types=self._allowed_types)
        return self._framework.WorkflowCheckpoint.from_dict(fields)
