"""The operations of LangGraph's checkpointers on the streams of threads."""

import heapq
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

from steno.adapters._checkpoint_log import Entry, Reading
from steno.adapters._checkpoint_removal import Drop, remove
from steno.adapters._checkpoint_threads import Threads
from steno.adapters._checkpoint_values import Stored, serialized, stored
from steno.adapters._optional import framework

_COUNTERS: Final = "counters_since_delta_snapshot"
"""The metadata with the delta channels of a graph, by name."""

Config = Mapping[str, Any]
"""A `RunnableConfig`: `configurable` has `thread_id`, `checkpoint_ns` and `checkpoint_id`."""

_Link = tuple[str | None, set[str]]
"""The parent of a checkpoint, and the channels whose value is stored with the checkpoint."""


class Serializer(Protocol):
    """The framework's `SerializerProtocol`."""

    dumps_typed: Callable[[Any], tuple[str, bytes]]
    loads_typed: Callable[[tuple[str, bytes]], Any]


@dataclass(frozen=True, slots=True)
class CheckpointStore:
    """What a checkpointer does, for sync and async callers.

    Attributes:
        threads: the threads.
        serde: the serializer of all values.
    """

    threads: Threads
    serde: Serializer

    async def put(self, config: Config, checkpoint: Any, metadata: Any) -> dict[str, Any]:
        """Store a checkpoint as a child of the one in the configuration."""
        thread, ns, parent = _place(config)
        rest = dict(checkpoint)
        values = rest.pop("channel_values", {})
        contents = {
            "metadata": self._stored(base().get_checkpoint_metadata(config, metadata)),
            "values": {name: self._stored(value) for name, value in values.items()},
            "rest": self._stored(rest),
        }
        operation = {"checkpoint": rest["id"], "ns": ns, "parent": parent}
        await self.threads.add(thread, ns, operation, contents)
        return _config(thread, ns, rest["id"])

    async def put_writes(
        self, config: Config, writes: Sequence[tuple[str, Any]], task: str, path: str
    ) -> None:
        """Store the writes of a task; no writes are nothing."""
        thread, ns, _ = _place(config)
        checkpoint = str(config["configurable"]["checkpoint_id"])
        special = base().WRITES_IDX_MAP
        found = [
            [special.get(channel, number), channel, self._stored(value)]
            for number, (channel, value) in enumerate(writes)
        ]
        operation = {
            "checkpoint": checkpoint,
            "ns": ns,
            "task": task,
            "path": path,
            "replace": all(channel in special for channel, _ in writes),
        }
        if found:
            await self.threads.add(thread, ns, operation, {"writes": found})

    async def get_tuple(self, config: Config) -> Any:
        """Return a checkpoint, or the newest one if the configuration has no id."""
        thread, ns, name = _place(config)
        entry = await _find(Reading(self.threads.log(thread, ns), ns).entries(), name)
        if entry is None:
            return None
        return self._tuple(thread, entry, config if name else None)

    async def list(
        self,
        config: Config | None,
        wanted: Mapping[str, Any],
        before: Config | None,
        limit: int | None,
    ) -> AsyncIterator[Any]:
        """Yield the checkpoints that match, the greatest id first."""
        name = config["configurable"].get("checkpoint_id") if config is not None else None
        end = before["configurable"].get("checkpoint_id") if before is not None else None
        left = float("inf") if limit is None else limit
        async for thread, entry in self._entries(config):
            if left <= 0:
                return
            if (name and entry.name != name) or (end and entry.name >= end):
                continue
            found = self._tuple(thread, entry, None)
            if all(found.metadata.get(key) == value for key, value in wanted.items()):
                left -= 1
                yield found

    async def delete_for_runs(self, run_ids: Sequence[str]) -> None:
        """Remove the checkpoints of some runs from all threads."""

        async def of_runs(reading: Reading) -> Drop:
            drop: Drop = {}
            async for entry in reading.entries():
                if self._metadata(entry).get("run_id") in run_ids:
                    drop.setdefault(entry.ns, []).append(entry.name)
            return drop

        for thread in await self.threads.names() if run_ids else []:
            for log in await self.threads.logs(thread):
                await remove(log, of_runs)

    async def prune(self, thread_ids: Sequence[str], strategy: str) -> None:
        """Remove the checkpoints of some threads, or all but the last ones."""
        if strategy not in {"keep_latest", "delete"}:
            raise ValueError(f"{strategy!r} is no strategy: use 'keep_latest' or 'delete'")
        for thread in thread_ids:
            if strategy == "delete":
                await self.threads.delete(thread)
                continue
            for log in await self.threads.logs(thread):
                await remove(log, self._unneeded)

    async def delta_history(self, config: Config, channels: Sequence[str]) -> dict[str, Any]:
        """Return the writes to channels since their last stored value, and that value."""
        found: dict[str, dict[str, Any]] = {channel: {"writes": []} for channel in channels}
        wanted = set(channels)
        if not wanted:
            return found
        async for entry in self._ancestors(*_place(config)):
            for task, channel, value in reversed(_writes_of(entry)):
                if channel in wanted:
                    found[channel]["writes"].append((task, channel, self._loaded(value)))
            values = entry.contents["values"]
            for channel in wanted & values.keys():
                found[channel]["seed"] = self._loaded(values[channel])
            wanted -= values.keys()
            if not wanted:
                break
        for history in found.values():
            history["writes"].reverse()
        return found

    async def _entries(self, config: Config | None) -> AsyncIterator[tuple[Any, Entry]]:
        """The entries of a namespace, a thread or all threads, the greatest id first."""
        if config is None:
            threads, ns = await self.threads.names(), None
        else:
            place = config["configurable"]
            threads, ns = [place["thread_id"]], place.get("checkpoint_ns")
        logs = [(each, log) for each in threads for log in await self.threads.logs(each, ns)]
        sources = [Reading(log, ns).entries() for _, log in logs]
        heap: list[tuple[_Descending, int, Entry]] = []
        for number, source in enumerate(sources):
            await _push(heap, number, source)
        while heap:
            _, number, entry = heapq.heappop(heap)
            yield logs[number][0], entry
            await _push(heap, number, sources[number])

    async def _ancestors(self, thread: Any, ns: str, name: str | None) -> AsyncIterator[Entry]:
        """The ancestors of a checkpoint, its parent first."""
        log, visited = self.threads.log(thread, ns), set[str]()
        entries = Reading(log, ns).entries()
        while (entry := await _find(entries, name)) is not None and entry.name not in visited:
            if visited:
                yield entry
            visited.add(entry.name)
            name = entry.parent
            if not name:
                return
            if name >= entry.name:
                # A parent with a greater id, as another clock makes it, lies behind the reader.
                entries = Reading(log, ns).entries()

    async def _unneeded(self, reading: Reading) -> Drop:
        """The checkpoints of each namespace that its last one does not need."""
        missing: dict[str, set[str]] = {}
        links: dict[str, dict[str, _Link]] = {}
        async for entry in reading.entries():
            if entry.ns not in links:
                missing[entry.ns] = self._delta_channels(entry)
            values = set(entry.contents["values"])
            links.setdefault(entry.ns, {})[entry.name] = entry.parent, values
        return {ns: _unneeded(chain, missing[ns]) for ns, chain in links.items()}

    def _delta_channels(self, entry: Entry) -> set[str]:
        """The channels of a checkpoint whose value is stored with an ancestor."""
        counters: dict[str, Any] = self._metadata(entry).get(_COUNTERS) or {}
        versions: dict[str, Any] = self._loaded(entry.contents["rest"])["channel_versions"]
        return (counters.keys() & versions.keys()) - set(entry.contents["values"])

    def _tuple(self, thread: Any, entry: Entry, config: Config | None) -> Any:
        contents = entry.contents
        values = {name: self._loaded(value) for name, value in contents["values"].items()}
        writes = [(task, name, self._loaded(value)) for task, name, value in _writes_of(entry)]
        parent = _config(thread, entry.ns, entry.parent) if entry.parent else None
        return base().CheckpointTuple(
            config or _config(thread, entry.ns, entry.name),
            {**self._loaded(contents["rest"]), "channel_values": values},
            self._loaded(contents["metadata"]),
            parent,
            writes,
        )

    def _metadata(self, entry: Entry) -> dict[str, Any]:
        metadata: dict[str, Any] = self._loaded(entry.contents["metadata"])
        return metadata

    def _stored(self, value: Any) -> Stored:
        return stored(*self.serde.dumps_typed(value))

    def _loaded(self, value: Stored) -> Any:
        return self.serde.loads_typed(serialized(value))


class _Descending(str):
    """Text that sorts the other way round."""

    __slots__ = ()

    def __lt__(self, other: str) -> bool:
        return str.__gt__(self, other)


def base() -> Any:
    """The module of the interface, imported when it is first needed."""
    return framework("langgraph.checkpoint.base", "langgraph")


def _unneeded(links: Mapping[str, _Link], missing: set[str]) -> list[str]:
    """The checkpoints but the last one and its ancestors up to a value of each channel.

    Args:
        links: the checkpoints of a namespace, the last one first.
        missing: the delta channels of the last one that have no value there.
    """
    latest = next(iter(links))
    keep, name = {latest}, links[latest][0]
    while missing and name is not None and name in links and name not in keep:
        keep.add(name)
        name, present = links[name]
        missing = missing - present
    return [each for each in links if each not in keep]


async def _push(
    heap: list[tuple[_Descending, int, Entry]], number: int, source: AsyncIterator[Entry]
) -> None:
    entry = await anext(source, None)
    if entry is not None:
        heapq.heappush(heap, (_Descending(entry.name), number, entry))


async def _find(entries: AsyncIterator[Entry], name: str | None) -> Entry | None:
    """The entry of a checkpoint, or the next one if no name is given."""
    async for entry in entries:
        if not name or entry.name == name:
            return entry
        if entry.name < name:
            return None
    return None


def _place(config: Config) -> tuple[Any, str, str | None]:
    """The thread, the namespace and the id of a checkpoint."""
    configurable = config["configurable"]
    ns = configurable.get("checkpoint_ns") or ""
    return configurable["thread_id"], ns, configurable.get("checkpoint_id")


def _config(thread: Any, ns: str, name: str) -> dict[str, Any]:
    place = {"thread_id": thread, "checkpoint_ns": ns, "checkpoint_id": name}
    return {"configurable": place}


def _writes_of(entry: Entry) -> Sequence[tuple[str, str, Stored]]:
    """The writes to a checkpoint in the order in which a run applies them."""
    found: dict[tuple[str, int], tuple[str, str, Stored]] = {}
    for row in reversed(entry.writes):
        task, path, replaces = (row.operation[name] for name in ("task", "path", "replace"))
        for number, channel, value in row.contents["writes"]:
            if replaces or (task, number) not in found:
                found[task, number] = path, channel, value
    ordered = sorted((path, task, number) for (task, number), (path, _, _) in found.items())
    return [(task, *found[task, number][1:]) for _, task, number in ordered]
