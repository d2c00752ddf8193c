"""The commands of one writer: those that wait, and the batch that is stored together."""

from collections import deque
from collections.abc import Iterator, Sequence
from typing import Protocol

import anyio
import msgspec

from steno_protocol import limits
from steno_protocol.commands import Mutation
from steno_protocol.errors import Busy, StenoError
from steno_protocol.replies import Ack, Reply
from stenod.core.speculation import Lines, moved
from stenod.recovery.file_opening import Opened
from stenod.runtime.error_mapping import ended, with_key


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


class Decided(msgspec.Struct, frozen=True):
    """A decided command, with its reply once its batch is stored.

    Attributes:
        is_new: this batch's bytes are what it waits for; else it is a repeat.
        is_durable: the reply is about earlier durable bytes, and holds if the batch fails.
    """

    item: Item
    ack: Ack
    is_new: bool
    is_durable: bool = False


class Batch(msgspec.Struct, eq=False):
    """Decided commands that reach the disk together, and are answered when they have.

    Attributes:
        opened: the files that it goes to.
        start: bytes of the file before it.
        pieces: the bytes of each command.
        lines: how many lines these are.
        decided: the commands to reply to.
        synced: whether it is to be durable before its replies.
        data: all its bytes, once they are on their way to the disk.
        sync_s: how long its sync took.
        error: what went wrong.
    """

    opened: Opened
    start: int
    pieces: list[bytes] = []
    lines: int = 0
    decided: list[Decided] = []
    synced: bool = False
    data: bytes = b""
    sync_s: float = 0.0
    error: OSError | None = None

    def add(self, item: Item, decision: Lines) -> None:
        """Append what a command decided on."""
        self.pieces.append(decision.data)
        self.lines += decision.count
        self.decided.append(Decided(item, decision.ack, is_new=True))
        self.synced |= item.command.durability == "synced"

    def repeat(self, item: Item, ack: Ack) -> None:
        """Give a repeat its first answer, once that is durable.

        The durable keys are asked now: what is looked up for other commands of this batch may
        displace this key before the batch is stored.
        """
        is_durable = self.opened.machine.keys.get(item.command.key) is not None
        self.decided.append(Decided(item, ack, is_new=False, is_durable=is_durable))
        # The first answer may be of this very batch: both wait for the same sync.
        self.synced = True

    @property
    def was_cut_short(self) -> bool:
        """True when its bytes were not written, or not all of them."""
        return bool(self.error and self.data) and self.opened.log.size == self.start

    @property
    def new_keys(self) -> set[str]:
        """The keys of the batch's new commands."""
        return _new_keys(self.decided)

    def shift_in(self, region: bytes) -> int | None:
        """How many lines of others come before its own.

        Args:
            region: what stands in the file from `start` on.

        Returns:
            None if another program's half line swallowed them.
        """
        found = region.find(self.data)
        is_there = found == 0 or (found > 0 and region[found - 1 : found] == b"\n")
        return region.count(b"\n", 0, found) if is_there else None


def answer_all(decided: Sequence[Decided], *, synced: bool, shift: int = 0) -> None:
    """Reply to a stored batch's commands, in their order, with their positions.

    Args:
        decided: its commands.
        synced: whether the bytes are durable, or only in the page cache.
        shift: lines by which the batch lies further down than was decided.
    """
    # A repeat inside the batch is answered with its first copy's place.
    ours = _new_keys(decided) if shift else set[str]()
    for each in decided:
        command, ack = each.item.command, each.ack
        if command.key in ours:
            ack = moved(ack, shift, overtaken=command.expect is not None)
        if not synced:
            ack = msgspec.structs.replace(ack, durability="written")
        each.item.to.reply(ack)


def refuse_all(decided: Sequence[Decided], error: StenoError) -> None:
    """Reply to all commands of a batch with the same error."""
    for each in decided:
        each.item.to.refuse(with_key(error, each.item.command.key))


def _new_keys(decided: Sequence[Decided]) -> set[str]:
    return {each.item.command.key for each in decided if each.is_new}
