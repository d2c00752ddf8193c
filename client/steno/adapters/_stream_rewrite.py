"""Streams that begin again with what stays of their records."""

from collections.abc import AsyncIterator, Sequence
from secrets import token_hex
from typing import Any, Final

import steno
from steno.adapters._either_client import ready

_BATCH_BYTES: Final = 4 * 1024 * 1024
"""Bytes after which a batch is sent."""

_BATCH_RECORDS: Final = 512
"""Records after which a batch is sent."""


async def rewrite(
    session: Any, name: str, units: AsyncIterator[Sequence[bytes]], head: steno.Position
) -> bool:
    """Give a stream other records at one instant, durable on return.

    The old ones are a deleted generation, which `steno gc --trash` removes when it has expired.
    Without a record the stream is deleted. A process that ends before the instant leaves a stream
    `rewrite-<random>`.

    Args:
        session: the session, of an async client or a blocking one.
        name: the stream.
        units: its records; those of one unit are never seen apart.
        head: the end of what was read of the stream.

    Returns:
        False if the stream is not as it was read, and stays as it is.

    Raises:
        NotFound: there is no such session.
        StenoError: it was not rewritten, or that is unknown.
    """
    successor = f"rewrite-{token_hex(8)}"
    target = await ready(session.stream(successor))
    batch, is_empty = list[bytes](), True
    async for unit in units:
        batch += unit
        if len(batch) >= _BATCH_RECORDS or sum(map(len, batch)) >= _BATCH_BYTES:
            await ready(target.append(batch))
            batch, is_empty = [], False
    if batch:
        await ready(target.append(batch))
        is_empty = False
    stream = await ready(session.stream(name))
    try:
        await ready(stream.delete(expect=head, successor=None if is_empty else successor))
    except (steno.Conflict, steno.NotFound):
        if not is_empty:
            await ready(target.delete())
        return False
    return True
