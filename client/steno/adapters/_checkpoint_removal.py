"""Removal of checkpoints, and of their operations from a stream.

A removal is an operation like others, so nobody waits for it. Then the stream is rewritten without
the operations on removed checkpoints, if these are at least half of it: what is copied, and what is
kept as a deleted generation until it expires, is never more than what was appended.
"""

from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any, Final

import steno
from steno.adapters._checkpoint_log import CheckpointLog, Reading, records_of
from steno.adapters._either_client import ready
from steno.adapters._stream_rewrite import rewrite
from steno_protocol.errors import NotFound

_REWRITES_MAX: Final = 4
"""Attempts to rewrite a stream that others append to; the next removal tries again."""

_BATCH_BYTES: Final = 4 * 1024 * 1024
"""Bytes of copied operations after which they are sent."""

_BATCH_RECORDS: Final = 512
"""Lines of copied operations after which they are sent."""

Drop = dict[str, list[str]]
"""The checkpoints to remove, by namespace."""

Choice = Callable[[Reading], Awaitable[Drop]]
"""Reads the checkpoints, and returns those to remove."""


async def remove(log: CheckpointLog, choose: Choice) -> None:
    """Remove checkpoints as a reading found them; nothing if the thread is deleted meanwhile."""
    with suppress(NotFound):
        while not await _is_removed(log, choose):
            pass
        for _ in range(_REWRITES_MAX):
            if await _is_rewritten(log):
                break


async def _is_removed(log: CheckpointLog, choose: Choice) -> bool:
    """Append a removal; False if it may mean an operation that a rewrite took away meanwhile."""
    reading = Reading(log)
    drop = await choose(reading)
    for ns, names in drop.items():
        if names:
            ack = await log.add({"through": reading.last, "ns": ns}, {"drop": names})
            if ack.first.generation != reading.generation:
                return False
    return True


async def _is_rewritten(log: CheckpointLog) -> bool:
    """Rewrite a stream if that frees space; False if another process was faster.

    A stream with damaged lines stays as it is.
    """
    session = log.client.session(log.session)
    stream = await ready(session.stream(log.stream))
    head: steno.Position = await ready(stream.head())
    reading = Reading(log)
    async for _ in reading.entries():
        pass
    if reading.lines != head.line:
        return False
    spans = sorted(reading.kept)
    if head.line == 0 or 2 * sum(end - start for start, end in spans) > head.line:
        return True

    async def copy(target: Any) -> None:
        batch = list[bytes]()
        for start, end in spans:
            between = (steno.Position(head.generation, line) for line in (start, end))
            batch += [record.data async for record in records_of(stream, *between)]
            if len(batch) >= _BATCH_RECORDS or sum(map(len, batch)) >= _BATCH_BYTES:
                await ready(target.append(batch))
                batch = []
        if batch:
            await ready(target.append(batch))

    return await rewrite(session, log.stream, head, copy)
