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
from stenod.core.machine import Lines, moved
from stenod.recovery.opened import Opened
from stenod.runtime.error_mapping import ended, with_key


class ReplyTo(Protocol):
    """The sender of one request."""

    def reply(self, body: Reply) -> None:
        """Queue the reply; the next flush sends it."""
        ...

    def refuse(self, error: StenoError) -> None:
        """Queue an error as the reply."""
        ...


class Item(msgspec.Struct, frozen=True, eq=False):
    """One command that waits for a writer.

    Attributes:
        size: bytes of its records.
        deadline_s: on the daemon's monotonic clock, or None.
        is_awaited: the sender waits for the event that follows the next sync, though the reply
            does not wait for that sync.
    """

    command: Mutation
    records: Sequence[bytes]
    to: ReplyTo
    size: int
    deadline_s: float | None
    is_awaited: bool = False

    def acknowledge(self, ack: Ack) -> None:
        """Queue the ack, whose bytes are as durable as it says, as the reply.

        A sync in a cluster returns when a majority of the servers has the bytes. Only a client that
        asked for `replicated` knows that word.
        """
        if self.command.durability == "replicated" and ack.durability == "synced":
            ack = msgspec.structs.replace(ack, durability="replicated")
        self.to.reply(ack)


class Budget(msgspec.Struct):
    """The bytes that wait in all mailboxes of a daemon together."""

    taken_bytes: int = 0


class Mailbox:
    """A bounded queue of commands; a full one refuses, and never waits."""

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
        """Queue a command. The caller then wakes the writer, or has it take the command at once.

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
        """Wake the writer for queued commands."""
        self._filled.set()

    def take(self) -> tuple[list[Item], int]:
        """Take the waiting commands, up to `GROUP_BYTES_MAX` and `GROUP_COMMANDS_MAX`.

        Returns:
            The commands, and the bytes of their records.
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
        """Take all waiting commands."""
        while self._items:
            yield from self.take()[0]

    def close(self) -> None:
        """Refuse further commands; queued ones are still served."""
        self._closed = True
        self._filled.set()

    def nudge(self) -> None:
        """Wake the writer for work other than a command."""
        self._nudged = True
        self._filled.set()

    async def wait(self) -> None:
        """Return when a command waits, after a nudge, or when the mailbox is closed."""
        while not (self._items or self._closed or self._nudged):
            self._filled = anyio.Event()
            await self._filled.wait()
        self._nudged = False


class Decided(msgspec.Struct, frozen=True):
    """A decided command and its reply, which is sent once its batch is stored.

    Attributes:
        is_new: the command added bytes to the batch; else it is a repeat.
        is_durable: the reply refers to earlier, durable bytes, and holds if the batch fails.
    """

    item: Item
    ack: Ack
    is_new: bool
    is_durable: bool = False


class Batch(msgspec.Struct, eq=False):
    """Decided commands that are written together, and replied to once they are stored.

    Attributes:
        opened: the files that the batch is written to.
        start: size of the file before the batch, in bytes.
        pieces: the bytes of each command.
        lines: the number of lines in them.
        decided: the commands to reply to.
        synced: whether the batch must be durable before its replies are sent.
        data: all its bytes, joined when the batch is closed for storing.
        sync_s: seconds that its sync took.
        error: the error of its write or sync.
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
        """Add the lines of a new command."""
        self.pieces.append(decision.data)
        self.lines += decision.count
        self.decided.append(Decided(item, decision.ack, is_new=True))
        self.synced |= item.command.durability != "written"

    def repeat(self, item: Item, ack: Ack) -> None:
        """Add a repeat, which gets its first reply once that is durable.

        Whether the first reply is durable is determined now: a lookup for another command of this
        batch may evict the key from the table before the batch is stored.
        """
        is_durable = self.opened.machine.keys.get(item.command.key) is not None
        self.decided.append(Decided(item, ack, is_new=False, is_durable=is_durable))
        # The first use of the key may be in this batch: both wait for the same sync.
        self.synced = True

    @property
    def was_cut_short(self) -> bool:
        """True when its bytes were not written, or only a part of them."""
        return bool(self.error and self.data) and self.opened.log.size == self.start

    @property
    def new_keys(self) -> set[str]:
        """The keys of the batch's new commands."""
        return _new_keys(self.decided)

    def shift_in(self, region: bytes) -> int | None:
        """The number of lines that another program wrote before the lines of the batch.

        Args:
            region: the bytes of the file from `start` on.

        Returns:
            None if the batch is joined to an unfinished line of another program.
        """
        found = region.find(self.data)
        is_there = found == 0 or (found > 0 and region[found - 1 : found] == b"\n")
        return region.count(b"\n", 0, found) if is_there else None


def answer_all(decided: Sequence[Decided], *, synced: bool, shift: int = 0) -> None:
    """Reply to the commands of a stored batch, in their order.

    Args:
        decided: the commands.
        synced: whether the bytes are durable, or only in the page cache.
        shift: lines by which the batch lies below the positions that were decided.
    """
    # A repeat of a command in the same batch gets the position of that command.
    ours = _new_keys(decided) if shift else set[str]()
    for each in decided:
        command, ack = each.item.command, each.ack
        if command.key in ours:
            ack = moved(ack, shift, overtaken=command.expect is not None)
        if not synced:
            ack = msgspec.structs.replace(ack, durability="written")
        each.item.acknowledge(ack)


def refuse_all(decided: Sequence[Decided], error: StenoError) -> None:
    """Reply to all commands of a batch with the same error."""
    for each in decided:
        each.item.to.refuse(with_key(error, each.item.command.key))


def _new_keys(decided: Sequence[Decided]) -> set[str]:
    return {each.item.command.key for each in decided if each.is_new}
