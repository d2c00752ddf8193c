"""The bounded queue in front of one writer: filled without waiting, taken in groups."""

from collections import deque
from collections.abc import Iterator, Sequence
from typing import Protocol

import anyio
import msgspec

from steno_protocol import limits
from steno_protocol.commands import Mutation
from steno_protocol.errors import Busy, StenoError
from steno_protocol.replies import Reply
from stenod.runtime.error_mapping import ended


class ReplyTo(Protocol):
    """Where the answer to one request goes."""

    def reply(self, body: Reply) -> None:
        """Queue the answer; it leaves with the group."""
        ...

    def refuse(self, error: StenoError) -> None:
        """Queue an error as the answer."""
        ...


class Item(msgspec.Struct, frozen=True, eq=False):
    """One command that waits for a writer.

    Attributes:
        size: bytes of its records.
        deadline_s: on the daemon's monotonic clock, or None.
        is_awaited: its reply does not wait for a sync, and its sender waits for the event
            behind that sync.
    """

    command: Mutation
    records: Sequence[bytes]
    to: ReplyTo
    size: int
    deadline_s: float | None
    is_awaited: bool = False


class Budget(msgspec.Struct):
    """Bytes that wait in all mailboxes of a daemon together."""

    taken_bytes: int = 0


class Mailbox:
    """Commands in the order they came; full is an answer, never a wait."""

    def __init__(self, session: str, budget: Budget) -> None:
        self._session = session
        self._budget = budget
        self._items: deque[Item] = deque()
        self._bytes = 0
        self._closed = False
        self._nudged = False
        self._filled = anyio.Event()

    def __len__(self) -> int:
        return len(self._items)

    @property
    def is_closed(self) -> bool:
        """True once nothing more can be put in."""
        return self._closed

    def put(self, item: Item) -> None:
        """Queue a command; `wake` the writer then, or let it take the command at once.

        Raises:
            Busy: too many commands, or bytes, wait already; nothing was queued.
            ShuttingDown: the session is being closed.
        """
        if self._closed:
            raise ended(self._session)
        if (
            len(self._items) >= limits.MAILBOX_COMMANDS_MAX
            or self._bytes + item.size > limits.MAILBOX_BYTES_MAX
            or self._budget.taken_bytes + item.size > limits.INFLIGHT_BYTES_MAX
        ):
            raise Busy(
                f"{len(self._items)} commands with {self._bytes} bytes wait for this session"
                f" already, {self._budget.taken_bytes} bytes for all: try again in a moment",
                session=self._session,
            )
        self._items.append(item)
        self._bytes += item.size
        self._budget.taken_bytes += item.size

    def wake(self) -> None:
        """Wake the writer, for what was put in."""
        self._filled.set()

    def take(self) -> tuple[list[Item], int]:
        """The next batch and its bytes: all that waits, up to its limits.

        These are `GROUP_BYTES_MAX` and `GROUP_COMMANDS_MAX`.
        """
        group: list[Item] = []
        size = 0
        while self._items and len(group) < limits.GROUP_COMMANDS_MAX:
            if group and size + self._items[0].size > limits.GROUP_BYTES_MAX:
                break
            item = self._items.popleft()
            size += item.size
            group.append(item)
        self._bytes -= size
        self._budget.taken_bytes -= size
        return group, size

    def take_all(self) -> Iterator[Item]:
        """All that waits, batch by batch."""
        while self._items:
            yield from self.take()[0]

    def close(self) -> None:
        """Take nothing more in; what is queued is still given out."""
        self._closed = True
        self._filled.set()

    def nudge(self) -> None:
        """Wake the writer although there is nothing to take: it has something else to do."""
        self._nudged = True
        self._filled.set()

    async def wait(self) -> None:
        """Return when there is something to take, on a nudge, or when nothing more will come."""
        while not (self._items or self._closed or self._nudged):
            self._filled = anyio.Event()
            await self._filled.wait()
        self._nudged = False
