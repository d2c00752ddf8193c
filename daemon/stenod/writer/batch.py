"""A batch of commands that reach the disk together, and their replies."""

from collections.abc import Sequence

import msgspec

from steno_protocol.errors import StenoError
from steno_protocol.replies import Ack
from stenod.core.speculation import Lines, moved
from stenod.recovery.file_opening import Opened
from stenod.runtime.error_mapping import with_key
from stenod.runtime.mailbox import Item


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
