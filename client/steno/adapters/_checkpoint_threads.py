"""Threads of LangGraph as sessions, and their namespaces as streams."""

from collections.abc import Sequence
from typing import Any, Final

import msgspec

import steno
from steno.adapters._checkpoint_log import CheckpointLog, Operation, Requests
from steno.adapters._names import DIGEST, digest_of, name_of, segment_or_digest
from steno_protocol.errors import NotFound

_ROOT: Final = "checkpoints"
"""The stream of the root namespace. Others share 256 streams, which begin with this name, too: a
session has at most 1000 streams, and a subgraph has a new namespace in each run."""

_NAMES: Final = f"{DIGEST}names"
"""The session with the thread ids of those segments, in its stream `names`."""


class Threads:
    """The threads below a prefix; a thread's id is any text.

    Args:
        requests: performs them.
        prefix: the first segment of the ids of the sessions.
    """

    def __init__(self, requests: Requests, prefix: str) -> None:
        self._requests = requests
        self._prefix = prefix

    async def add(
        self, thread: Any, ns: str, operation: Operation, contents: dict[str, Any]
    ) -> None:
        """Append an operation to a namespace; the first one creates the thread."""
        log = self.log(thread, ns)
        try:
            await log.add(operation, contents)
        except NotFound:
            await self._note(thread)
            await self._requests.open(self._session(thread))
            await log.add(operation, contents)

    async def delete(self, thread: Any) -> None:
        """Move a thread to the trash; nothing if it is missing."""
        await self._requests.delete(self._session(thread))

    async def copy(self, source: Any, target: Any) -> None:
        """Copy a thread, as a fork of its session; nothing if it is missing."""
        if await self.logs_of(source):
            await self._note(target)
            await self._requests.fork(self._session(source), self._session(target))

    def log(self, thread: Any, ns: str) -> CheckpointLog:
        """Return the stream of a namespace."""
        stream = f"{_ROOT}-{digest_of(ns)[:2]}" if ns else _ROOT
        return CheckpointLog(self._requests, self._session(thread), stream)

    async def logs_of(self, thread: Any, ns: str | None = None) -> Sequence[CheckpointLog]:
        """Return the stream of a namespace, or all streams of a thread."""
        if ns is not None:
            return [self.log(thread, ns)]
        session = self._session(thread)
        streams = await self._requests.streams(session)
        return [
            CheckpointLog(self._requests, session, stream)
            for stream in streams
            if stream.split("-")[0] == _ROOT
        ]

    async def logs(self) -> Sequence[tuple[str, CheckpointLog]]:
        """Return all streams of all threads, each with the id of its thread."""
        prefix = f"{self._prefix}/"
        segments = [each.removeprefix(prefix) for each in await self._requests.sessions(prefix)]
        names = await self._names()
        threads = [
            names.get(each, name_of(each))
            for each in segments
            if each != _NAMES and "/" not in each
        ]
        return [(thread, log) for thread in threads for log in await self.logs_of(thread)]

    async def _names(self) -> dict[str, str]:
        session = f"{self._prefix}/{_NAMES}"
        records = await self._requests.span(session, "names", steno.Position(0, 0), None)
        names = [str(record.record["thread_id"]) for record in records]
        return {segment_or_digest(name): name for name in names}

    async def _note(self, thread: Any) -> None:
        """Note a thread's id if it cannot be derived from the id of its session."""
        segment = segment_or_digest(str(thread))
        if segment.startswith(DIGEST):
            session = f"{self._prefix}/{_NAMES}"
            await self._requests.open(session)
            line = msgspec.json.encode({"thread_id": str(thread)})
            await self._requests.append(session, "names", [line], key=digest_of(segment))

    def _session(self, thread: Any) -> str:
        return f"{self._prefix}/{segment_or_digest(str(thread))}"
