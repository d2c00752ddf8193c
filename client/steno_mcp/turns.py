"""Long readings in turns with the requests of other peers."""

from collections.abc import AsyncIterator
from typing import TypeVar

import anyio.lowlevel

from steno_mcp.limits import RECORDS_PER_TURN

RecordT = TypeVar("RecordT")


async def in_turns(records: AsyncIterator[RecordT]) -> AsyncIterator[RecordT]:
    """The records; other tasks get a turn now and then, also while blocks are in memory."""
    turn = 0
    async for record in records:
        turn = (turn + 1) % RECORDS_PER_TURN
        if not turn:
            await anyio.lowlevel.checkpoint()
        yield record
