"""Sessions whose subscriptions begin and fail when a test says so."""

from collections.abc import AsyncGenerator, Callable
from typing import Any

import anyio
import anyio.lowlevel

from steno_protocol.errors import NotFound

WAIT_S = 60.0
"""Nothing here waits for a process; a longer silence is a failure."""


class FollowedEvents:
    """A subscription from `now`.

    Attributes:
        begun: set by the test to begin it.
        failed: set by the test to end it with NotFound.
    """

    def __init__(self) -> None:
        self.begun = anyio.Event()
        self.failed = anyio.Event()

    async def __aenter__(self) -> "FollowedEvents":
        await self.begun.wait()
        return self

    async def __aexit__(self, *_: object) -> None:
        return None

    async def __aiter__(self) -> AsyncGenerator[Any]:
        await self.failed.wait()
        raise NotFound("there is no session of this name")
        yield


class FollowedSessions:
    """The part of a client that follows sessions.

    Attributes:
        subscriptions: all of them, in the order of their calls.
    """

    def __init__(self) -> None:
        self.subscriptions: list[FollowedEvents] = []

    def session(self, _: str) -> "FollowedSessions":
        """Return the session of this name."""
        return self

    def subscribe(self, _: str) -> FollowedEvents:
        """Return a new subscription."""
        self.subscriptions.append(FollowedEvents())
        return self.subscriptions[-1]

    async def subscription(self, number: int) -> FollowedEvents:
        """Wait for a subscription."""
        await until(lambda: len(self.subscriptions) > number)
        return self.subscriptions[number]


async def until(condition: Callable[[], object]) -> None:
    """Wait until a condition holds."""
    with anyio.fail_after(WAIT_S):
        while not condition():
            await anyio.lowlevel.checkpoint()
