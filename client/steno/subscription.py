"""What an async client reads as a stream: a session's events, lines and records."""

from collections.abc import AsyncIterator, Callable, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Self
from weakref import WeakMethod

import anyio
import anyio.lowlevel

from steno._following import Following
from steno._reading import LineReader
from steno.values import File, Record, SubscriptionEvent
from steno_protocol.replies import Lines

if TYPE_CHECKING:
    from steno._link import Link


class Subscription(AsyncIterator[SubscriptionEvent]):
    """A session's events in order, across rewrites, reconnects and restarts of the daemon.

    RecordsEvent, Live once at the end of the backlog, Reset for each rewrite. No record is missed
    and none is seen twice. One that is read slowly costs neither the daemon nor this process more
    than one window of bytes. Used with `async for`; `async with` or `aclose` end it at once.
    """

    def __init__(self, link: "Link", session: str, starts: Sequence[tuple[File, str]]) -> None:
        self._link = link
        self._event: anyio.Event | None = None
        self._is_closed = False
        # Weak, so that a loop that was left by `break` ends its subscription.
        wake = WeakMethod(self._wake)
        self._following = Following(session, starts, lambda: _call(wake))
        for follower in self._following.followers:
            link.follow(follower)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> SubscriptionEvent:
        """The next event.

        Raises:
            NotFound: the session cannot be followed any longer.
        """
        await anyio.lowlevel.checkpoint()
        while not self._following.has_events:
            if self._is_closed:
                raise StopAsyncIteration
            if self._following.error is not None:
                raise self._following.error
            self._event = anyio.Event()
            await self._event.wait()
        event, follower = self._following.pop()
        self._link.consumed(follower)
        return event

    async def aclose(self) -> None:
        """End the subscription."""
        self._is_closed = True
        self._following.clear()
        for follower in self._following.followers:
            self._link.unfollow(follower)
        self._wake()
        await anyio.lowlevel.checkpoint()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.aclose()

    def __del__(self) -> None:
        if not self._is_closed:
            for follower in self._following.followers:
                self._link.abandon(follower)

    def _wake(self) -> None:
        if self._event is not None:
            self._event.set()


class LineStream(AsyncIterator[bytes]):
    """Lines as bytes, newline included, fetched block by block."""

    def __init__(self, link: "Link", reader: LineReader) -> None:
        self._link = link
        self._reader = reader

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> bytes:
        """The next line."""
        while not self._reader.lines:
            if not await fetch(self._link, self._reader):
                raise StopAsyncIteration
        return self._reader.lines.popleft()[1]


class RecordStream(AsyncIterator[Record]):
    """Records with their cursors, fetched block by block and decoded one by one."""

    def __init__(self, link: "Link", reader: LineReader, *, strict: bool) -> None:
        self._link = link
        self._reader = reader
        self._strict = strict

    @property
    def damaged(self) -> int:
        """Lines that were no records and were passed over so far."""
        return self._reader.damaged

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Record:
        """The next record."""
        while (record := self._reader.record(strict=self._strict)) is None:
            if not await fetch(self._link, self._reader):
                raise StopAsyncIteration
        return record


def _call(reference: WeakMethod[Callable[[], None]]) -> None:
    function = reference()
    if function is not None:
        function()


async def fetch(link: "Link", reader: LineReader) -> bool:
    """Fetch the next block; False at the end."""
    command = reader.next_command()
    if command is None:
        return False
    reader.take(*await link.request(command, Lines))
    return True
