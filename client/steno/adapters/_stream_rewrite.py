"""Streams that begin again with what stays of their records."""

import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from secrets import token_hex
from typing import Any, Final

import steno
from steno.adapters._either_client import ready
from steno_protocol import paths

_LEFT_S: Final = 86_400
"""Seconds without a change after which the process that filled a stream is taken for dead."""

Fill = Callable[[Any], Awaitable[None]]
"""Appends what stays to a stream."""


async def rewrite(session: Any, name: str, head: steno.Position, fill: Fill) -> bool:
    """Give a stream other records at one instant, durable on return.

    The old ones are a deleted generation, which `steno gc --trash` removes when it has expired. If
    nothing is appended, the stream is deleted. A process that ends before the instant leaves a
    stream `rewrite-<random>`, which a later rewrite of the session removes.

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
    await _remove_left(session)
    target = await ready(session.stream(f"rewrite-{token_hex(8)}"))
    try:
        await fill(target)
        filled = await ready(target.head())
        # In another generation the first records are gone: they were taken for left behind.
        if filled.generation == 0:
            await ready(stream.delete(expect=head, successor=target.name if filled.line else None))
            return True
    except (steno.Conflict, steno.NotFound):
        pass
    except steno.StenoError:
        await _remove(target)
        raise
    await _remove(target)
    return False


async def _remove(stream: Any, head: steno.Position | None = None) -> None:
    with suppress(steno.StenoError):
        await ready(stream.delete(expect=head))


async def _remove_left(session: Any) -> None:
    for each in await ready(session.streams()):
        if paths.is_scratch_stream(each.name) and time.time() - each.modified_at > _LEFT_S:
            await _remove(await ready(session.stream(each.name)), each.head)
