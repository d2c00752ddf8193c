"""Streams that begin again with what stays of their records."""

from collections.abc import Awaitable, Callable
from secrets import token_hex
from typing import Any

import steno
from steno.adapters._either_client import ready

Fill = Callable[[Any], Awaitable[None]]
"""Appends what stays to a stream."""


async def rewrite(session: Any, name: str, head: steno.Position, fill: Fill) -> bool:
    """Give a stream other records at one instant, durable on return.

    The old ones are a deleted generation, which `steno gc --trash` removes when it has expired. If
    nothing is appended, the stream is deleted. A process that ends before the instant leaves a
    stream `rewrite-<random>`.

    Args:
        session: the session, of an async client or a blocking one.
        name: the stream.
        head: the end of what was read of the stream.
        fill: appends its new records.

    Returns:
        False if another process was faster; the stream is as that one left it.

    Raises:
        NotFound: there is no such session.
        StenoError: it was not rewritten, or that is unknown.
    """
    stream = await ready(session.stream(name))
    target = await ready(session.stream(f"rewrite-{token_hex(8)}"))
    await fill(target)
    successor = target.name if await ready(target.count()) else None
    try:
        await ready(stream.delete(expect=head, successor=successor))
    except (steno.Conflict, steno.NotFound):
        if successor is not None:
            await ready(target.delete())
        return False
    return True
