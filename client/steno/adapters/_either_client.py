"""Work that an async client or a blocking one does, for interfaces with sync and async methods."""

import asyncio
from collections.abc import Coroutine
from inspect import isawaitable
from typing import Any, TypeVar

import steno

Value = TypeVar("Value")


async def ready(answer: Any) -> Any:
    """Return the answer of an async client or a blocking one; with the latter nothing waits."""
    return await answer if isawaitable(answer) else answer


class EitherClient:
    """Runs coroutines whose requests a client of either kind performs.

    With a blocking client both methods may be called from any thread. With an async one `run` may
    be called from any thread but that of its event loop.

    Args:
        client: an open client.
        what: the class that users know, for errors.
    """

    def __init__(self, client: steno.Client | steno.BlockingClient, what: str) -> None:
        self._what = what
        self._loop = asyncio.get_running_loop() if isinstance(client, steno.Client) else None

    async def wait(self, work: Coroutine[Any, Any, Value]) -> Value:
        """Do the work of an async method."""
        if self._loop is None:
            return await asyncio.to_thread(without_waiting, work)
        return await work

    def run(self, work: Coroutine[Any, Any, Value]) -> Value:
        """Do the work of a sync method.

        Raises:
            RuntimeError: it would block the event loop of its async client.
        """
        if self._loop is None:
            return without_waiting(work)
        if _running_loop() is self._loop:
            work.close()
            raise RuntimeError(
                f"a sync method of {self._what} would block the event loop of its async client:"
                " await the async one, or give it a client of steno.connect_sync"
            )
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()


def _running_loop() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None


def without_waiting(work: Coroutine[Any, Any, Value]) -> Value:
    """Run a coroutine whose requests a blocking client performs: it never suspends.

    Raises:
        RuntimeError: it waits for an event loop.
    """
    try:
        work.send(None)
    except StopIteration as done:
        result: Value = done.value
        return result
    raise RuntimeError("work with a blocking client waits for an event loop")
