"""Threads of LangGraph as sessions, and their namespaces as streams."""

from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec

import steno
from steno.adapters._checkpoint_log import CheckpointLog, Marks, Operation, records_of
from steno.adapters._either_client import ready
from steno.adapters._names import DIGEST, digest_of, name_of, segment_or_digest
from steno_protocol.errors import NotFound

_ROOT: Final = "checkpoints"
"""The stream of the root namespace. Others share 256 streams, which begin with this name, too: a
session has at most 1000 streams, and a subgraph has a new namespace in each run."""

_NAMES: Final = f"{DIGEST}names"
"""The session with the thread ids of those segments, in its stream `names`."""


@dataclass(frozen=True, slots=True)
class Threads:
    """The threads below a prefix; a thread's id is any text.

    Attributes:
        client: an async client or a blocking one.
        prefix: the first segment of the ids of the sessions.
    """

    client: steno.Client | steno.BlockingClient
    prefix: str
    _marks: Marks = field(default_factory=Marks)

    async def add(
        self, thread: Any, ns: str, operation: Operation, contents: dict[str, Any]
    ) -> None:
        """Append an operation to a namespace; the first one creates the thread."""
        log = self.log(thread, ns)
        try:
            await log.add(operation, contents)
        except NotFound:
            await self._note(thread)
            await ready(self.client.open(log.session, follow=False))
            await log.add(operation, contents)

    async def delete(self, thread: Any) -> None:
        """Move a thread to the trash; nothing if it is missing."""
        try:
            await ready(self.client.delete(self._session(thread)))
        except NotFound:
            return

    async def copy(self, source: Any, target: Any) -> None:
        """Copy a thread, as a fork of its session; nothing if it is missing."""
        if await self.logs(source):
            await self._note(target)
            session = self.client.session(self._session(source))
            with suppress(NotFound):
                await ready(session.fork(self._session(target)))

    def log(self, thread: Any, ns: str) -> CheckpointLog:
        """Return the stream of a namespace."""
        stream = f"{_ROOT}-{digest_of(ns)[:2]}" if ns else _ROOT
        return CheckpointLog(self._marks, self.client, self._session(thread), stream)

    async def logs(self, thread: Any, ns: str | None = None) -> list[CheckpointLog]:
        """Return the stream of a namespace, or all streams of a thread."""
        if ns is not None:
            return [self.log(thread, ns)]
        session = self._session(thread)
        try:
            streams = await ready(self.client.session(session).streams())
        except NotFound:
            return []
        names = [each.name for each in streams if each.name.split("-")[0] == _ROOT]
        return [CheckpointLog(self._marks, self.client, session, name) for name in names]

    async def names(self) -> list[str]:
        """Return the ids of all threads."""
        start = f"{self.prefix}/"
        sessions = [each.session for each in await ready(self.client.sessions(start))]
        noted: dict[str, str] = {}
        if f"{start}{_NAMES}" in sessions:
            async for record in records_of(await self._noted()):
                name = record.record["thread_id"]
                noted[segment_or_digest(name)] = name
        segments = [each.removeprefix(start) for each in sessions]
        return [
            noted.get(each, name_of(each))
            for each in segments
            if each != _NAMES and "/" not in each
        ]

    async def _note(self, thread: Any) -> None:
        """Note a thread's id if it cannot be derived from the id of its session."""
        segment = segment_or_digest(str(thread))
        if segment.startswith(DIGEST):
            line = msgspec.json.encode({"thread_id": str(thread)})
            await ready(self.client.open(f"{self.prefix}/{_NAMES}", follow=False))
            await ready((await self._noted()).append(line, key=digest_of(segment)))

    async def _noted(self) -> Any:
        return await ready(self.client.session(f"{self.prefix}/{_NAMES}").stream("names"))

    def _session(self, thread: Any) -> str:
        return f"{self.prefix}/{segment_or_digest(str(thread))}"
