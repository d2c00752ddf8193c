"""What an async client reads as a stream: a session's events, lines and records."""

from collections import deque
from collections.abc import AsyncIterator, Callable, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Self
from weakref import WeakMethod

import anyio
import anyio.lowlevel

from steno._async.in_thread import in_thread
from steno._connect.session_file import open_source
from steno._sansio.event_merge import Following
from steno._sansio.mirror import Mirror
from steno._sansio.not_picklable import NotPicklable
from steno._sansio.pending import Pending
from steno._sansio.reading import LineReader
from steno.values import File, Record, SubscriptionEvent
from steno_protocol import limits
from steno_protocol.errors import Busy
from steno_protocol.replies import Lines

if TYPE_CHECKING:
    from steno._async.link import Link


class Subscription(AsyncIterator[SubscriptionEvent], NotPicklable):
    """A session's events in order, across rewrites, reconnects and restarts of the daemon.

    RecordsEvent, Live once at the end of the backlog, Reset for each rewrite. No record is missed
    and none is seen twice. One that is read slowly costs neither the daemon nor this process more
    than one window of bytes. Used with `async for`; `async with` or `aclose` end it at once. It is
    one task's: of two that wait for its next event the second gets Busy.

    One from `now` on has begun once `async with` was entered: what is acknowledged later is
    delivered. With `async for` alone it begins with the daemon's answer, some time after the call.
    """

    def __init__(
        self,
        link: "Link",
        session: str,
        starts: Sequence[tuple[File, str]],
        incarnation: str | None = None,
        mirror_of: Callable[[], Mirror | None] | None = None,
    ) -> None:
        self._link = link
        self._event: anyio.Event | None = None
        self._is_closed = False
        # Weak, so that a loop that was left by `break` ends its subscription.
        wake = WeakMethod(self._wake)
        self._following = Following(session, starts, lambda: _call(wake), incarnation, mirror_of)
        for follower in self._following.followers:
            link.follow(follower)

    @property
    def incarnation(self) -> str | None:
        """Which making of the session the events taken so far are of.

        To be saved beside the position after an event, and given with it to `subscribe`. None
        before the daemon's first answer. With both files it changes once both have reported it.
        """
        return self._following.incarnation

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> SubscriptionEvent:
        """The next event.

        Raises:
            NotFound: the session cannot be followed any longer.
            Busy: another task waits for it.
            BadRequest: this is not the client's event loop.
        """
        await anyio.lowlevel.checkpoint()
        self._link.check_loop()
        while not self._following.has_events:
            if self._is_closed:
                raise StopAsyncIteration
            await self._next_news()
        event, follower = self._following.pop()
        self._link.consumed(follower)
        return event

    async def aclose(self) -> None:
        """End the subscription."""
        self._close()
        await anyio.lowlevel.checkpoint()

    async def __aenter__(self) -> Self:
        """Wait until it is known where the files are followed from.

        Raises:
            NotFound, Unreachable: the daemon did not say where `now` is; the subscription is over.
            Busy: another task waits for it.
        """
        await anyio.lowlevel.checkpoint()
        try:
            while not (self._following.has_begun or self._is_closed):
                await self._next_news()
        except Busy:
            # It is another task's, which goes on.
            raise
        except BaseException:
            self._close()
            raise
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

    async def _next_news(self) -> None:
        """Wait until something has come; raises why nothing will any more."""
        if self._following.error is not None:
            raise self._following.error
        if self._event is not None:
            raise Busy(
                "another task waits for the next event of this subscription: give each task a"
                " subscription of its own"
            )
        self._event = anyio.Event()
        try:
            await self._event.wait()
        finally:
            self._event = None

    def _close(self) -> None:
        self._is_closed = True
        self._following.clear()
        for follower in self._following.followers:
            self._link.unfollow(follower)
        self._wake()

    def _wake(self) -> None:
        if self._event is not None:
            self._event.set()


class _Blocks:
    """Blocks of lines, the next of them on its way while one is used."""

    def __init__(self, link: "Link", reader: LineReader) -> None:
        self._link = link
        self._reader = reader

    async def fetch(self) -> bool:
        """Have the next block in the reader; False at the end."""
        return await fetch(self._link, self._reader, ahead=True)

    def __del__(self) -> None:
        if self._reader.ahead is not None:
            self._link.forget(self._reader.ahead)


class LineStream(AsyncIterator[bytes]):
    """Lines as bytes, newline included, fetched block by block."""

    def __init__(self, link: "Link", reader: LineReader) -> None:
        self._blocks = _Blocks(link, reader)
        self._reader = reader
        self._lines: deque[bytes] = deque()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> bytes:
        """The next line."""
        while not self._lines:
            if not self._reader.lines and not await self._blocks.fetch():
                raise StopAsyncIteration
            if self._reader.lines:
                self._lines = self._reader.lines.pop_block()[1]
        return self._lines.popleft()


class RecordStream(AsyncIterator[Record]):
    """Records with their cursors, fetched block by block and decoded one by one."""

    def __init__(self, link: "Link", reader: LineReader, *, strict: bool) -> None:
        self._blocks = _Blocks(link, reader)
        self._reader = reader
        self._strict = strict
        self._records = reader.records(strict=strict)

    @property
    def damaged(self) -> int:
        """Lines that were no records and were passed over so far."""
        return self._reader.damaged

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Record:
        """The next record."""
        while (record := next(self._records, None)) is None:
            # It ends with a block, and with a line that it refuses.
            self._records = self._reader.records(strict=self._strict)
            if not self._reader.lines and not await self._blocks.fetch():
                raise StopAsyncIteration
        return record


def _call(reference: WeakMethod[Callable[[], None]]) -> None:
    function = reference()
    if function is not None:
        function()


async def fetch(link: "Link", reader: LineReader, *, ahead: bool = False) -> bool:
    """Fetch the next block; False at the end.

    Args:
        ahead: request the next block at once; a caller that gives up early has to forget it.
    """
    link.check_open()
    if reader.has_file and await in_thread(
        lambda: reader.take_from_file(limits.READ_AHEAD_BYTES_MAX)
    ):
        return True
    pending = reader.ahead or _ask(link, reader)
    reader.ahead = None
    if pending is None:
        return False
    reader.take(*await link.finish(pending, Lines))
    if (source := reader.source) is not None:
        reader.use(await in_thread(lambda: open_source(source)))
    if ahead and not reader.has_file:
        reader.ahead = _ask(link, reader)
    return True


def _ask(link: "Link", reader: LineReader) -> Pending | None:
    command = reader.next_command()
    return None if command is None else link.begin(command)
