"""The checkpointer of LangGraph (langgraph-checkpoint 4), backed by steno.

    with steno.connect_sync() as client:
        graph = builder.compile(checkpointer=StenoSaver(client))

A thread is a session, `langgraph/<thread>`:

    stream-checkpoints.jsonl       the checkpoints of the root namespace, and the writes to them
    stream-checkpoints-<hh>.jsonl  those of other namespaces, spread over 256 streams
"""

from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from random import random
from typing import TYPE_CHECKING, Any, TypeVar

import steno
from steno.adapters._checkpoint_store import CheckpointStore, Config, base
from steno.adapters._checkpoint_threads import Threads
from steno.adapters._either_client import EitherClient
from steno.adapters._optional import base_class

Value = TypeVar("Value")

if TYPE_CHECKING:

    class _Saver:
        """The base of the saver, for programs that are checked without LangGraph."""

        def __init__(self, *, serde: Any) -> None: ...

else:
    _Saver = base_class("langgraph.checkpoint.base", "BaseCheckpointSaver")


class StenoSaver(_Saver):
    """A `BaseCheckpointSaver` whose checkpoints are on the disk when `put` returns.

    Any number of processes may use one thread. A checkpoint, and the writes of one call, are stored
    as a whole or not at all, and a repeated call changes nothing.

    With a blocking client all methods may be called from any thread. With an async one the sync
    methods may be called from any thread but that of its event loop.

    Args:
        client: an open client; its owner closes it after the last use of the saver.
        serde: the framework's serializer; None for its default one.
        prefix: the first segment of the ids of the sessions.

    Attributes:
        serde: the serializer.

    Raises:
        ModuleNotFoundError: LangGraph is not installed; the message names the extra.
    """

    serde: Any

    def __init__(
        self,
        client: steno.Client | steno.BlockingClient,
        *,
        serde: Any = None,
        prefix: str = "langgraph",
    ) -> None:
        base()
        super().__init__(serde=serde)
        self._threads = Threads(client, prefix)
        either = EitherClient(client, "StenoSaver")
        self._wait, self._run = either.wait, either.run

    async def aput(
        self, config: Config, checkpoint: Any, metadata: Any, new_versions: Any
    ) -> dict[str, Any]:
        """Store a checkpoint; it replaces one with the same id.

        Args:
            config: its thread and namespace, and the id of its parent.
            checkpoint: the checkpoint with all its values.
            metadata: what `list` can filter by.
            new_versions: not used: each checkpoint is stored with all values.

        Returns:
            The configuration of the checkpoint, which is on the disk.

        Raises:
            StenoError: it could not be stored; see its `outcome`.
        """
        del new_versions
        return await self._wait(self._store.put(config, checkpoint, metadata))

    def put(
        self, config: Config, checkpoint: Any, metadata: Any, new_versions: Any
    ) -> dict[str, Any]:
        """Store a checkpoint, see `aput`."""
        del new_versions
        return self._run(self._store.put(config, checkpoint, metadata))

    async def aput_writes(
        self,
        config: Config,
        writes: Sequence[tuple[str, Any]],
        task_id: str,
        task_path: str = "",
    ) -> None:
        """Store the writes of a task; those that are there already stay.

        A call with special writes only, such as an error or an interrupt, replaces them.

        Args:
            config: the checkpoint.
            writes: channels and values, in order.
            task_id: the task.
            task_path: its path, which decides the order among tasks.

        Raises:
            StenoError: they could not be stored; see its `outcome`.
        """
        await self._wait(self._store.put_writes(config, writes, task_id, task_path))

    def put_writes(
        self,
        config: Config,
        writes: Sequence[tuple[str, Any]],
        task_id: str,
        task_path: str = "",
    ) -> None:
        """Store the writes of a task, see `aput_writes`."""
        self._run(self._store.put_writes(config, writes, task_id, task_path))

    async def aget_tuple(self, config: Config) -> Any:
        """Return the `CheckpointTuple` of a checkpoint, without an id that of the newest one.

        Returns:
            The tuple, or None if there is none.

        Raises:
            StenoError: it could not be read.
        """
        return await self._wait(self._store.get_tuple(config))

    def get_tuple(self, config: Config) -> Any:
        """Return the `CheckpointTuple` of a checkpoint, see `aget_tuple`."""
        return self._run(self._store.get_tuple(config))

    async def alist(
        self,
        config: Config | None,
        *,
        filter: Mapping[str, Any] | None = None,  # noqa: A002 (the framework's name)
        before: Config | None = None,
        limit: int | None = None,
    ) -> AsyncIterator[Any]:
        """Yield a `CheckpointTuple` for each checkpoint that matches, the greatest id first.

        Args:
            config: a thread, a namespace or a checkpoint; None for all threads.
            filter: metadata that it must have.
            before: only checkpoints with a smaller id than this one's.
            limit: how many.

        Raises:
            StenoError: they could not be read.
        """
        found = self._store.list(config, filter or {}, before, limit)
        while (item := await self._wait(_next(found))) is not None:
            yield item

    def list(
        self,
        config: Config | None,
        *,
        filter: Mapping[str, Any] | None = None,  # noqa: A002 (the framework's name)
        before: Config | None = None,
        limit: int | None = None,
    ) -> Iterator[Any]:
        """Yield a `CheckpointTuple` for each checkpoint that matches, see `alist`."""
        found = self._store.list(config, filter or {}, before, limit)
        while (item := self._run(_next(found))) is not None:
            yield item

    async def adelete_thread(self, thread_id: str) -> None:
        """Move a thread to the trash; nothing if it is missing."""
        await self._wait(self._threads.delete(thread_id))

    def delete_thread(self, thread_id: str) -> None:
        """Move a thread to the trash, see `adelete_thread`."""
        self._run(self._threads.delete(thread_id))

    async def adelete_for_runs(self, run_ids: Sequence[str]) -> None:
        """Remove the checkpoints of some runs, with their writes, from all threads.

        A stream of which half is removed frees its disk space as a deleted thread does.
        """
        await self._wait(self._store.delete_for_runs(run_ids))

    def delete_for_runs(self, run_ids: Sequence[str]) -> None:
        """Remove the checkpoints of some runs, see `adelete_for_runs`."""
        self._run(self._store.delete_for_runs(run_ids))

    async def acopy_thread(self, source_thread_id: str, target_thread_id: str) -> None:
        """Copy a thread as a whole, as a fork of its session; nothing if it is missing.

        Raises:
            Exists: there is a thread with the id of the target.
        """
        await self._wait(self._threads.copy(source_thread_id, target_thread_id))

    def copy_thread(self, source_thread_id: str, target_thread_id: str) -> None:
        """Copy a thread as a whole, see `acopy_thread`."""
        self._run(self._threads.copy(source_thread_id, target_thread_id))

    async def aprune(self, thread_ids: Sequence[str], *, strategy: str = "keep_latest") -> None:
        """Remove checkpoints of some threads; their disk space is freed as a deleted thread's is.

        Args:
            thread_ids: the threads; missing ones are nothing.
            strategy: `keep_latest` leaves the last checkpoint of each namespace, and the ancestors
                that its delta channels need; `delete` moves the threads to the trash.

        Raises:
            ValueError: there is no such strategy.
        """
        await self._wait(self._store.prune(thread_ids, strategy))

    def prune(self, thread_ids: Sequence[str], *, strategy: str = "keep_latest") -> None:
        """Remove checkpoints of some threads, see `aprune`."""
        self._run(self._store.prune(thread_ids, strategy))

    async def aget_delta_channel_history(
        self, *, config: Config, channels: Sequence[str]
    ) -> dict[str, Any]:
        """Return the writes of a checkpoint's ancestors to its delta channels.

        Returns:
            For each channel its `writes` since its last stored value, and that value as `seed`.
        """
        return await self._wait(self._store.delta_history(config, channels))

    def get_delta_channel_history(
        self, *, config: Config, channels: Sequence[str]
    ) -> dict[str, Any]:
        """Return the writes to delta channels, see `aget_delta_channel_history`."""
        return self._run(self._store.delta_history(config, channels))

    def get_next_version(self, current: str | int | None, channel: None) -> str:
        """Return the version after `current`, as the framework's own savers make it."""
        del channel
        number = current if isinstance(current, int) else int((current or "0").split(".")[0])
        return f"{number + 1:032}.{random():016}"

    @property
    def _store(self) -> CheckpointStore:
        # The framework sets another serializer in a copy of the saver.
        return CheckpointStore(self._threads, self.serde)


async def _next(items: AsyncIterator[Value]) -> Value | None:
    return await anext(items, None)
